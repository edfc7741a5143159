"""Random mixes of requests, cancels, crashes, breaks: all are answered once, and every account adds up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    MailboxOptions,
    Property,
    SupervisorSpec,
    action,
    event,
    prop,
)
from lmos_actors.actors import slot_of
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, Serving, accounts, serving
from tests.matrix import examples


class Busy(Agent):
    units: Property[int] = prop(default=0)
    said: Event[int] = event()

    @action
    def turn(self, number: int) -> int:
        self.units = number
        self.said.emit(number)
        return number

    @action(concurrency=2)
    async def run(self, number: int) -> int:
        await trio.sleep(number)
        return number

    @action(on_disconnect="finish")
    async def finish(self, number: int) -> int:
        await trio.sleep(number)
        return number

    @action
    async def items(self, number: int) -> AsyncIterator[int]:
        for each in range(number):
            await trio.sleep(1)
            yield each

    @action
    def fail(self) -> None:
        raise ActionFailed("no")

    @action
    def crash(self) -> None:
        raise KeyError("boom")

    @action
    async def crash_later(self, number: int) -> None:
        await trio.sleep(number)
        raise KeyError("boom")


Request: TypeAlias = tuple[str, dict[str, Any]]
NUMBERS = st.integers(0, 4)
RUNS = ("turn", "run", "finish", "items", "crash_later")


def invoke(action: str, number: Any, more: dict[str, Any]) -> Request:
    return "invokeAction", {"action": action, "input": {"number": number}, **more}


def about(kind: str, number: int, action: str) -> Request:
    return kind, {"action": action, "correlationID": f"m{number}"}


MORE: tuple[dict[str, Any], ...] = (
    {},
    {"remaining": 1.5},
    {"credit": {"items": 1, "bytes": 999}},
    {"attempt": 1},
)
WORDS = ("leave", "settle", "sleep", "take", "credit")
REQUESTS: tuple[Request, ...] = (
    ("readProperty", {"name": "units"}),
    ("writeProperty", {"name": "units", "data": 3}),
    ("writeProperty", {"name": "units", "data": "x"}),
    ("readAllProperties", {}),
    ("invokeAction", {"action": "fail"}),
    ("invokeAction", {"action": "crash"}),
    ("invokeAction", {"action": "nothing"}),
    ("observeProperty", {"name": "units", "gaps": True}),
    ("unobserveProperty", {"name": "units"}),
    ("subscribeEvent", {"event": "said", "gaps": True}),
    ("unsubscribeEvent", {"event": "said"}),
    ("subscribeEvent", {"event": "lmosx:exited"}),
    ("subscribeAllEvents", {}),
    ("unsubscribeAllEvents", {}),
)
INVOKES = st.builds(invoke, st.sampled_from(RUNS), NUMBERS | st.just("wrong"), st.sampled_from(MORE))
ABOUT = st.builds(
    about, st.sampled_from(("cancelAction", "queryAction")), st.integers(1, 30), st.sampled_from(RUNS)
)
ASKED = INVOKES | INVOKES | st.sampled_from(REQUESTS) | ABOUT
STEPS = st.lists(st.tuples(st.integers(0, 2), ASKED | st.sampled_from(WORDS)), max_size=40)
POLICIES = st.sampled_from(("wait", "reject", "drop_oldest", "drop_newest"))


ANSWERED = ("invokeAction", "readProperty", "writeProperty", "readAllProperties")


class Consumer:
    """One connection, what it has asked and how often that was answered for good."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.asked: list[str] = []
        self.disturbed: list[str] = []
        self.finals: Counter[str] = Counter()

    def put(self, kind: str, members: dict[str, Any]) -> None:
        message_id = self.line.put(kind, **members)
        if kind in ANSWERED:
            self.asked.append(message_id)
        elif kind in ("cancelAction", "queryAction"):
            self.disturbed.append(members["correlationID"])

    def take(self) -> None:
        for said in self.line.take():
            kind, status = said["messageType"], said.get("status")
            answers = kind in ("actionStatus", "error", "propertyReading", "propertyReadings")
            if answers and status not in ("pending", "in progress"):
                self.finals[said["correlationID"]] += 1


