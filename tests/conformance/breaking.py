"""Servers that are wrong in one way, and their report cards, on virtual time over memory.

`caught_by` names the case that is meant for a broken server, `also` the few that cannot hold without it.
Every one is run against these and a share of all cases; with `--matrix`, against its chapter and a larger
share; with `--long`, against all cases.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

import attrs
import pytest
import trio
import trio.testing

from lmos_actors.conformance import Call, Card, ConformOptions, Hints, Level, Verdict, all_cases, conform
from lmos_actors.conformance.scripted import (
    NetworkServer,
    ScriptedConnection,
    ScriptedPages,
    ScriptedServer,
    ScriptedThing,
    WebSocketCodec,
)
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.matrix import few_or_all

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

CHAPTER = few_or_all(60, 1)  # of the cases of its own chapter, one in so many
SHARE = few_or_all(600, 30)  # of the cases of other chapters

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


def some_of(broken: Broken) -> tuple[str, ...]:
    """Return the cases that catch a broken server, and a share of all others: which ones goes by its id."""
    group, turn = broken.caught_by.partition(".")[0], crc32(broken.id.encode())
    return tuple(
        case.id
        for number, case in enumerate(all_cases())
        if case.id in (broken.caught_by, *broken.also)
        or (number + turn) % (CHAPTER if case.group == group else SHARE) == 0
    )


def each_server(servers: tuple[Broken, ...]) -> pytest.MarkDecorator:
    """Ask a test about each of these servers: by a share of the cases, and with `--long` by all of them."""
    some = [pytest.param(each, False, id=each.id) for each in servers]
    long = [pytest.param(each, True, id=f"{each.id}-all", marks=pytest.mark.long) for each in servers]
    return pytest.mark.parametrize(("broken", "whole"), [*some, *long])


def check_server(broken: Broken, whole: bool) -> None:
    """Fail unless a broken server is caught by what is meant for it, and by no other case."""
    card = card_of(broken.make, level=broken.level, cases=() if whole else some_of(broken))
    assert ids(card, Verdict.FAILED) == {broken.caught_by, *broken.also}, f"{broken.what}\n{told(card)}"
