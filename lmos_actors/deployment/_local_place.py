"""This machine as the place of processes.

Each process has a pipe as its standard input, whose other end this process holds. It closes with the
launcher, however that ends, and the process then drains by itself (`serve --launched`). A process that so
outlives its launcher is found by the next one, in a file with its number and the instant of its start.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.errors import StartFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ._place import Order

PIECE: Final = 1 << 16
"""Most bytes of output that are read at a time."""

LOOK: Final = 0.05
"""Seconds between two looks at a process that is not ours."""


class LocalProcess:
    """A process on this machine."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    @property
    def id(self) -> str:
        """The number of the process."""
        return str(self._process.pid)

    def output(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return self._read(self._process.stdout)

    def errors(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return self._read(self._process.stderr)

    async def _read(self, stream: Any) -> AsyncGenerator[bytes]:
        try:
            while piece := await stream.receive_some(PIECE):
                yield piece
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def wait(self) -> int:
        """See `Process`."""
        return await self._process.wait()

    def stop(self) -> None:
        """See `Process`."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """See `Process`: with all that it has started itself."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


class LocalPlace:
    """This machine. `records` is the file that lists the processes for the next launcher."""

    def __init__(self, records: Path) -> None:
        self._records = records
        self._begun: dict[int, str] = {}
        self._running: list[trio.Process] = []

    async def start(self, order: Order) -> LocalProcess:
        """See `Place`."""
        words = [sys.executable, "-P", "-m", "lmos_actors", *order.arguments]
        try:
            process = await trio.lowlevel.open_process(
                words,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={**os.environ, **order.environment},
                start_new_session=True,  # Ctrl-C of a terminal is the launcher's alone
            )
        except OSError as error:
            raise StartFailed(order.name, f"{error.filename or sys.executable}: {error.strerror}") from error
        self._running = [each for each in self._running if each.returncode is None]
        self._running.append(process)
        self._record()
        return LocalProcess(process)

    def _record(self) -> None:
        """Write down which processes run. If that fails, the next launcher does not wait for them."""
        begun = {each.pid: self._begun.get(each.pid) or _begun(each.pid) for each in self._running}
        self._begun = begun
        lines = "".join(f"{pid} {at}\n" for pid, at in begun.items())
        fresh = self._records.with_suffix(".new")
        with suppress(OSError):
            fresh.write_text(lines, encoding="ascii")
            os.replace(fresh, self._records)

    def left(self) -> list[int]:
        """Return the numbers of the processes of an earlier launcher that still run. Blocks on the disk."""
        try:
            lines = self._records.read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            return []
        pairs = [line.split() for line in lines]
        known = [(int(pair[0]), pair[1]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()]
        return [pid for pid, begun in known if begun != GONE and _begun(pid) == begun]

    async def wait_left(self, seconds: float) -> None:
        """Wait until the processes of an earlier launcher have ended; after some seconds, kill them."""
        with trio.move_on_after(seconds):
            await self._none_left()
        for pid in self.left():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        await self._none_left()
        with suppress(OSError):
            self._records.unlink()

    async def _none_left(self) -> None:
        while self.left():  # noqa: ASYNC110 -- they are no children of ours, and nothing says that they end
            await trio.sleep(LOOK)


GONE: Final = "-"
"""The instant of the start of a process that is not there."""


def _begun(pid: int) -> str:
    """Return what distinguishes a process from a later one of its number: the instant of its start."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
    except OSError:
        return _alive(pid)
    return GONE if fields[0] in ("Z", "X") else fields[19]


def _alive(pid: int) -> str:
    """Return whether there is a process of a number, where the system does not say when it began."""
    if Path("/proc/self/stat").exists():
        return GONE
    try:
        os.kill(pid, 0)
    except OSError:
        return GONE
    return "there"