async def play(steps: list[tuple[int, Request | str]], when_full: Any, size: int) -> None:
    mailbox = MailboxOptions(size, when_full)
    tree = SupervisorSpec("root", [ChildSpec("weather", Busy, mailbox=mailbox)], max_restarts=1000)
    async with open_test_node(tree) as node, serving(node) as served:
        consumers = [await enter(served, number) for number in range(3)]
        for who, step in steps:
            await take_step(served, consumers, who, step)
            accounts(node)
        await trio.sleep(500)
        for consumer in consumers:
            consumer.take()
        for consumer in consumers:
            consumer.line.leave()
        await trio.sleep(500)
        await settle()
        accounts(node)
        (slot,) = (slot_of(ref) for ref in node.agents())
        counts = slot.statistics()
        assert (counts.waiting, counts.running) == (0, 0)
        assert served.server.statistics().open == 0
        assert not slot.sinks().by_key
        assert not node.dead_letters


async def enter(served: Serving, number: int) -> Consumer:
    peer = str(number) * 32
    return Consumer(await served.line(headers=((b"lmos-peer", peer.encode()),)))


async def take_step(served: Serving, consumers: list[Consumer], who: int, step: Request | str) -> None:
    consumer = consumers[who]
    if step == "leave":
        consumer.line.leave()
        await settle()
        consumers[who] = await enter(served, who)
    elif step == "settle":
        await settle()
    elif step == "sleep":
        await trio.sleep(1)
    elif step == "take":
        consumer.take()
    elif step == "credit":
        for message_id in consumer.asked:
            consumer.line.put("streamCredit", correlationID=message_id, items=3, bytes=9999)
    elif not isinstance(step, str):
        consumer.put(*step)


@settings(max_examples=examples(60))
@given(steps=STEPS, when_full=POLICIES, size=st.integers(1, 4))
def test_every_account_adds_up(steps: list[tuple[int, Request | str]], when_full: Any, size: int) -> None:
    trio.run(play, steps, when_full, size, clock=VirtualClock())


@settings(max_examples=examples(40))
@given(steps=st.lists(ASKED, max_size=30), pauses=st.lists(st.booleans(), max_size=30))
def test_every_request_is_answered_once(steps: list[Request], pauses: list[bool]) -> None:
    async def main() -> None:
        tree = SupervisorSpec("root", [ChildSpec("weather", Busy)], max_restarts=1000)
        async with open_test_node(tree) as node, serving(node) as served:
            consumer = Consumer(await served.line())
            for number, (kind, members) in enumerate(steps):
                consumer.put(kind, {name: value for name, value in members.items() if name != "credit"})
                if pauses[number : number + 1] == [True]:
                    await trio.sleep(0.5)
            await trio.sleep(500)
            consumer.take()
            for asked in consumer.asked:
                finals = consumer.finals[asked]
                assert finals == 1 or (finals > 1 and asked in consumer.disturbed), asked

    trio.run(main, clock=VirtualClock())


SAID = ASKED.map(
    lambda request: json.dumps(
        {"messageType": request[0], "thingID": "weather", "messageID": "m1", **request[1]}
    )
)
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    (None, True, -1, 1e308, "", "weather", [], {}, {"items": -1, "bytes": "x"}, "\ud800")
)
MEMBERS = st.sampled_from(
    ("messageType", "thingID", "messageID", "correlationID", "action", "input", "remaining", "credit", "name")
)


@st.composite
def spoilt(draw: st.DrawFn) -> str | bytes:
    """A frame as it should be, cut off, with a member of another type, or none at all."""
    how = draw(st.sampled_from(("right", "cut", "changed", "junk", "binary")))
    text: str = draw(SAID)
    if how == "cut":
        return text[: draw(st.integers(0, len(text)))]
    if how == "changed":
        return json.dumps({**json.loads(text), draw(MEMBERS): draw(JUNK)})
    if how == "junk":
        return draw(st.text(max_size=30))
    return draw(st.binary(min_size=12, max_size=20)) if how == "binary" else text


@pytest.mark.slow  # its lines: test_server_connection.py, test_lmos_fuzz.py
@settings(max_examples=examples(100))
@given(frames=st.lists(spoilt(), max_size=20))
def test_nothing_that_a_peer_sends_ends_more_than_its_connection(frames: list[str | bytes]) -> None:
    async def main() -> None:
        tree = SupervisorSpec("root", [ChildSpec("weather", Busy)], max_restarts=1000)
        async with open_test_node(tree) as node, serving(node) as served:
            line, other = await served.line(), await served.line()
            for frame in frames:
                if isinstance(frame, bytes):
                    line.handler.binary(frame)
                else:
                    line.handler.text(frame)
                await trio.sleep(0.1)
                line.raw()
            read = await other.ask("readAllProperties")
            assert read["messageType"] == "propertyReadings"
            line.leave()
            await trio.sleep(100)
            assert served.server.statistics().open == 0
            accounts(node)

    trio.run(main, clock=VirtualClock())
