"""Every message at every state of what it is about: an answer or a problem, never an exception."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lmos_actors.errors import ActionCancelled, ActionFailed, NotAllowed, NotFound
from lmos_actors.protocol.lmos import (
    AnswerMemory,
    IncomingRequest,
    Listening,
    SessionOptions,
    State,
    ThingSession,
    message_types,
)
from tests.matrix import examples
from tests.protocol.lmos.consumer_by_hand import AT, THING, TIME, Talk
from tests.protocol.lmos.wire import binary_frame

if TYPE_CHECKING:
    from collections.abc import Callable

# every type of message, about the thing's property, action or event `x`, correlated with `m1`
MESSAGES: dict[str, dict[str, Any]] = {
    "readProperty": {"name": "x"},
    "readAllProperties": {},
    "readMultipleProperties": {"properties": ["x"]},
    "writeProperty": {"name": "x", "data": 1},
    "writeMultipleProperties": {"data": {"x": 1}},
    "writeAllProperties": {"data": {"x": 1}},
    "propertyReading": {"name": "x", "value": 1, "timestamp": TIME},
    "propertyReadings": {"data": {}, "timestamp": TIME},
    "observeProperty": {"name": "x"},
    "unobserveProperty": {"name": "x"},
    "invokeAction": {"action": "x"},
    "queryAction": {"action": "x"},
    "cancelAction": {"action": "x"},
    "actionStatus": {"action": "x", "status": "completed"},
    "subscribeEvent": {"event": "x"},
    "subscribeevent": {"event": "x"},
    "unsubscribeEvent": {"event": "x"},
    "subscribeAllEvents": {},
    "unsubscribeAllEvents": {},
    "event": {"event": "x", "data": 1, "timestamp": TIME},
    "error": {"type": "t", "title": "t", "status": "400", "detail": "d", "instance": "i"},
    "acknowledgement": {"message": "subscribeEvent"},
    "gap": {"reason": "restart"},
    "streamOpen": {"stream": 1},
    "streamItem": {"stream": 1, "sequence": 0, "data": 1},
    "streamEnd": {"stream": 1, "sequence": 0},
    "streamCredit": {"items": 1, "bytes": 1},
    "tellCredit": {"begun": [[1, 2]]},
    "tellWindow": {"messages": 32, "bytes": 32768},
    "nonsense": {},
}

SILENT = ("error", "acknowledgement", "streamItem", "streamEnd", "streamCredit", "tellWindow")
SILENT_BY_SPEC = ("unobserveProperty", "subscribeEvent", "unsubscribeEvent")
SILENT_BY_SPEC += ("subscribeAllEvents", "unsubscribeAllEvents")

STREAMS = {"streams": {"in": {"stream": 1}}, "credit": {"items": 2, "bytes": 1000}}


def nothing(talk: Talk) -> None:
    pass


def reading(talk: Talk) -> None:
    talk.ask("readProperty", 1, name="x")


def waiting(talk: Talk) -> IncomingRequest:
    run: IncomingRequest = talk.ask("invokeAction", 1, action="x", **({} if talk.kotlin else STREAMS))
    return run


def pending(talk: Talk) -> None:
    talk.session.pending(waiting(talk))


def running(talk: Talk) -> None:
    run = waiting(talk)
    talk.session.began(run)
    for stream in (run.streams or {}).values():
        talk.session.ready(stream)


def giving_items(talk: Talk) -> None:
    talk.session.item(waiting(talk), 1)


def completed(talk: Talk) -> None:
    talk.session.complete(waiting(talk), 1)


def failed(talk: Talk) -> None:
    talk.session.fail(waiting(talk), ActionFailed(1))


def cancelled(talk: Talk) -> None:
    waiting(talk)
    talk.say("cancelAction", 2, action="x")


def observing(talk: Talk) -> IncomingRequest:
    asked: IncomingRequest = talk.ask("observeProperty", 1, name="x")
    return asked


def observed(talk: Talk) -> None:
    talk.session.reading(talk.session.accept(observing(talk), 1, AT), 2, AT)


def subscribing(talk: Talk) -> IncomingRequest:
    asked: IncomingRequest = talk.ask("subscribeEvent", 1, event="x")
    return asked


def subscribed(talk: Talk) -> None:
    talk.session.accept(subscribing(talk))


def subscribed_to_all(talk: Talk) -> None:
    talk.session.accept(talk.ask("subscribeAllEvents", 1))


def left(talk: Talk) -> None:
    subscribed(talk)
    talk.say("unsubscribeEvent", 2, event="x")


def full(talk: Talk) -> None:
    for number in range(4):
        talk.ask("readProperty", number, name="x")


STATES: list[Callable[[Talk], object]] = [
    nothing,
    reading,
    waiting,
    pending,
    running,
    giving_items,
    completed,
    failed,
    cancelled,
    observing,
    observed,
    subscribing,
    subscribed,
    subscribed_to_all,
    left,
    full,
]


def meet(session: ThingSession, demand: object) -> None:
    """Do what a demand wants, in the plainest way."""
    if not isinstance(demand, IncomingRequest):
        return
    if demand.listening is not None:
        session.accept(demand, 1, AT)
    elif demand.verb.word == "invoke":
        session.complete(demand, 1)
    else:
        session.answer(demand, {"x": 1}, AT)


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
@pytest.mark.parametrize("before", STATES, ids=lambda state: state.__name__)
def test_every_message_at_every_state_has_an_answer(before: Callable[[Talk], object], habits: str) -> None:
    for kind, members in MESSAGES.items():
        for correlation in (None, "m1", "other"):
            talk = Talk(habits, options=SessionOptions(max_open=4), memory=AnswerMemory())
            before(talk)
            talk.heard()
            demands = talk.say(kind, 9, correlation=correlation, **members)
            for demand in demands:
                meet(talk.session, demand)
            said = talk.short()
            quiet = kind in SILENT or (kind in SILENT_BY_SPEC and talk.session.habits == "spec")
            assert said or quiet, (kind, correlation)
            assert talk.adds_up(), (kind, correlation)


def test_the_table_has_every_type() -> None:
    assert set(message_types()) - set(MESSAGES) == set()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
IDS = st.sampled_from(["m1", "m2", "m3"])
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from("xy"),
        "property": st.sampled_from("xy"),
        "action": st.sampled_from("xy"),
        "event": st.sampled_from("xy"),
        "data": JSON | st.dictionaries(st.text(max_size=2), JSON, max_size=2),
        "value": JSON,
        "input": JSON,
        "properties": st.lists(st.text(max_size=2), max_size=2) | JSON,
        "correlationID": IDS,
        "correlationId": IDS,
        "ack": st.booleans(),
        "gaps": st.booleans(),
        "credit": st.fixed_dictionaries({"items": st.integers(0, 2), "bytes": st.integers(0, 200)}),
        "streams": st.dictionaries(
            st.sampled_from("ab"), st.fixed_dictionaries({"stream": st.integers(0, 9)}), max_size=2
        ),
        "binary": st.booleans(),
        "stream": st.integers(0, 9),
        "sequence": st.integers(0, 2),
        "items": st.integers(0, 3),
        "bytes": st.integers(0, 100),
        "status": st.sampled_from(["completed", "400"]),
        "reason": st.text(max_size=3),
        "timestamp": st.just(TIME),
    },
)
ENVELOPES = st.sampled_from(["ID", "Id"]).flatmap(
    lambda end: st.fixed_dictionaries(
        {f"thing{end}": st.sampled_from([THING, "urn:2"]), f"message{end}": IDS}
    )
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Mostly whole messages, sometimes with strange or missing members."""
    kind = draw(st.sampled_from(sorted(MESSAGES)))
    own = MESSAGES[kind] if draw(st.integers(0, 9)) else {}
    return {"messageType": kind, **draw(ENVELOPES), **own, **draw(MEMBERS)}


