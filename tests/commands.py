"""Our command, called as a user calls it, in processes that need not import everything again.

One process has imported what the command needs, and forks for each call. A call is a process of its own in
all else: folder, environment, output, exit code, signals. What Python reads from the environment when it
starts (`PYTHON...`) is that of the first process, where warnings are errors.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.source import ROOT

FORKING = """
import json, os, runpy, sys
import cyclopts, shlex
import lmos_actors.cli.commands._others, lmos_actors.cli.run._run, lmos_actors.reports, lmos_actors.scenario

said = os.dup(1)
for line in sys.stdin.buffer:
    call = json.loads(line)
    pid = os.fork()
    if not pid:
        break
    os.write(said, b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
else:
    sys.exit()
os.close(said)
for number, name in enumerate((os.devnull, call["out"], call["err"])):
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, number)
    os.close(file)
os.chdir(call["folder"])
os.environ.clear()
os.environ.update(call["environment"])
sys.path[0] = os.getcwd()
sys.argv[1:] = call["words"]
runpy.run_module("lmos_actors", run_name="__main__", alter_sys=True)
"""


class Forking:
    """The process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORKING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
            env=surroundings(),
            process_group=0,
        )
        atexit.register(self._process.communicate)

    def call(self, words: tuple[str, ...], folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        with TemporaryDirectory() as place:
            out, err = (Path(place, name) for name in ("out", "err"))
            told = {"words": words, "folder": str(folder), "environment": surroundings()}
            told |= {"out": str(out), "err": str(err)}
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            if not select.select([self._process.stdout], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(words, timeout)
            assert self._process.stdout is not None
            code = int(self._process.stdout.readline())
            texts = (out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))
        return subprocess.CompletedProcess(words, code, *texts)

    def end(self) -> None:
        """End the process, and the call that it waits for."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        atexit.unregister(self._process.communicate)


def surroundings() -> dict[str, str]:
    """Our environment, with our package and with warnings as errors."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


forking = cache(Forking)


def called(words: tuple[str, ...], folder: Path, *, timeout: float) -> subprocess.CompletedProcess[str]:
    """Call `lmos-actors` in a folder, with nothing to read.

    Raises subprocess.TimeoutExpired. Whatever else ends the call early, such as the time limit of a test,
    ends the process too: the next call begins another one, and never reads the answer to this one.
    """
    first = forking()
    try:
        return first.call(words, folder, timeout)
    except BaseException:
        forking.cache_clear()
        first.end()
        raise
