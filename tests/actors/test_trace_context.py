"""Traces over the wire: what goes out, what comes in, and that it is one trace in the log."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import Agent, ChildSpec, Event, Ref, action, current_request, event, open_node
from lmos_actors.actors import (
    Carried,
    TraceMembers,
    emitted_trace,
    incoming_mark,
    incoming_trace,
    outgoing_mark,
    outgoing_trace,
    sent_numbers,
    slot_of,
)
from lmos_actors.actors.messages._mailbox import Tell
from lmos_actors.simulation import TraceLog, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lmos_actors.node import Node

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
W3C = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01]")


SEEN: list[Any] = []
"""What all agents have seen, emptied by each test."""


class Asked(Agent):
    """Has sent over a wire, or near, whatever it is told to."""

    asked: Event[int] = event()
    other: Ref[Asked] | None = None

    @action
    def turn(self) -> None:
        SEEN.append(outgoing_trace(slot_of(self.ref).rt))
        SEEN.append(current_request())

    @action
    async def run(self) -> None:
        self.turn()

    @action
    async def relay(self, how: str) -> None:
        assert self.other is not None
        if how == "run":
            await self.other.invoke(Asked.run)
        elif how == "turn":
            await self.other.invoke(Asked.turn)
        elif how == "tell":
            await self.other.tell(Asked.turn)
        else:
            self.other.tell_nowait(Asked.turn)

    @action
    def emit(self) -> None:
        self.asked.emit(1)

    @action
    def listen(self) -> None:
        assert self.other is not None
        self.follow(self.other, Asked.asked, self.on_asked)

    @action
    def later(self) -> None:
        self.after(1, self.turn_of_timer)

    def turn_of_timer(self) -> None:
        self.turn()

    @action
    def to_myself(self) -> None:
        self.send(self.ref, Asked.turn)

    def on_asked(self, _: int) -> None:
        self.turn()


def world(
    body: Callable[[Node, Ref[Asked], Ref[Asked]], Coroutine[Any, Any, None]],
    *,
    log: TraceLog | None = None,
    seed: int = 1,
) -> list[Any]:
    """Give what was seen in a world of two agents, with an instrument if there is a log."""
    SEEN.clear()

    async def main() -> None:
        async with open_node(instrument=log) as node:
            first = await started(node, "first")
            second = await started(node, "second", other=first)
            await body(node, first, second)
            await trio.sleep(2)

    simulate(main, seed=seed)
    return list(SEEN)


async def started(node: Node, name: str, **given: Any) -> Ref[Asked]:
    return await node.start_child(ChildSpec(name, partial(Asked, **given)))


def arrive(ref: Ref[Any], name: str, said: TraceMembers) -> None:
    """Have a request come in over a wire."""
    slot = slot_of(ref)
    envelope = Tell(slot, slot.operation(name), (), None)
    incoming_trace(slot.rt, envelope, said.get("traceparent"), said.get("tracestate"))
    slot.post(envelope)


def told(log: TraceLog, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.lines()]
    return [line for line in found if line.get("kind") == kind]


def trace_id(said: Any) -> str:
    parent: str = said["traceparent"]
    return parent.split("-")[1]


# --- this node's own messages


class Sending(Agent):
    """Has the trace context of a message to the same node made, in a turn or in a run."""

    outgoing: Any

    @action
    def turn(self) -> None:
        SEEN.append(self.outgoing(slot_of(self.ref).rt))

    @action
    async def run(self) -> None:
        self.turn()


def story_of_messages(outgoing: Callable[[Any], TraceMembers], incoming: Callable[..., None]) -> list[str]:
    """Return the log of messages that come twice each: of the user, of a turn, of a run, in another trace."""
    log = TraceLog()

    async def main() -> None:
        SEEN.clear()
        async with open_node(instrument=log) as node:
            sender = await node.start_child(ChildSpec("sender", partial(Sending, outgoing=outgoing)))
            receiver = slot_of(await started(node, "receiver"))
            rt = receiver.rt
            SEEN.append(outgoing(rt))
            await sender.invoke(Sending.turn)
            await sender.invoke(Sending.run)
            arrive(sender, "run", {"traceparent": PARENT, "tracestate": "others=1"})
            await trio.sleep(1)
            assert len(SEEN) == 4
            for said in 2 * SEEN:
                numbers = sent_numbers(rt, said)
                assert numbers is not None
                envelope = Tell(receiver, receiver.operation("emit"), (), None)
                incoming(rt, envelope, said)
                rt.record("network", receiver, sent=list(numbers), came=repr(envelope.trace))
                receiver.post(envelope)
            await trio.sleep(1)

    simulate(main, log=log)
    return log.lines()


def test_a_mark_and_the_text_of_a_trace_are_the_same() -> None:
    def read(rt: Any, envelope: Any, said: TraceMembers) -> None:
        incoming_trace(rt, envelope, said.get("traceparent"), said.get("tracestate"))

    with_text = story_of_messages(outgoing_trace, read)
    texts = [said.get("traceparent") for said in SEEN]
    with_marks = story_of_messages(outgoing_mark, incoming_mark)
    assert with_marks == with_text
    assert [said.get("traceparent") for said in SEEN] == [None, None, None, texts[3]]
    assert sum('"kind":"answered"' in line for line in with_marks) == 3 + 8


def test_a_message_to_this_very_node_is_the_message_that_was_sent() -> None:
    log = TraceLog()

    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        await second.invoke(Asked.run)
        arrive(first, "turn", SEEN[0])

    seen = world(body, log=log)
    sent = told(log, "sent")
    assert [(line["id"], line["trace"], line["from"]) for line in sent] == [(1, 1, "user"), (2, 1, "second")]
    assert [line["id"] for line in told(log, "delivered")] == [1, 2]
    assert seen[3].consumer == "second"
    assert seen[3].trace == "1"
    assert W3C.fullmatch(seen[0]["traceparent"])
    assert seen[0]["tracestate"] == "lmosactors=second"
    assert trace_id(seen[2]) == trace_id(seen[0])


def test_it_arrives_once() -> None:
    log = TraceLog()

    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        await second.invoke(Asked.run)
        arrive(first, "turn", SEEN[0])
        arrive(first, "turn", SEEN[0])

    world(body, log=log)
    assert [(line["id"], line["trace"]) for line in told(log, "sent")] == [(1, 1), (2, 1), (3, 1)]


def test_who_is_outside_begins_a_trace() -> None:
    log = TraceLog()

    async def body(node: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        for _ in range(2):
            arrive(first, "turn", outgoing_trace(slot_of(first).rt))

    world(body, log=log)
    sent = told(log, "sent")
    assert [(line["id"], line["trace"], line["from"]) for line in sent] == [(1, 1, "user"), (2, 2, "user")]


@pytest.mark.parametrize("seed", [1, 2])
def test_ids_follow_from_the_seed(seed: int) -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        await second.invoke(Asked.run)

    first, again = (world(body, log=TraceLog(), seed=seed)[0] for _ in range(2))
    other = world(body, log=TraceLog(), seed=3)[0]
    assert first == again
    assert first["traceparent"] != other["traceparent"]


def test_two_nodes_of_one_world_are_told_apart() -> None:
    SEEN.clear()
    log = TraceLog()

    async def main() -> None:
        async with open_node(instrument=TraceLog()) as one, open_node(instrument=log) as two:
            await (await started(one, "one")).invoke(Asked.run)
            arrive(await started(two, "two"), "turn", SEEN[0])
            await trio.sleep(1)

    simulate(main)
    assert [(line["id"], line["trace"], line["from"]) for line in told(log, "sent")] == [(1, 1, "one")]
    assert trace_id(SEEN[2]) == trace_id(SEEN[0])


# --- what comes of a message


@pytest.mark.parametrize("how", ["later", "to_myself"])
def test_timers_and_messages_to_oneself_stay_in_the_trace(how: str) -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        await second.invoke(Asked.run)  # so that the trace is not the first one
        await first.invoke(getattr(Asked, how))

    seen = world(body, log=TraceLog())
    assert [request.trace for request in seen[1::2]] == ["1", "3"]
    assert trace_id(seen[2]) != trace_id(seen[0])
    assert seen[2]["tracestate"] == "lmosactors=first"


@pytest.mark.parametrize("count", [1, 3])
def test_followed_events_stay_in_their_traces(count: int) -> None:
    log = TraceLog()

    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        await second.invoke(Asked.listen)
        for _number in range(count):
            first.tell_nowait(Asked.emit)

    seen = world(body, log=log)
    assert [request.trace for request in seen[1::2]] == [str(number) for number in range(2, 2 + count)]
    assert [line["trace"] for line in told(log, "event")] == list(range(2, 2 + count))


def test_an_event_over_the_wire_hands_its_trace_on() -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        await second.invoke(Asked.listen)
        slot = slot_of(first)
        with Carried(slot.rt, PARENT):
            slot.sinks().push("!asked", 1)

    seen = world(body, log=TraceLog())
    assert trace_id(seen[0]) == PARENT.split("-")[1]
    assert seen[1].trace == PARENT.split("-")[1]


def test_an_event_says_its_trace() -> None:
    said: list[Any] = []
    found: list[Any] = []

    class Sink:
        def push(self, value: Any) -> None:
            said.append(emitted_trace(found[0].rt))

        def gap(self, reason: str, missed: int | None) -> None: ...

        def close(self) -> None: ...

    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        found.append(slot_of(first))
        found[0].sinks().add("!asked", Sink())
        await second.invoke(Asked.run)
        await first.invoke(Asked.emit)

    seen = world(body, log=TraceLog())
    assert [W3C.fullmatch(one["traceparent"]) is not None for one in said] == [True]
    assert trace_id(said[0]) != trace_id(seen[0])


# --- the traces of others


def test_messages_of_one_trace_of_others_are_in_one_trace_here() -> None:
    log = TraceLog()

    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        for number in (1, 2):
            said = PARENT.replace("3331-", f"333{number}-")
            arrive(
                first, "turn", {"traceparent": said, "tracestate": "congo=t61rcWkgMzE,lmosactors=over there"}
            )

    seen = world(body, log=log)
    sent = told(log, "sent")
    assert [(line["trace"], line["from"]) for line in sent] == [(1, "over there"), (1, "over there")]
    assert {trace_id(said) for said in seen[::2]} == {PARENT.split("-")[1]}
    assert len({said["traceparent"] for said in seen[::2]}) == 2
    assert seen[0]["tracestate"] == "lmosactors=first,congo=t61rcWkgMzE"
    assert seen[1].trace == PARENT.split("-")[1]


@pytest.mark.parametrize("looked_at", [True, False])
@pytest.mark.parametrize("how", ["run", "turn", "tell", "nowait"])
def test_a_trace_is_handed_on_to_child_requests(how: str, looked_at: bool) -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        slot = slot_of(second)
        envelope = Tell(slot, slot.operation("relay"), (how,), None)
        incoming_trace(slot.rt, envelope, PARENT.replace("-01", "-00"), "a=1")
        slot.post(envelope)

    seen = world(body, log=TraceLog() if looked_at else None)
    assert trace_id(seen[0]) == PARENT.split("-")[1]
    assert seen[0]["traceparent"].endswith("-00")
    assert seen[0]["traceparent"].split("-")[2] != PARENT.split("-")[2]
    assert seen[0]["tracestate"] == "lmosactors=first,a=1"
    assert seen[1].trace == PARENT.split("-")[1]


def test_a_node_without_an_instrument_has_no_traces_of_its_own() -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        await second.invoke(Asked.run)
        await first.invoke(Asked.turn)
        arrive(first, "turn", {})

    seen = world(body)
    assert seen[::2] == [{}, {}, {}]
    assert [request.trace for request in seen[1::2]] == [None, None, None]


# --- bad input

BAD = [
    "",
    "00",
    PARENT[:-1],
    PARENT + "-",
    PARENT + "-01",
    PARENT.upper(),
    "ff" + PARENT[2:],
    PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
    PARENT.replace("b7ad6b7169203331", "0" * 16),
    " " + PARENT,
    PARENT + "\n",
    "x" * 10_000,
]


@pytest.mark.parametrize("parent", BAD)
def test_what_is_no_trace_context_is_as_good_as_none(parent: str) -> None:
    log = TraceLog()

    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        arrive(first, "turn", {"traceparent": parent, "tracestate": "a=1"})

    seen = world(body, log=log)
    assert [(line["trace"], line["from"]) for line in told(log, "sent")] == [(1, "user")]
    assert seen[0]["tracestate"] == "lmosactors=first"


def test_a_later_version_is_read_as_far_as_this_one_goes() -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        arrive(first, "turn", {"traceparent": "cc" + PARENT[2:] + "-what-comes"})

    assert trace_id(world(body)[0]) == PARENT.split("-")[1]


@pytest.mark.parametrize("state", ["a", "a=1,,=", "A=1", "a=" + "x" * 300, ",".join(["a=1"] * 33), "a=ü"])
def test_a_state_that_is_none_leaves_the_trace(state: str) -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        arrive(first, "turn", {"traceparent": PARENT, "tracestate": state})

    seen = world(body)
    assert trace_id(seen[0]) == PARENT.split("-")[1]
    assert seen[0]["tracestate"] == "lmosactors=first"


def test_a_state_is_handed_on_up_to_its_bound() -> None:
    members = [f"k{number}={'v' * 30}" for number in range(20)]

    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        arrive(first, "turn", {"traceparent": PARENT, "tracestate": ",".join(members)})

    state = world(body)[0]["tracestate"]
    assert 450 < len(state) <= 512
    assert state.split(",") == ["lmosactors=first", *members][: len(state.split(","))]


@given(parent=st.text(), state=st.text(), looked_at=st.booleans())
def test_no_text_does_any_harm(parent: str, state: str, looked_at: bool) -> None:
    async def body(_: Node, first: Ref[Asked], second: Ref[Asked]) -> None:
        for said in (parent, PARENT):
            arrive(first, "turn", {"traceparent": said, "tracestate": state})

    for said in world(body, log=TraceLog() if looked_at else None)[::2]:
        assert not said or W3C.fullmatch(said["traceparent"])
        assert len(said.get("tracestate", "")) <= 512
