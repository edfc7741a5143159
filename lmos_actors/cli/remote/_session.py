"""Session of a command with a remote agent: connect, do its work, return its exit code."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

from lmos_actors.assembly import open_node
from lmos_actors.errors import (
    AgentUnavailable,
    ConfigError,
    DeadlineExceeded,
    LmosActorsError,
    LocalProtocolError,
    NotFound,
    OutcomeUnknown,
    TransportError,
)
from lmos_actors.transport import ConnectionOptions, endpoint_of

from .._answers import OutputLine, error_members
from .._exit_codes import FAILED, NOT_REACHED, TIME_LIMIT, USAGE
from .._loop import Interrupt, run_loop
from .._start_up import code_of as code_of_signal
from .._texts import ONE_THING, explained
from ..options._connection import in_shell

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from lmos_actors.bindings import ConsumedThing, Habits
    from lmos_actors.protocol.td import Streams

    from .._answers import AnswerPrinter
    from ..options._connection import Server
    from ..options._remote import RemoteOptions

GRACE: Final = 2.0
"""Seconds for the agent to confirm that it has cancelled a request."""


@attrs.frozen(kw_only=True)
class RemoteAgent:
    """An agent at a server; `variables` are values for the variables in URLs of requests."""

    server: Server
    thing: str | None = None
    habits: Habits = "auto"
    variables: Mapping[str, str] = attrs.Factory(dict[str, str])

    @classmethod
    def at(cls, url: str, options: RemoteOptions, variables: Sequence[str] | None = None) -> RemoteAgent:
        """Return the agent that a command names. Blocks on the disk. Raises ConfigError."""
        return cls(
            server=options.server.at(url),
            thing=options.thing,
            habits=options.habits,
            variables=dict(map(_variable, variables or ())),
        )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigError("must be NAME=VALUE", "--variable")
    return name, value


@attrs.define(eq=False)
class RemoteSession:
    """The connection of a command to a remote agent: the agent, the output, and how the command ends."""

    answers: AnswerPrinter
    thing: ConsumedThing = attrs.field(init=False)
    interrupt: Interrupt = attrs.Factory(Interrupt)
    failure: Exception | None = None

    def about(self, kind: Literal["property", "action", "event"], name: str) -> Any:
        """Return an affordance from the description, or None if there is no description.

        Raises ConfigError if the description has no usable affordance of that name; the error suggests the
        nearest name.
        """
        description = self.thing.description
        if description is None:
            return None
        known: Mapping[str, Any] = getattr(description, _MEMBERS[kind]) or {}
        if name in known:
            return known[name]
        if why := description.why_unusable(_MEMBERS[kind], name):
            raise ConfigError(f"the {kind} {name!r} cannot be used: {why}")
        error = NotFound(kind, name, where=description.title or self.thing.id, known=known)
        there = "" if error.nearest else f"; there is {', '.join(known)}" if known else "; there is none"
        raise ConfigError(f"{error}{there}")

    def streams(self, action: str) -> Streams | None:
        """Return the streams that the description declares for an action, or None if there are none."""
        description = self.thing.description
        return None if description is None else description.streams_of(action)

    async def fail(self, members: Mapping[str, Any], error: LmosActorsError) -> int:
        """Report that a request was answered with an error, or not at all. Returns the exit code.

        Raises ConfigError for a mistake on this side.
        """
        if isinstance(error, ConfigError):
            raise ConfigError(in_shell(str(error)))
        if isinstance(error, LocalProtocolError):
            raise ConfigError(str(error)) from None
        await self.answers.print(OutputLine({**members, "error": error_members(error)}, None, aside=True))
        self.answers.wrong(explained(error, ONE_THING))
        return code_of(error)


_MEMBERS: Final = {"property": "properties", "action": "actions", "event": "events"}

Work: TypeAlias = "Callable[[RemoteSession], Awaitable[int]]"


def run_session(url: str, options: RemoteOptions, work: Work, variables: Sequence[str] | None = None) -> int:
    """Reach an agent, do the work with it, and return the exit code. Raises ConfigError, OSError."""
    target, answers = RemoteAgent.at(url, options, variables), options.answers()
    check_place(url)

    async def reached(session: RemoteSession) -> int:
        return await _reached(target, session, work, options.within)

    return run_work(reached, answers, options.within)


def run_work(work: Work, answers: AnswerPrinter, within: float | None) -> int:
    """Do work that connects to agents itself, within a time limit, and return the exit code.

    See `run_session`.
    """
    return run_loop(partial(_run_session, work, answers, within))


def check_place(place: str) -> None:
    """Raise ConfigError for a place that is neither a URL nor a file."""
    if "://" in place:
        endpoint_of(place)
        return
    if Path(place).is_file():
        return
    if place.endswith((".json", ".jsonld", ".yaml", ".yml", ".toml")):
        raise ConfigError("there is no such file", place)
    host = place.partition("/")[0].rpartition(":")[0] or place.partition("/")[0]
    near = f', did you mean "http://{place}"?' if "." in host or host == "localhost" else ""
    raise ConfigError(f'"{place}" is no URL, such as http://127.0.0.1:8080/agents/weather, and no file{near}')


async def _run_session(work: Work, answers: AnswerPrinter, within: float | None) -> int:
    session = RemoteSession(answers)
    code: int | None = None
    async with trio.open_nursery() as nursery:
        working = trio.CancelScope()
        await nursery.start(session.interrupt.watch, partial(working.cancel, "interrupted"))
        with working, trio.move_on_after(math.inf if within is None else within):
            code = await _kept(session, work(session))
        nursery.cancel_scope.cancel()
    answers.clear_progress()
    if session.interrupt.number is not None:
        return code_of_signal(session.interrupt.number)
    if session.failure is not None:
        raise session.failure
    if code is None:
        answers.wrong(f"time limit: {within:g}s have passed")
        return TIME_LIMIT
    return code


async def _reached(target: RemoteAgent, session: RemoteSession, work: Work, within: float | None) -> int:
    ends = math.inf if within is None else trio.current_time() + within
    try:
        async with open_thing(target) as thing:
            left = ends - trio.current_time()
            # the agent gets the limit too, with a margin, so that this side ends the run and reports it
            session.thing = thing if left == math.inf else thing.within(left + GRACE)
            return await _kept(session, work(session))
    except LmosActorsError as error:
        return await _kept(session, session.fail({}, error))


async def _kept(session: RemoteSession, done: Awaitable[int]) -> int:
    """Await the end of the work; store a ConfigError or OSError, which nurseries would wrap in groups."""
    try:
        return await done
    except (ConfigError, OSError) as error:
        session.failure = error
        return USAGE


@asynccontextmanager
async def open_thing(target: RemoteAgent) -> AsyncGenerator[ConsumedThing]:
    """Open a connection to a remote agent. Raises ConfigError, TransportError."""
    connection, server = ConnectionOptions(close_seconds=GRACE), target.server
    async with open_node(
        connection=connection, credentials=server.credentials, client_tls=server.tls
    ) as node:
        thing = await node.consume_thing(
            server.url, thing=target.thing, headers=server.headers, habits=target.habits
        )
        yield thing.with_variables(target.variables) if target.variables else thing


def code_of(error: LmosActorsError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, DeadlineExceeded):
        return TIME_LIMIT
    if isinstance(error, AgentUnavailable | OutcomeUnknown | TransportError):
        return NOT_REACHED
    return FAILED
