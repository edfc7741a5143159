"""Lives of a program that is killed again and again: forks of one process that has imported it.

    with lives_of("tests.approvals.killed_refunds") as live:
        assert live(folder, "paid") == -signal.SIGKILL

Each call runs `main(*arguments)` of that module in a process of its own, by trio, and returns how that ended,
as `subprocess` does. A fork begins much faster than an interpreter, so a test may have hundreds of lives.

A life knows the `Outside`, what is there when it has ended: a folder with a log. It ends at a point by name,
which its code reaches, or its store: `FatalStore` has one before and one after each commit.
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
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors.persistence import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from lmos_actors.persistence import Batch, Conflict, Durability, Write

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


@attrs.define
class Outside:
    """What outlives a process, and the point at which this one ends, or is stopped by another signal."""

    folder: Path
    _signal: int = signal.SIGKILL
    _point: str = ""

    def end_at(self, point: str) -> None:
        """Have this life end where it comes to that point from now on."""
        self._point = point

    def end_after(self, seconds: float) -> None:
        """Have this life end so many seconds from now, wherever it is then."""

        def wait() -> None:
            time.sleep(seconds)
            self._kill()

        threading.Thread(target=wait, daemon=True).start()

    def reach(self, point: str) -> None:
        """Come to a point."""
        if point == self._point:
            self._kill()

    def append(self, name: str, *words: object, sync: bool = False) -> None:
        """Write a line to a file."""
        file = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, (" ".join(map(str, words)) + "\n").encode())
            if sync:
                os.fsync(file)
        finally:
            os.close(file)

    def log(self, *words: object) -> None:
        """Write a line to the log."""
        self.append("log", *words)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file, as far as there are any."""
        with suppress(FileNotFoundError):
            return (self.folder / name).read_text().splitlines()
        return []

    def _kill(self) -> None:
        self._point = ""  # it may go on
        os.kill(os.getpid(), self._signal)


class FatalStore(SqliteStore):
    """A store whose commits are points: `NAME begins` before one that writes that, `NAME kept` after it."""

    def __init__(self, outside: Outside, name_of: Callable[[Write], str]) -> None:
        super().__init__(outside.folder / "kept.db")
        self._outside = outside
        self._name_of = name_of

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        names = [name for batch in batches for write in batch if (name := self._name_of(write))]
        for name in names:
            self._outside.reach(f"{name} begins")
        done = super().commit(batches, durability)
        for name in names:
            self._outside.log("kept", name)
        for name in names:
            self._outside.reach(f"{name} kept")
        return done


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
