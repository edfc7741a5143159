"""What a client sees that knows the LMOS text and nothing else: every frame of ours is by its letter."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.wire_conformance import letter
from tests.wire_conformance.agents import Small, Subject
from tests.wire_conformance.hand import Hand, Scene, play

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Strict:
    """A client of the text: tables' spelling, UUIDs, URIs, no acknowledgements, nothing of ours."""

    def __init__(self, hand: Hand, scene: Scene) -> None:
        self.hand = hand
        self.bench = scene.bench
        self.thing = f"{scene.node.urls[0].replace('ws:', 'http:')}/agents/{scene.name}"
        self._ids = count(1)

    async def say(self, kind: str, *, of: str | None = None, **members: Any) -> str:
        """Send a message; give its id."""
        message_id = f"00000000-0000-4000-8000-{next(self._ids):012}"
        raw = {"messageType": kind, "thingID": self.thing, "messageID": message_id} | members
        if of is not None:
            raw["correlationID"] = of
        assert letter.faults(raw, letter.REQUESTS) == []
        await self.hand.raw(raw)
        return message_id

    async def heard(self) -> list[Any]:
        """Take what has come: each by the letter, in short, correlations as the number of the request."""
        await trio.sleep(1)
        frames, self.hand.frames = self.hand.frames, []
        return [self._short(frame) for frame in frames]

    def _short(self, frame: dict[str, Any] | bytes) -> str:
        assert isinstance(frame, dict), frame
        assert letter.faults(frame, letter.ANSWERS) == [], frame
        assert frame["thingID"] == self.thing
        of = int(frame["correlationID"][-12:])
        known = ("name", "value", "data", "action", "status", "output", "event", "title")
        return " ".join(
            [f"{of} {frame['messageType']}", *(repr(frame[word]) for word in known if word in frame)]
        )

    async def ask(self, kind: str, **members: Any) -> list[Any]:
        """Send a message and take what comes."""
        await self.say(kind, **members)
        return await self.heard()


Run = "Callable[[Strict], Awaitable[list[Any]]]"
ROWS: dict[str, tuple[type[Subject], Any, list[Any]]] = {}


def row(title: str, expected: list[Any], kind: type[Subject] = Subject) -> Callable[[Any], None]:
    """Put a row into the table."""

    def add(run: Callable[[Strict], Awaitable[list[Any]]]) -> None:
        assert title not in ROWS
        ROWS[title] = (kind, run, expected)

    return add


@row("read", ["1 propertyReading 'units' 'celsius'", "2 propertyReading 'last' None"])
async def _(s: Strict) -> list[Any]:
    return [*await s.ask("readProperty", name="units"), *await s.ask("readProperty", name="last")]


@row("write", ["1 propertyReading 'units' 'kelvin'", "2 propertyReadings {'units': 'x', 'limit': 4}"])
async def _(s: Strict) -> list[Any]:
    one = await s.ask("writeProperty", name="units", data="kelvin")
    return [*one, *await s.ask("writeMultipleProperties", data={"units": "x", "limit": 4})]


@row(
    "refusals",
    [
        "1 error '404' 'Property Not Found'",
        "2 error '405' 'Operation Not Allowed'",
        "3 error '400' 'Invalid Input'",
        "4 error '404' 'Action Not Found'",
        "5 error '400' 'Invalid Input'",
        "6 error '404' 'Event Not Found'",
        "7 error '404' 'Run of action Not Found'",
    ],
)
async def _(s: Strict) -> list[Any]:
    await s.say("readProperty", name="colour")
    await s.say("writeProperty", name="serial", data="x")
    await s.say("writeProperty", name="limit", data=101)
    await s.say("invokeAction", action="fresh")
    await s.say("invokeAction", action="echo", input={})
    await s.say("subscribeEvent", event="moved")
    await s.say("cancelAction", action="hold")
    return sorted(await s.heard())  # what is refused at the door overtakes what waits for the agent


@row("invoke", ["1 actionStatus 'echo' 'completed' 'a'", "2 actionStatus 'unlock' 'completed'"])
async def _(s: Strict) -> list[Any]:
    return [
        *await s.ask("invokeAction", action="echo", input={"text": "a"}),
        *await s.ask("invokeAction", action="unlock"),
    ]


@row("an action that fails", ["1 actionStatus 'fail' 'failed' {'why': 'no'}", "2 error '500' 'Agent Died'"])
async def _(s: Strict) -> list[Any]:
    failed = await s.ask("invokeAction", action="fail", input={"why": "no"})
    return [*failed, *await s.ask("invokeAction", action="bug")]


@row(
    "a run with progress",
    [
        "1 actionStatus 'work' 'in progress'",
        "1 actionStatus 'work' 'in progress'",
        "1 actionStatus 'work' 'completed' 'worked'",
    ],
)
async def _(s: Strict) -> list[Any]:
    await s.say("invokeAction", action="work", input={"steps": 2})
    seen: list[Any] = []
    for gate in ("step 1", "step 2", "end"):
        await s.bench.open(gate)
        seen += await s.heard()
    return seen


