"""One process of a group, as an agent: it begins and ends with its incarnation.

So supervisors watch over processes without knowing: a process that ends by itself is a crash of its agent, a
restart of the agent is a new process, and stopping the agent lets the process drain. The agent starts at
once, and waits for what its group needs before it starts the process.

The output is read in the lifespan, around everything else, until the process has ended: what it says while it
drains is read, too.
"""

from __future__ import annotations

import json
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import attrs
import trio

from lmos_actors.actors import Agent
from lmos_actors.errors import LmosActorsError, StartFailed

from ._log_files import LineSplitter
from ._place import Order, Process

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from ._group import Group

REST: Final = 0.5
"""Seconds in which the last output of a process is read after its end: its own children may hold the pipe."""


LAST_WORDS: Final = 0.05
"""Seconds in which the last words of a process that has ended may still come."""


class ProcessEnded(LmosActorsError):
    """A process has ended by itself, or was not ready in time. `why` says how, with its last words."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"{name} {why}")


class Replica(Agent, private=True):
    """The process of a number in a group, which has what it needs to know, and hears what becomes of it."""

    of: Group
    number: int
    process: Process | None = attrs.field(default=None, init=False)
    asked: bool = attrs.field(default=False, init=False)
    """Whether the process was asked to end."""
    why: str = attrs.field(default="", init=False)
    """Why the process ended by itself, or did not come."""
    reading: trio.Nursery | None = attrs.field(default=None, init=False)
    last_words: str = attrs.field(default="", init=False)
    has_gone: bool = attrs.field(default=False, init=False)

    @property
    def name(self) -> str:
        """The name of the process: `weather/1`."""
        return f"{self.of.plan.name}/{self.number}"

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Read the output, whatever else happens, and end the process."""
        async with trio.open_nursery() as reading:
            self.reading = reading
            try:
                yield
            finally:
                try:
                    await self._end()
                finally:
                    reading.cancel_scope.deadline = trio.current_time() + REST
                    self.of.has_ended(self, self.why)

    def started(self) -> None:
        """Begin; the agent runs from now on, its process comes."""
        self.nursery.start_soon(self._live)

    async def _live(self) -> None:
        group = self.of
        group.enters(self, "waiting")
        await group.wait_needs()
        words, environment = group.arguments_of(self.number), group.plan.environment
        order = Order(name=self.name, arguments=words, environment=environment)
        try:
            self.process = process = await group.place.start(order)
        except StartFailed as error:
            self.why = str(error)
            raise
        group.enters(self, "starting", int(process.id) if process.id.isdecimal() else None)
        assert self.reading is not None  # the lifespan has been entered
        self.reading.start_soon(self._read_output, process.output())
        self.reading.start_soon(self._read_errors, process.errors())
        self.nursery.start_soon(self._watch, process)
        with trio.move_on_after(group.plan.ready) as scope:
            await group.wait_ready(self)
        if scope.cancelled_caught:
            self._fail(f"was not ready within {group.plan.ready:g} s")

    async def _watch(self, process: Process) -> None:
        code = await process.wait()
        self.has_gone = True
        if self.asked:  # its supervisor is about to stop the agent
            return
        await trio.sleep(LAST_WORDS)
        self._fail(how_ended(code))

    def _fail(self, how: str) -> NoReturn:
        self.why = f"{how}: {self.last_words}" if self.last_words else how
        raise ProcessEnded(self.name, self.why)

    def ask_to_end(self) -> None:
        """Have the process drain. The agent goes on: it is its supervisor that stops it."""
        if not self.asked and self.process is not None and not self.has_gone:
            self.asked = True
            self.of.enters(self, "draining")
            self.process.stop()

    async def _end(self) -> None:
        """End the process, if there is one; at once where there is no time to drain."""
        process = self.process
        if process is None or self.has_gone:
            return
        self.ask_to_end()
        try:
            await process.wait()
        except trio.Cancelled:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            raise

    # ---- its output

    async def _read_output(self, pieces: AsyncIterator[bytes]) -> None:
        splitter = LineSplitter()
        async for piece in pieces:
            lines = list(splitter.lines(piece))
            for line in lines:
                self._take(line)
            await self.of.logs.write(self.name, lines)
        await self.of.logs.write(self.name, list(splitter.rest()))

    async def _read_errors(self, pieces: AsyncIterator[bytes]) -> None:
        splitter = LineSplitter()
        async for piece in pieces:
            lines = list(splitter.lines(piece))
            self.last_words = next((line for line in reversed(lines) if line.strip()), self.last_words)
            await self.of.logs.write(self.name, lines)
        await self.of.logs.write(self.name, list(splitter.rest()))

    def _take(self, line: str) -> None:
        """Take an event that `serve` has printed; other lines are for people."""
        if not line.startswith('{"event"'):
            return
        with suppress(ValueError):
            event: Any = json.loads(line)
            if isinstance(event, dict):
                self._happened(cast("dict[str, Any]", event))

    def _happened(self, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "listening" if isinstance(event.get("url"), str):
                self.of.listens(self, event["url"].removesuffix("/ws"))
            case "ready" if not self.asked:
                self.of.enters(self, "ready")
            case "draining" if not self.asked:
                self.of.enters(self, "draining")
            case _:
                pass


def how_ended(code: int) -> str:
    """Return in words how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
