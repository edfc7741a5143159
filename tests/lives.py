"""Lives of a program that is killed again and again: forks of one process that has imported it.

    with lives_of("tests.approvals.killed_refunds") as live:
        assert live(folder, "paid") == -signal.SIGKILL

Each call runs `main(*arguments)` of that module in a process of its own, by trio, and returns how that ended,
as `subprocess` does. A fork begins much faster than an interpreter, so a test may have hundreds of lives.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

READY = "ready\n"


@contextmanager
def lives_of(module: str) -> Generator[Callable[..., int]]:
    """Have a module imported by a process; the call that is yielded runs one life of it."""
    command = [sys.executable, "-m", "tests.lives", module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        given, ends = process.stdin, process.stdout
        assert given is not None
        assert ends is not None
        assert ends.readline() == READY, "it cannot be imported"

        def live(*arguments: Any) -> int:
            given.write(json.dumps(arguments) + "\n")
            given.flush()
            return int(ends.readline())

        try:
            yield live
        finally:
            process.kill()


def kill() -> None:
    """End this life, as a power cut would end the process."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after(seconds: float) -> None:
    """End this life so many seconds from now, wherever it is then."""

    def wait() -> None:
        time.sleep(seconds)
        kill()

    threading.Thread(target=wait, daemon=True).start()


def _main(module: str) -> None:
    main = importlib.import_module(module).main
    gc.collect()
    gc.freeze()
    os.write(1, READY.encode())
    while line := _line():
        child = os.fork()
        if not child:
            _live(main, json.loads(line))
        _, status = os.waitpid(child, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _line() -> bytes:
    """Read a line without a buffer, which each fork would have a copy of."""
    line = b""
    while not line.endswith(b"\n"):
        got = os.read(0, 1)
        if not got:
            return b""
        line += got
    return line


def _live(main: Any, arguments: list[Any]) -> None:
    code = 1
    try:
        trio.run(main, *arguments)
        code = 0
    except BaseException:  # noqa: ASYNC103 -- the process ends with it
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _main(sys.argv[1])
