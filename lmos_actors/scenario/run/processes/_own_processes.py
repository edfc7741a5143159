"""Processes with agents of a file (`from: process`), started before the first agent and ended with the run.

A process prints the addresses of its agents in the same way as `serve`: a line of JSON for each. So it may be
a program in any language, and need not be `serve`. Its other output goes to standard error, like the output
of agents.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import aclosing, asynccontextmanager
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio
from msgspec import UNSET

from lmos_actors.deployment.processes import LineSplitter, LocalProcess, how_ended, kill_with_us
from lmos_actors.errors import ConfigError, LmosActorsError, StartFailed, TransportError, raise_together

from ..memory import first_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path
    from subprocess import Popen

    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.system.model import OwnProcess

Consume: TypeAlias = "Callable[[str, str | None], Awaitable[ConsumedThing]]"
"""Connects to the agent at a URL; if there are several, to the one with a name."""

IN_ORDER: Final = 10.0
"""Seconds that a process has to end when asked to; then it is killed."""

AGAIN: Final = 0.05
"""Seconds between two attempts to reach an agent whose address the file gives."""

LAST_WORDS: Final = 0.05
"""Seconds in which the last output of an ended process may still arrive."""

MOST_LINES: Final = 1_000
"""Maximum number of agents of one process that are known."""


@attrs.define(eq=False)
class _Served:
    """A started process, with the addresses of its agents and the way it ended."""

    process: LocalProcess
    input: trio.abc.AsyncResource
    guard: Popen[bytes]
    agents: dict[str, str] = attrs.Factory(dict[str, str])
    """The addresses of its agents, by name."""
    ready: trio.Event = attrs.Factory(trio.Event)
    ended: trio.Event = attrs.Factory(trio.Event)
    how: str = ""
    """The way the process ended."""
    last_words: str = ""
    has_begun: bool = False

    async def killed(self) -> None:
        """Kill the process and all that it has started, if it has not ended; release its resources."""
        self.process.kill()
        await self.process.wait()
        await self.input.aclose()
        self.guard.kill()
        self.guard.communicate()


class OwnProcesses:
    """The processes of one run. They run in `folder`; `ended` is called if a process ends by itself."""

    def __init__(self, folder: Path, ended: Callable[[str, str], object]) -> None:
        self._folder = folder
        self._ended = ended
        self._may_end = False
        self._served: list[_Served] = []
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Allow starts in this block, and end all processes after it: in order, or at once after an error."""
        try:
            async with trio.open_nursery(strict_exception_groups=True) as self._nursery:
                try:
                    yield
                    self._may_end = True
                    await self._stop()
                finally:
                    with trio.CancelScope(shield=True):
                        for each in self._served:
                            await each.killed()
                    self._nursery.cancel_scope.cancel("the run has ended")
        except BaseExceptionGroup as group:
            raise_together(list(group.exceptions), "errors of one run")

    async def _stop(self) -> None:
        for each in self._served:
            each.process.stop()
        with trio.move_on_after(IN_ORDER):
            for each in self._served:
                await each.process.wait()

    async def start(self, name: str, entry: OwnProcess, consume: Consume) -> ConsumedThing:
        """Start the process of an agent, and consume the agent at its address. Raises StartFailed."""
        served = await self._begun(name, entry)
        found: list[ConsumedThing] = []
        failures: list[LmosActorsError] = []

        async def reach() -> None:
            try:
                found.append(await self._reached(name, entry, served, consume))
            except LmosActorsError as error:
                failures.append(error)

        with trio.move_on_after(entry.ready) as scope:
            await first_of(reach, served.ended.wait)
        if found:
            served.has_begun = True
            return found[0]
        if failures:
            raise StartFailed(name, str(failures[0])) from failures[0]
        late = f"its process was not ready within {entry.ready}"
        raise StartFailed(name, late if scope.cancelled_caught else f"its process {served.how}")

    async def _begun(self, name: str, entry: OwnProcess) -> _Served:
        words = _serving(name, str(entry.use)) if entry.command is UNSET else entry.command
        try:
            started = await trio.lowlevel.open_process(
                list(words),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self._folder,
                env={**os.environ, **entry.env},
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(name, f"{error.filename or words[0]}: {error.strerror}") from error
        process = LocalProcess(started)
        assert started.stdin is not None  # as PIPE was requested
        served = _Served(process, started.stdin, kill_with_us(process.pid))
        self._served.append(served)
        assert self._nursery is not None
        self._nursery.start_soon(self._read_output, served)
        self._nursery.start_soon(self._read_errors, served)
        self._nursery.start_soon(self._watch, name, served)
        return served

    @staticmethod
    async def _reached(
        name: str,
        entry: OwnProcess,
        served: _Served,
        consume: Consume,
    ) -> ConsumedThing:
        """Wait until the agent is reachable, and consume it. Raises TransportError, ConfigError."""
        while entry.url is not None:
            try:
                return await consume(entry.url, entry.thing)
            except TransportError:  # it does not listen yet
                await trio.sleep(AGAIN)
        await served.ready.wait()
        sought = entry.thing or (name if len(served.agents) > 1 else next(iter(served.agents), name))
        if sought not in served.agents:
            there = ", ".join(served.agents) or "none"
            why = f'its process serves {there}, and no "{sought}": "thing" names the agent'
            raise ConfigError(why, "thing")
        return await consume(served.agents[sought], None)

    async def _watch(self, name: str, served: _Served) -> None:
        code = await served.process.wait()
        await trio.sleep(LAST_WORDS)
        words = f": {served.last_words}" if served.last_words else ""
        served.how = how_ended(code) + words
        served.ended.set()
        if served.has_begun and not self._may_end:
            self._ended(name, served.how)

    # ---- their output

    async def _read_output(self, served: _Served) -> None:
        def take(line: str) -> None:
            try:
                event: Any = json.loads(line) if line.startswith("{") else {}
            except ValueError:
                event = {}
            match event.get("event"):
                case "agent" if len(served.agents) < MOST_LINES:
                    served.agents[str(event.get("name"))] = str(event.get("url"))
                case "ready":
                    served.ready.set()
                case None:
                    print(line, file=sys.stderr)
                case _:
                    pass

        await _read_lines(served.process.output(), take)

    async def _read_errors(self, served: _Served) -> None:
        def take(line: str) -> None:
            served.last_words = line.strip() or served.last_words
            print(line, file=sys.stderr)

        await _read_lines(served.process.errors(), take)


async def _read_lines(pieces: AsyncGenerator[bytes], take: Callable[[str], None]) -> None:
    """Call a function with each line of the output, until the output ends."""
    splitter = LineSplitter()
    async with aclosing(pieces) as found:
        async for piece in found:
            for line in splitter.lines(piece):
                take(line)
    for line in splitter.rest():
        take(line)


def _serving(name: str, use: str) -> list[str]:
    """Return the command that serves a class of the project."""
    words = [sys.executable, "-P", "-m", "lmos_actors", "serve", f"{name}={use}"]
    return [*words, "--listen", "ws://127.0.0.1:0", "--json"]
