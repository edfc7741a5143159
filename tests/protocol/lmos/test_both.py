"""The two sessions against each other, through a channel that keeps the order; the host does anything.

Whatever is asked and answered: every request ends once and with its own answer, every value arrives once and
in order at the feed it was meant for, and when all is quiet nothing is left open, on either side.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime
from itertools import count
from typing import Any

import attrs
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lmos_actors.errors import ActionFailed, AgentDied, AgentUnavailable, NotFound
from lmos_actors.protocol import lmos
from lmos_actors.protocol.lmos import ConsumerSession, RunStatus, SessionOptions, ThingSession
from tests.matrix import examples

THINGS = ("urn:a", "b")
NAMES = ("x", "y")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OURS = ("acks", "gaps", "streams", "deadlines", "retries")
FAILURES = (
    ActionFailed({"why": 1}),
    ActionFailed(),
    NotFound("action", "x"),
    AgentDied("broken", started=True),
    AgentUnavailable("a"),
)
MAX_OPEN = 12  # that the test leaves open at a time
KNOWN = 200
things, names = st.sampled_from((THINGS[0], *THINGS)), st.sampled_from((NAMES[0], *NAMES))
picks = st.integers(0, 1000)


@attrs.frozen
class Peers:
    """How the two meet: the handshake, the consumer's habits, its spelling, the extensions it knows of."""

    offered: bool
    habits: Any
    ids: Any
    names: Any
    offers: tuple[str, ...]


MEETINGS = [
    Peers(offered, habits, ids, spelt, offers)
    for offered in (True, False)
    for habits in ("spec", "kotlin-wot")
    for ids in ("ID", "Id")
    for spelt in ("name", "property")
    for offers in ((), OURS)
    if habits == "kotlin-wot"
    or offered
    or (ids, spelt) == ("ID", "name")  # else the thing sees another's habits
    if habits == "kotlin-wot" or spelt == "name"
]


EXACT = [meeting for meeting in MEETINGS if (meeting.habits, meeting.offers) == ("spec", OURS)]
"""Those where every frame must be for something: half of the runs."""

meetings = st.sampled_from(EXACT) | st.sampled_from(MEETINGS)


@attrs.define(eq=False)
class Ask:
    """What the test knows of one request."""

    pending: lmos.ConsumerRequest
    finals: int = 0
    lost: int = 0


@attrs.define(eq=False)
class Heard:
    """What the test knows of one feed."""

    feed: lmos.Feed
    ids: list[str]  # that it has had: a stop of all events makes single ones anew
    values: list[int] = attrs.field(factory=list[int])
    stopped: bool = False
    ends: int = 0


