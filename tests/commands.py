"""Our command, called as a user calls it, in processes that need not import everything again.

One process has imported what the command needs, and forks for each call. A call is a process of its own in
all else: folder, environment, output, exit code, signals. What Python reads from the environment when it
starts (`PYTHON...`) is that of the first process, where warnings are errors; but PYTHONUNBUFFERED is heeded.

Where it ends by an exit code, its modules are not taken down one by one: that would copy most of what the
first process has imported, 50 ms of each call.

Each call is two forks: one that waits for the end of the other, and writes its exit code to a pipe. So the
first process never waits, and several calls may run at once.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import IO, TYPE_CHECKING

from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FORKING = """
import atexit, gc, json, os, runpy, socket, sys, threading
import cyclopts, jsonschema_rs, shlex
import lmos_actors.cli.run._run, lmos_actors.cli.serve._serve
import lmos_actors.cli._dispatch, lmos_actors.cli._inputs, lmos_actors.cli._record
import lmos_actors.cli.remote._chat, lmos_actors.cli.remote._relay, lmos_actors.cli.remote._requests
import lmos_actors.conformance, lmos_actors.deployment, lmos_actors.facades
import lmos_actors.reports, lmos_actors.scenario, lmos_actors.scenario.explore

def reap(flags):
    try:
        while os.waitpid(-1, flags)[0]:
            pass
    except ChildProcessError:
        pass

gc.collect()
gc.freeze()
asked = socket.socket(fileno=os.dup(0))
while True:
    ready, files, _, _ = socket.recv_fds(asked, 1, 4)
    if not ready:
        reap(0)
        sys.exit()
    if not os.fork():
        break
    for file in files:
        os.close(file)
    reap(os.WNOHANG)
asked.close()
call, said, *outputs = files
if pid := os.fork():
    os.setpgid(pid, pid)
    for file in (call, *outputs):
        os.close(file)
    os.write(said, b"%d\\n" % pid)
    os.write(said, b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)
os.close(said)
with open(call, encoding="utf-8") as text:
    call = json.load(text)
for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *outputs)):
    os.dup2(file, number)
    os.close(file)
os.chdir(call["folder"])
os.environ.clear()
os.environ.update(call["environment"])
lines = 1 if os.isatty(1) or "PYTHONUNBUFFERED" in os.environ else -1
sys.stdout = sys.__stdout__ = open(1, "w", lines, "utf-8", "strict", closefd=False)
sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
sys.path[0] = os.getcwd()
sys.argv[1:] = call["words"]
try:
    exec(call["first"], {"__name__": "__main__"})
    runpy.run_module("lmos_actors", run_name="__main__", alter_sys=True)
except SystemExit as end:
    if not isinstance(end.code, int) or threading.active_count() > 1:
        raise
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(end.code)
"""


class RunningCommand:
    """A call that runs, with what `subprocess.Popen` has of a process. An output that is a pipe is text."""

    def __init__(self, said: IO[str], stdout: IO[str] | None, stderr: IO[str] | None) -> None:
        self.pid = int(said.readline())
        self.returncode: int | None = None
        self.stdout = stdout
        self.stderr = stderr
        self._said = said

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            if timeout is not None and not select.select([self._said], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("lmos-actors", timeout)
            self.returncode = int(self._said.readline())
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return what is left to be read from its outputs. If it is late, kill it."""
        with ThreadPoolExecutor(2) as pool:
            out, err = (pool.submit(_rest_of, each) for each in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except BaseException:
                self.kill_all()
                raise
        return out.result(), err.result()

    def send_signal(self, number: int) -> None:
        """Send a signal to it, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, but no process that it has started."""
        self.send_signal(signal.SIGKILL)

    def kill_all(self) -> None:
        """End it at once, and the processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def __enter__(self) -> RunningCommand:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.kill_all()
        self.close()

    def close(self) -> None:
        """Close our ends of its outputs, and wait for its end."""
        for each in (self.stdout, self.stderr):
            if each is not None:
                each.close()
        self.wait()
        self._said.close()


def _rest_of(stream: IO[str] | None) -> str:
    return "" if stream is None or stream.closed else stream.read()


@cache
def _forking_process() -> socket.socket:
    """Start the process that forks; return the socket by which it is asked. It ends when that is closed."""
    ours, its = socket.socketpair()
    words = [sys.executable, "-c", FORKING]
    process = subprocess.Popen(words, stdin=its, cwd=ROOT, env=surroundings(), process_group=0)
    its.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def surroundings() -> dict[str, str]:
    """Our environment, with our package and with warnings as errors."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def started(
    words: Sequence[str],
    folder: Path | str,
    *,
    stdout: int | None = None,
    stderr: int | None = None,
    environment: Mapping[str, str] | None = None,
    first: str = "",
) -> RunningCommand:
    """Start `lmos-actors` in a folder, with nothing to read.

    Without a file descriptor for an output it is a pipe. `first` is a statement to be run before the command.
    """
    call, said, out, err = (os.pipe() for _ in range(4))
    theirs = [call[0], said[1], out[1] if stdout is None else stdout, err[1] if stderr is None else stderr]
    socket.send_fds(_forking_process(), [b"."], theirs)
    for end in (call[0], said[1], out[1], err[1]):
        os.close(end)
    for given, end in ((stdout, out[0]), (stderr, err[0])):
        if given is not None:
            os.close(end)
    running = RunningCommand(
        os.fdopen(said[0]),
        os.fdopen(out[0], encoding="utf-8") if stdout is None else None,
        os.fdopen(err[0], encoding="utf-8") if stderr is None else None,
    )
    with open(call[1], "w", encoding="utf-8") as told:
        settings = dict(surroundings() if environment is None else environment)
        json.dump({"words": words, "folder": str(folder), "environment": settings, "first": first}, told)
    return running


def script_started(script: str, folder: Path | str) -> RunningCommand:
    """Start a script in a folder, as `python -c` does."""
    return started((), folder, first=f"{script}\nraise SystemExit")


def called(
    words: Sequence[str], folder: Path, *, timeout: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Call `lmos-actors` in a folder, with nothing to read, and wait for its end.

    Raises subprocess.TimeoutExpired. Whatever else ends the call early, such as the time limit of a test,
    ends its processes too.
    """
    with started(words, folder, environment=environment) as command:
        texts = command.communicate(timeout)
        return subprocess.CompletedProcess(words, command.wait(), *texts)