@row(
    "a run that waits",
    [
        "2 actionStatus 'line' 'pending'",
        "1 actionStatus 'line' 'completed' 'through a'",
        "2 actionStatus 'line' 'in progress'",
    ],
)
async def _(s: Strict) -> list[Any]:
    for gate in "ab":
        await s.say("invokeAction", action="line", input={"gate": gate})
    await s.bench.standing(waiting=1, running=1)
    await s.bench.open("a")
    seen = await s.heard()
    await s.bench.open("b")
    return seen


@row(
    "a query and a cancel",
    [
        "1 actionStatus 'hold' 'in progress'",
        "1 actionStatus 'hold' 'failed' None",
        "1 actionStatus 'hold' 'failed' None",
        "1 actionStatus 'hold' 'failed' None",
    ],
)
async def _(s: Strict) -> list[Any]:
    run = await s.say("invokeAction", action="hold", input={"gate": "a"})
    seen = await s.ask("queryAction", action="hold", of=run)
    seen += await s.ask("cancelAction", action="hold", of=run, reason="enough")
    return (
        seen
        + await s.ask("cancelAction", action="hold", of=run)
        + await s.ask("queryAction", action="hold", of=run)
    )


@row(
    "items",
    [f"1 actionStatus 'count' 'in progress' {n}" for n in (1, 2, 3)] + ["1 actionStatus 'count' 'completed'"],
)
async def _(s: Strict) -> list[Any]:
    return await s.ask("invokeAction", action="count", input={"up_to": 3})


@row("no room", ["3 error '503' 'Mailbox Full'"], Small)
async def _(s: Strict) -> list[Any]:
    for _ in range(3):
        await s.say("invokeAction", action="line", input={"gate": "a"})
    seen = [line for line in await s.heard() if "'pending'" not in line]
    await s.bench.open("a")
    return seen


@row(
    "an observation",
    [
        "1 propertyReading 'units' 'celsius'",
        "1 propertyReading 'units' 'a'",
        "2 propertyReading 'units' 'a'",
        "4 propertyReading 'units' 'b'",
    ],
)
async def _(s: Strict) -> list[Any]:
    seen = await s.ask("observeProperty", name="units")
    seen += await s.ask("writeProperty", name="units", data="a")
    seen += await s.ask("unobserveProperty", name="units")  # nothing answers that
    return seen + await s.ask("writeProperty", name="units", data="b")


@row("an observation over a crash", ["1 propertyReading 'units' 'celsius'"] * 2)
async def _(s: Strict) -> list[Any]:
    seen = await s.ask("observeProperty", name="units")
    await s.bench.crash()
    return seen + await s.heard()


@row(
    "a subscription",
    ["2 event 'a' 'asked'", "3 actionStatus 'tell_all' 'completed'", "5 actionStatus 'tell_all' 'completed'"],
)
async def _(s: Strict) -> list[Any]:
    await s.say("readProperty", name="serial")
    await s.say("subscribeEvent", event="asked")
    await s.heard()
    seen = await s.ask("invokeAction", action="tell_all", input={"words": ["a"]})
    await s.say("unsubscribeEvent", event="asked")
    return seen + await s.ask("invokeAction", action="tell_all", input={"words": ["b"]})


@row(
    "a subscription with a correlation of its own",
    ["77 event 'a' 'asked'", "2 actionStatus 'tell_all' 'completed'"],
)
async def _(s: Strict) -> list[Any]:
    await s.say("subscribeEvent", event="asked", of="00000000-0000-4000-8000-000000000077")
    return await s.ask("invokeAction", action="tell_all", input={"words": ["a"]})


@row(
    "all events beside one",
    [
        "1 event 'a' 'asked'",
        "2 event 'a' 'asked'",
        "3 actionStatus 'tell_all' 'completed'",
        "5 actionStatus 'tell_all' 'completed'",
    ],
)
async def _(s: Strict) -> list[Any]:
    await s.say("subscribeEvent", event="asked")
    await s.say("subscribeAllEvents")
    seen = await s.ask("invokeAction", action="tell_all", input={"words": ["a"]})
    await s.say("unsubscribeAllEvents")
    return seen + await s.ask("invokeAction", action="tell_all", input={"words": ["b"]})


@row("a subscription over a crash", ["1 event 'a' 'asked'", "2 actionStatus 'tell_all' 'completed'"])
async def _(s: Strict) -> list[Any]:
    await s.say("subscribeEvent", event="asked")
    await s.bench.crash()
    seen = await s.heard()
    return seen + await s.ask("invokeAction", action="tell_all", input={"words": ["a"]})


@pytest.mark.parametrize("title", ROWS)
def test_every_answer_is_by_the_letter(title: str) -> None:
    kind, run, expected = ROWS[title]

    async def story(scene: Scene) -> None:
        strict = Strict(await scene.hand(), scene)
        assert await run(strict) == expected
        assert strict.hand.closed == "open"

    play(story, kind)