class Sessions(RuleBasedStateMachine):
    """A consumer, a thing, its host, and what lies between."""

    @initialize(meeting=meetings, acks=st.booleans())
    def meet(self, meeting: Peers, acks: bool) -> None:
        ids, self.values = count(1), count(1)
        options = SessionOptions(max_open=KNOWN, max_listening=5)
        self.consumer = ConsumerSession(
            selected=meeting.offered,
            habits=meeting.habits,
            new_id=lambda: f"c{next(ids)}",
            options=options,
            offers=meeting.offers,
        )
        self.teach(meeting)
        self.thing = ThingSession(
            offered=meeting.offered,
            new_id=lambda: f"t{next(ids)}",
            options=SessionOptions(max_open=40, max_listening=12, acks=acks),
            memory=lmos.AnswerMemory(),
        )
        self.exact = meeting in EXACT
        self.there: deque[bytes] = deque()
        self.back: deque[bytes] = deque()
        self.asks: dict[lmos.ConsumerRequest, Ask] = {}
        self.feeds: dict[lmos.Feed, Heard] = {}
        self.todo: list[lmos.IncomingRequest] = []
        self.begun: list[str] = []
        self.listenings: list[lmos.Listening] = []
        self.delivered: dict[str, list[int]] = {}  # by the id that made the feed: what the host gave it

    def teach(self, meeting: Peers) -> None:
        """Let the consumer hear how its peer spells, by a frame that is for nobody."""
        frame = {"messageType": "propertyReading", f"thing{meeting.ids}": "z", f"message{meeting.ids}": "z"}
        frame |= {meeting.names: "z", "value": 0, "timestamp": None}
        assert len(self.consumer.receive(json.dumps(frame))) == 1

    # ---- what the consumer does

    def asked(self, pending: lmos.ConsumerRequest) -> None:
        self.asks.setdefault(pending, Ask(pending))

    @property
    def room(self) -> int:
        return MAX_OPEN - len(self.consumer._requests._open)

    @precondition(lambda self: self.room >= 2)
    @rule(thing=things, name=names, verb=st.sampled_from(["read", "write", "many", "all", "write_many"]))
    def ask_for_a_value(self, thing: str, name: str, verb: str) -> None:
        consumer = self.consumer
        if verb == "read":
            self.asked(consumer.read(thing, name))
        elif verb == "write":
            self.asked(consumer.write(thing, name, next(self.values)))
        elif verb == "all":
            self.asked(consumer.read_all(thing))
        elif verb == "many":
            self.asked(consumer.read_many(thing, NAMES))
        else:
            self.asked(consumer.write_many(thing, dict.fromkeys(NAMES, next(self.values))))

    @precondition(lambda self: self.room)
    @rule(thing=things, action=names, tell=st.booleans(), streams=st.booleans())
    def invoke(self, thing: str, action: str, tell: bool, streams: bool) -> None:
        credit = lmos.Credit(items=2, bytes=2000) if streams and not tell else None
        run = self.consumer.invoke(thing, action, next(self.values), credit=credit)
        self.asked(run)
        if tell:
            self.consumer.forget(run)

    @property
    def runs(self) -> list[lmos.PendingRun]:
        return [pending for pending in self.asks if isinstance(pending, lmos.PendingRun)]

    @precondition(lambda self: self.runs)
    @rule(pick=picks, verb=st.sampled_from(["query", "cancel", "forget"]))
    def go_on_about(self, pick: int, verb: str) -> None:
        runs = [run for run in self.runs if not run.done] or self.runs
        run = runs[-1 - pick % len(runs)]
        if verb == "forget":
            self.consumer.forget(run)
        elif verb == "cancel":
            was_done = run.done
            self.asked(self.consumer.cancel(run, "bored"))
            if run.done and not was_done and not run.forgotten:
                self.asks[run].finals += 1  # told by the object alone
        elif len(run.controls) < 16:
            self.asked(self.consumer.query(run))

    @precondition(lambda self: len(self.consumer._feeds) + len(self.consumer._feeds._stopping) < 5)
    @rule(thing=things, name=names, verb=st.sampled_from(["observe", "subscribe", "subscribe_all"]))
    def listen(self, thing: str, name: str, verb: str) -> None:
        if verb == "subscribe_all" and self.consumer.habits == "kotlin-wot":
            return
        key = {
            "observe": ("property", thing, name),
            "subscribe": ("event", thing, name),
            "subscribe_all": ("events", thing, ""),
        }[verb]
        if key in self.consumer._feeds._by_key:
            return
        arguments = (thing,) if verb == "subscribe_all" else (thing, name)
        feed = getattr(self.consumer, verb)(*arguments)
        self.feeds[feed] = Heard(feed, [feed.message_id])

    @property
    def live(self) -> list[Heard]:
        return [heard for heard in self.feeds.values() if not heard.stopped and not heard.feed.ended]

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def stop(self, pick: int) -> None:
        heard = self.live[pick % len(self.live)]
        heard.stopped = True
        self.consumer.stop(heard.feed)
        for other in self.live:
            if other.feed.message_id not in other.ids:
                other.ids.append(other.feed.message_id)

    # ---- the channel

    @precondition(lambda self: self.there or self.consumer.statistics().waiting)
    @rule(room=st.sampled_from([1, 200, 65_536]), most=st.integers(1, 20))
    def carry_there(self, room: int, most: int) -> None:
        self.there.extend(self.consumer.frames(room))
        for _ in range(min(most, len(self.there))):
            for demand in self.thing.receive(self.there.popleft(), 0.0):
                self.demanded(demand)

    @precondition(lambda self: self.back or self.thing.statistics().waiting)
    @rule(room=st.sampled_from([1, 200, 65_536]), most=st.integers(1, 20))
    def carry_back(self, room: int, most: int) -> None:
        self.back.extend(self.thing.frames(room))
        for _ in range(min(most, len(self.back))):
            for happening in self.consumer.receive(self.back.popleft()):
                self.happened(happening)

    def demanded(self, demand: Any) -> None:
        match demand:
            case lmos.IncomingRequest():
                if isinstance(demand.message, lmos.InvokeAction):
                    assert demand.message.message_id not in self.begun, "a run began twice"
                    self.begun.append(demand.message.message_id)
                self.todo.append(demand)
            case lmos.RequestWithdrawn():
                self.todo.remove(demand.request)
            case lmos.ListeningEnded():
                self.listenings = [one for one in self.listenings if one is not demand.listening]
                self.todo = [
                    asked for asked in self.todo if asked.listening is not demand.listening or asked.open
                ]
            case _:
                assert type(demand).__name__ == "CreditArrived", demand

    def happened(self, one: Any) -> None:
        match one:
            case lmos.RequestAnswered(pending=pending):
                self.asks[pending].finals += 1
                assert not pending.forgotten
                self.right(pending, one.value)
            case lmos.RequestFailed(pending=pending):
                self.asks[pending].finals += 1
                assert not pending.forgotten
            case lmos.ForgottenFailed(pending=pending):
                self.asks[pending].lost += 1
                assert pending.forgotten
            case lmos.RunProgressed(pending=pending) | lmos.RunItem(pending=pending):
                assert not pending.done or self.asks[pending].finals == 1
                if isinstance(one, lmos.RunItem):
                    self.consumer.consumed(pending)
            case lmos.PropertyRead(feed=feed):
                self.took(feed, one.value)
            case lmos.EventOccurred(feed=feed):
                self.took(feed, one.data)
            case lmos.FeedEnded(feed=feed):
                self.feeds[feed].ends += 1
            case lmos.StrayMessage():
                assert not self.exact, one
            case _:
                assert isinstance(one, lmos.FeedEstablished | lmos.ValuesMissed), one

    def right(self, pending: lmos.ConsumerRequest, value: Any) -> None:
        """The answer is the one that the host gave to this very request."""
        message = pending.request
        if isinstance(message, lmos.InvokeAction):
            assert value == message.input
        elif isinstance(message, lmos.QueryAction | lmos.CancelAction):
            assert isinstance(value, RunStatus)
        elif isinstance(message, lmos.WriteProperty | lmos.WriteMultipleProperties):
            assert value == message.data
        elif isinstance(message, lmos.ReadProperty):
            assert value == [message.thing_id, message.name]
        else:
            assert value == {name: [message.thing_id, name] for name in NAMES}

    def took(self, feed: lmos.Feed, value: int) -> None:
        heard = self.feeds[feed]
        assert not heard.stopped
        assert not heard.ends
        assert not heard.values or heard.values[-1] < value, "twice, or out of order"
        heard.values.append(value)

    # ---- what the host does

    @precondition(lambda self: self.todo)
    @rule(pick=picks, how=st.sampled_from(["yes", "yes", "no", "wait", "begin", "progress", "item"]))
    def work(self, pick: int, how: str) -> None:
        asked = self.todo[pick % len(self.todo)]
        if asked.listening is not None or not isinstance(asked.message, lmos.InvokeAction):
            self.answer(asked, how != "no", FAILURES[pick % len(FAILURES)])
        elif how in ("yes", "no"):
            self.answer(asked, how == "yes", FAILURES[pick % len(FAILURES)])
        elif how == "wait":
            self.thing.pending(asked)
        elif how == "begin":
            self.thing.began(asked)
        elif how == "progress":
            self.thing.progress(asked, next(self.values))
        elif self.consumer.habits == "spec" and self.thing.room(asked):
            self.thing.item(asked, next(self.values))

    def answer(self, asked: lmos.IncomingRequest, yes: bool, error: Any) -> None:
        self.todo.remove(asked)
        message = asked.message
        if not yes:
            self.thing.fail(asked, error)
        elif asked.listening is not None:
            self.accept(asked)
        elif isinstance(message, lmos.InvokeAction):
            self.thing.complete(asked, message.input)
        elif isinstance(message, lmos.WriteProperty | lmos.WriteMultipleProperties):
            self.thing.answer(asked, message.data, AT)
        elif isinstance(message, lmos.ReadProperty):
            self.thing.answer(asked, [message.thing_id, message.name], AT)
        else:
            self.thing.answer(asked, {name: [message.thing_id, name] for name in NAMES}, AT)

    def accept(self, asked: lmos.IncomingRequest) -> None:
        value = next(self.values)
        if isinstance(asked.message, lmos.ObserveProperty):
            listening = self.thing.accept(asked, value, AT)
            self.delivered.setdefault(asked.message.message_id, []).append(value)
        else:
            listening = self.thing.accept(asked)
        if not listening.ended:
            self.listenings.append(listening)

    @precondition(lambda self: self.listenings)
    @rule(pick=picks, how=st.sampled_from(["value", "value", "value", "gap", "end"]))
    def publish(self, pick: int, how: str) -> None:
        listening = self.listenings[pick % len(self.listenings)]
        if how == "gap":
            self.thing.gap(listening, "restart", 1)
        elif how == "end":
            self.listenings.remove(listening)
            self.thing.end(listening, NotFound("agent", "a"))
        else:
            value = next(self.values)
            self.delivered.setdefault(listening.message.message_id, []).append(value)
            if listening.kind == "property":
                self.thing.reading(listening, value, AT)
            else:
                self.thing.event(listening, listening.name or "z", value, AT)

    # ---- what holds

    @invariant()
    def every_request_ends_once_at_most(self) -> None:
        if not hasattr(self, "asks"):
            return
        for ask in self.asks.values():
            assert ask.finals <= 1
            assert ask.lost <= 1
            assert ask.pending.done or not ask.finals

    @invariant()
    def tables_are_bounded_and_add_up(self) -> None:
        if not hasattr(self, "asks"):
            return
        c, t = self.consumer.statistics(), self.thing.statistics()
        assert c.asked == c.answered + c.failed + c.forgotten + c.unanswered + c.open
        assert c.open <= MAX_OPEN * 18
        assert c.listening <= 5
        assert c.remembered <= KNOWN + 5 + 256
        assert t.remembered <= 64
        assert t.unreadable == c.unreadable == 0

    def quiet(self) -> None:
        """Carry and answer until there is nothing left to do."""
        for _ in range(1000):
            self.carry_there(65_536, 1000)
            for asked in list(self.todo):
                if asked in self.todo:
                    self.answer(asked, yes=True, error=None)
            self.carry_back(65_536, 1000)
            waiting = self.consumer.statistics().waiting + self.thing.statistics().waiting
            if not (waiting or self.there or self.back or self.todo):
                return
        raise AssertionError("it never becomes quiet")

    def teardown(self) -> None:
        if not hasattr(self, "asks"):
            return
        self.quiet()
        c, t = self.consumer.statistics(), self.thing.statistics()
        assert (c.open, t.open, t.streams) == (0, 0, 0)
        for ask in self.asks.values():
            assert ask.finals or ask.pending.done or ask.pending.forgotten
        for heard in self.feeds.values():
            self.all_arrived(heard)
        left = self.consumer.closed()
        assert left.pendings == ()
        assert list(left.feeds) == [
            heard.feed for heard in self.feeds.values() if not heard.stopped and not heard.ends
        ]
        self.thing.closed()

    def all_arrived(self, heard: Heard) -> None:
        """What the host gave to a feed is what came: all events, of an observed property the newest."""
        if heard.stopped or heard.ends:
            return
        given = [value for one in heard.ids for value in self.delivered.get(one, [])]
        if heard.feed.kind == "property":
            assert heard.values[-1:] == given[-1:]
            assert [value for value in heard.values if value not in given] == []
        else:
            assert heard.values == given


Sessions.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)
TestSessions = Sessions.TestCase
