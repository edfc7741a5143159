"""This machine as the place of processes.

The standard input of each process is a pipe whose other end this process holds. The pipe closes when the
launcher ends in any way, and the process then drains by itself (`serve --launched`). A file lists processes
by number and start time, so that the next launcher finds those that outlive this one.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import attrs
import trio

from lmos_actors._core import MARK, end_left, end_tree
from lmos_actors.errors import StartFailed

from ._fork_server import ForkServer, can_fork, pieces_of
from ._pause import Pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ._fork_server import ForkedProcess
    from ._place import Order
    from ._plan import LaunchPlan

GROUP_MODULES: Final = (
    "encodings.idna",
    "jsonschema_rs",
    "lmos_actors.bindings.consumed._consume",
    "lmos_actors.bindings.lmos._server",
    "lmos_actors.cli._dispatch",
    "lmos_actors.cli.commands._serve",
    "lmos_actors.cli.serve._group",
    "lmos_actors.discovery._registrar",
    "lmos_actors.node._lifecycle",
    "lmos_actors.persistence._writer",
)
"""Modules that a process of a group imports in any case, with all that these import."""

FEW_DESCRIPTORS: Final = 64
DESCRIPTORS_EACH: Final = 5
"""File descriptors that a launcher needs in any case, and for each process: pipes, its handle, its end."""


class LocalProcess:
    """A process on this machine; `mark` is in its environment and identifies its child processes."""

    def __init__(self, process: trio.Process, mark: str = "") -> None:
        self._process = process
        self._mark = mark
        self._pause = Pause()
        self._is_asked = False

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def id(self) -> str:
        """See `Process`."""
        return str(self.pid)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    def output(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return pieces_of(self._process.stdout)

    def errors(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return pieces_of(self._process.stderr)

    async def wait(self) -> int:
        """See `Process`."""
        is_news = not self.has_ended
        code = await self._process.wait()
        if is_news:
            with trio.CancelScope(shield=True):  # a look at all processes, for which the loop does not wait
                await trio.to_thread.run_sync(end_left, self.pid, self._mark)
        return code

    def stop(self) -> None:
        """See `Process`."""
        if not self._is_asked:  # a command that gets two takes the second for an order to end at once
            self._is_asked = True
            with suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """Kill the process and all processes that it has started; see `Process`."""
        if not self.has_ended:
            end_tree(self._process.pid)
        self._pause.forget()

    def pause(self) -> None:
        """Pause the process and all processes that it has started; see `Process`."""
        if not self.has_ended:
            self._pause.begin(self.pid)

    def resume(self) -> None:
        """See `Process`."""
        if not self.has_ended:
            self._pause.end(self.pid)


class LocalPlace:
    """This machine as a place. `records` is the file that lists the processes for the next launcher.

    With `modules`, a fork server imports them once and forks each process, if the system and the environment
    of the process allow that; see `_fork_server.py`. The fork server ends at `aclose`, or with this process.
    """

    def __init__(self, records: Path, modules: Sequence[str] = ()) -> None:
        self._records = records
        self._begun: dict[int, str] = {}
        self._running: list[LocalProcess | ForkedProcess] = []
        self._forks = ForkServer(modules) if modules else None

    async def start(self, order: Order) -> LocalProcess | ForkedProcess:
        """See `Place`."""
        mark = uuid4().hex
        order = attrs.evolve(order, environment={**order.environment, MARK: mark})
        try:
            process = await self._forked(order, mark) or await self._started(order, mark)
        except OSError as error:
            raise StartFailed(order.name, _why(error)) from None
        self._running = [each for each in self._running if not each.has_ended]
        self._running.append(process)
        self._record()
        return process

    async def _forked(self, order: Order, mark: str) -> ForkedProcess | None:
        """Return a forked process; None if the process cannot be forked. Raises OSError."""
        if self._forks is None or not can_fork(order.environment):
            return None
        environment = {**os.environ, **order.environment}
        for _ in range(2):  # a server that has ended meanwhile is replaced once
            process = await self._forks.start(order.arguments, environment)
            if process is not None:
                process.mark = mark
                return process
        return None

    async def _started(self, order: Order, mark: str) -> LocalProcess:
        """Start a process without the fork server. Raises OSError."""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", "-m", "lmos_actors", *order.arguments],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, **order.environment},
            start_new_session=True,  # Ctrl-C of a terminal is the launcher's alone
        )
        return LocalProcess(process, mark)

    def _record(self) -> None:
        """Write the list of running processes. If that fails, the next launcher does not wait for them."""
        begun = {each.pid: self._begun.get(each.pid) or _begun(each.pid) for each in self._running}
        self._begun = begun
        lines = "".join(f"{pid} {at}\n" for pid, at in begun.items())
        fresh = self._records.with_suffix(".new")
        with suppress(OSError):
            fresh.write_text(lines, encoding="ascii")
            os.replace(fresh, self._records)

    async def aclose(self) -> None:
        """End the fork server. The processes that it has started continue."""
        if self._forks is not None:
            await self._forks.aclose()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """See `Place`."""
        try:
            yield
        finally:
            await self.aclose()

    def check(self, plan: LaunchPlan) -> None:
        """Accept every plan, as this machine can do all that a file can request; see `Place`."""

    async def left(self) -> list[int]:
        """Return the numbers of the processes that still run; see `Place`. Reads the disk once."""
        await trio.lowlevel.checkpoint()
        return self._left()

    def _left(self) -> list[int]:
        try:
            lines = self._records.read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            return []
        pairs = [line.split() for line in lines]
        known = [(int(pair[0]), pair[1]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()]
        return [pid for pid, begun in known if begun != GONE and _begun(pid) == begun]

    async def wait_left(self, seconds: float) -> None:
        """Wait until the processes of an earlier launcher have ended; kill them after `seconds`."""
        with trio.move_on_after(seconds):
            await self._none_left()
        for pid in self._left():
            end_tree(pid)
        await self._none_left()
        with suppress(OSError):
            self._records.unlink()

    async def _none_left(self) -> None:
        while self._left():  # noqa: ASYNC110 -- they are no children of ours, and nothing says that they end
            await trio.sleep(0.05)


def _why(error: OSError) -> str:
    if error.errno == errno.EMFILE:
        each = f"a launcher needs {DESCRIPTORS_EACH} for each process"
        return f"too many open files: {each}; `ulimit -n` allows more"
    if error.errno == errno.EAGAIN:
        return "too many processes of this user: `ulimit -u` allows more"
    return f"{error.filename or sys.executable}: {error.strerror}"


GONE: Final = "-"
"""The start instant of a process that does not exist."""


def _begun(pid: int) -> str:
    """Return the start time of a process, which tells it apart from a later process with the same number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
    except OSError:
        return _alive(pid)
    return GONE if fields[0] in ("Z", "X") else fields[19]


def _alive(pid: int) -> str:
    """Return "there" if a process exists, or else `GONE`, on systems without start times of processes."""
    if Path("/proc/self/stat").exists():
        return GONE
    try:
        os.kill(pid, 0)
    except OSError:
        return GONE
    return "there"
