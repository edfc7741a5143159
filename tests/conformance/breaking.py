"""Servers that are wrong in one way, and their report cards, on virtual time over memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import attrs
import trio
import trio.testing

from lmos_actors.conformance import Call, Card, ConformOptions, Hints, Level, Verdict, conform
from lmos_actors.conformance.scripted import (
    NetworkServer,
    ScriptedConnection,
    ScriptedPages,
    ScriptedServer,
    ScriptedThing,
    WebSocketCodec,
)
from lmos_actors.transport import MemoryNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HINTS = Hints(
    inputs={"count": {"to": 24}, "echo": {"text": "one"}, "add": {"a": 2, "b": 3}},
    triggers={"rang": Call(action="ring", input={"note": "now"}), "alarm": Call(action="raise_alarm")},
    slow=Call(action="wait", input={"seconds": 30}),
    fails=Call(action="fail"),
)
"""What the scripted thing is for. Without hints, what never happens would only be "not run"."""

MORNING = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
"""When virtual time begins, so that a card is the same each time."""

HERE = endpoint_of("ws://kit.example:80/ws")


def right(
    *,
    connection: type[ScriptedConnection] = ScriptedConnection,
    server: type[ScriptedServer] = ScriptedServer,
    pages: type[ScriptedPages] = ScriptedPages,
    serving: type[NetworkServer] = NetworkServer,
    wire: type[WebSocketCodec] = WebSocketCodec,
    thing: type[ScriptedThing] = ScriptedThing,
) -> NetworkServer:
    """Give the scripted server, with some of its parts replaced."""

    class Made(server):  # type: ignore[misc, valid-type]
        connection_class = connection
        thing_class = thing

        def timestamp(self) -> str:
            if server.timestamp is not ScriptedServer.timestamp:
                return super().timestamp()  # type: ignore[no-any-return]
            return (MORNING + timedelta(seconds=self.clock())).isoformat().replace("+00:00", "Z")

    class MadeServing(serving):  # type: ignore[misc, valid-type]
        wire_class = wire if wire is not WebSocketCodec else serving.wire_class

    made = Made(trio.current_time, Random(7))
    return MadeServing(made, pages(made))


@attrs.frozen
class Broken:
    """A server that is wrong in one way. `caught_by`: the case that is meant for it; `also`: fail with it.

    `level`: at which it is wrong, where it would be right at others.
    """

    id: str
    what: str
    caught_by: str
    parts: dict[str, Any]
    also: tuple[str, ...] = ()
    level: Level = Level.SPEC

    def make(self) -> NetworkServer:
        """Give a fresh one. To be called in a run."""
        return right(**self.parts)


def on_virtual_time(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run something where waiting takes no time."""
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def card_of(
    make: Callable[[], NetworkServer] = right,
    *,
    cases: tuple[str, ...] = (),
    level: Level = Level.SPEC,
    allow_unsafe: bool = True,
    hints: Hints = HINTS,
    path: str = "/agents/conformance",
    **options: Any,
) -> Card:
    """Let a server be judged, and give its card."""

    async def main() -> Card:
        network = MemoryNetwork()
        async with trio.open_nursery() as nursery:
            serving = make()
            await nursery.start(serving.run, network, HERE)
            card = await conform(
                network,
                f"http://{HERE.authority}{path}",
                ConformOptions(cases=cases, level=level, allow_unsafe=allow_unsafe, hints=hints, **options),
            )
            nursery.cancel_scope.cancel()
        return card

    card: Card = on_virtual_time(main)
    return card


def ids(card: Card, *verdicts: Verdict) -> set[str]:
    """Give the ids of the cases that came out so."""
    return {result.id for result in card.results if result.verdict in verdicts}


def told(card: Card) -> str:
    """Say in lines what did not pass, for people who read a failing test."""
    return "\n".join(
        f"{result.verdict.value:12} {result.id}: expected {result.expected}; seen {result.seen}"
        for result in card.results
        if result.verdict is not Verdict.PASSED
    )