class Host(RuleBasedStateMachine):
    """A peer that says anything, over two connections, and a host that does anything that it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[ThingSession, IncomingRequest]] = []
        self.listenings: list[tuple[ThingSession, Listening]] = []
        self.now = 0.0
        self.number = 0

    @initialize(offered=st.booleans(), offers=st.booleans())
    def start(self, offered: bool, offers: bool) -> None:
        self.memory = AnswerMemory(max_answers=2, max_bytes=300, seconds=3)
        known = {} if offers else {"offers": ()}
        options = SessionOptions(max_open=5, max_listening=3, remembered_runs=2, max_bytes=3000, **known)
        self.make = partial(
            ThingSession, offered=offered, new_id=self.new_id, options=options, memory=self.memory
        )
        self.sessions = [self.make(), self.make()]
        self.all = list(self.sessions)

    def new_id(self) -> str:
        self.number += 1
        return f"s{self.number}"

    @rule(which=st.integers(0, 1), message=messages(), passes=st.floats(0, 5))
    def receive(self, which: int, message: dict[str, Any], passes: float) -> None:
        self.now += passes
        for demand in self.sessions[which].receive(json.dumps(message), self.now):
            if isinstance(demand, IncomingRequest):
                assert demand.open
                self.asked.append((self.sessions[which], demand))

    @rule(which=st.integers(0, 1), data=st.binary(max_size=20))
    def receive_binary(self, which: int, data: bytes) -> None:
        if len(data) >= 12:  # what is shorter closes the connection
            self.sessions[which].receive_binary(binary_frame(data[0] or 1, data[1] % 3, data))

    @rule(
        index=st.integers(0, 9),
        act=st.sampled_from(["pending", "began", "progress", "item", "final", "fail"]),
        value=JSON,
    )
    def act(self, index: int, act: str, value: Any) -> None:
        if not self.asked:
            return
        session, asked = self.asked[-1 - index % len(self.asked)]
        if asked.state is State.ANSWERED:
            return
        if act == "fail":
            session.fail(asked, [ActionFailed(value), ActionCancelled("no"), NotAllowed("no")][index % 3])
        elif asked.listening is not None:
            self.listenings.append((session, session.accept(asked, value, AT)))
        elif asked.verb.word != "invoke":
            session.answer(asked, {"x": value}, AT)
        elif act == "final":
            session.complete(asked, value)
        elif act == "progress":
            session.progress(asked, value)
        elif act == "item":
            if session.room(asked):
                session.item(asked, value)
        else:
            getattr(session, act)(asked)

    @rule(index=st.integers(0, 9), act=st.sampled_from(["deliver", "gap", "end"]), value=JSON)
    def deliver(self, index: int, act: str, value: Any) -> None:
        if not self.listenings:
            return
        session, listening = self.listenings[-1 - index % len(self.listenings)]
        if act == "gap":
            session.gap(listening, "restart")
        elif act == "end":
            session.end(listening, NotFound("agent", "x"))
        elif listening.kind == "property":
            session.reading(listening, value, AT)
        else:
            session.event(listening, listening.name or "x", value, AT)  # "": to all events

    @rule(which=st.integers(0, 1), keep=st.booleans())
    def close(self, which: int, keep: bool) -> None:
        for gone in self.sessions[which].closed(keep=lambda _: keep):
            assert isinstance(gone, Listening) or not gone.open
        self.sessions[which] = self.make()  # the peer comes again, and may ask again
        self.all.append(self.sessions[which])

    @rule(which=st.integers(0, 1), room=st.integers(1, 5000))
    def send(self, which: int, room: int) -> None:
        for frame in self.sessions[which].frames(room):
            assert frame

    @invariant()
    def accounts_add_up(self) -> None:
        for session in getattr(self, "all", ()):
            s = session.statistics()
            fates = s.answered + s.refused + s.merged + s.abandoned + s.streamed + s.strays + s.unreadable
            assert s.received == fates + s.open
            assert s.open <= 5
            assert s.listening <= 3
            assert s.remembered <= 2
        assert len(getattr(self, "memory", ())) <= 2


def test_the_host_delivers_the_event_that_was_subscribed_to() -> None:
    host = Host()
    host.start(offered=True, offers=True)
    asks = {"thingId": THING, "messageId": "m1", "messageType": "subscribeEvent", "event": "y"}
    host.receive(0, asks, 0.0)
    host.act(0, "final", None)
    host.deliver(0, "deliver", "rain")
    host.send(0, 5000)
    assert len(host.listenings) == 1


Host.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestHost = Host.TestCase


@given(st.lists(st.binary(max_size=40) | st.text(max_size=40), max_size=5), st.booleans())
def test_any_text_is_answered_or_ignored(texts: list[bytes | str], offered: bool) -> None:
    session = ThingSession(offered=offered, new_id=lambda: "s", options=SessionOptions())
    for text in texts:
        session.receive(text, 0.0)
        session.receive_binary(text if isinstance(text, bytes) else b"")
    session.frames(1 << 30)
    assert session.statistics().open == 0
