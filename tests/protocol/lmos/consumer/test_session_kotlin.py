"""A consumer's session against a kotlin-wot server: every verb, and nothing that makes it close (D9, D19)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from lmos_actors.errors import ActionCancelled, ActionFailed, NotAllowed
from lmos_actors.protocol import lmos
from lmos_actors.protocol.lmos import RunStatus
from tests.protocol.lmos.kotlin_server import Closed, KotlinServer
from tests.protocol.lmos.thing_by_hand import OURS, THING, Hand, told
from tests.rows import each_row


class Pair:
    """A session and the server, connected."""

    def __init__(self, **made: Any) -> None:
        ids = count(1)
        self.server = KotlinServer(THING)
        self.session = lmos.ConsumerSession(selected=False, new_id=lambda: f"c{next(ids)}", **made)

    def go_on(self) -> list[tuple[Any, ...]]:
        """Carry everything over and back; give what happened."""
        return self.hear([answer for frame in self.session.frames() for answer in self.server.take(frame)])

    def hear(self, frames: list[str]) -> list[tuple[Any, ...]]:
        return [one for frame in frames for one in told(self.session.receive(frame))]


VERBS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "read": (lambda s: s.read(THING, "unit"), [("RequestAnswered", "K")]),
    "read nothing": (lambda s: s.read(THING, "x"), [("RequestFailed", "NotFound")]),
    "read another thing": (lambda s: s.read("urn:other", "unit"), [("RequestFailed", "NotFound")]),
    "read_many": (
        lambda s: s.read_many(THING, ["unit", "limit"]),
        [("RequestAnswered", {"unit": "K", "limit": 3})],
    ),
    "read_many with one wrong": (
        lambda s: s.read_many(THING, ["unit", "x", "y"]),
        [("RequestFailed", "NotFound")],
    ),
    "read_all": (lambda s: s.read_all(THING), [("RequestAnswered", {"unit": "K", "limit": 3})]),
    "write": (lambda s: s.write(THING, "unit", "C"), [("RequestAnswered", "C")]),
    "write null": (lambda s: s.write(THING, "unit", None), [("RequestAnswered", None)]),
    "write what is read-only": (lambda s: s.write(THING, "limit", 1), [("RequestFailed", "NotAllowed")]),
    "write_many": (lambda s: s.write_many(THING, {"unit": "C"}), [("RequestAnswered", {"unit": "C"})]),
    "write_many with one wrong": (
        lambda s: s.write_many(THING, {"limit": 1, "unit": "C"}),
        [("RequestFailed", "NotAllowed")],
    ),
    "invoke": (lambda s: s.invoke(THING, "echo", [1]), [("RequestAnswered", [1])]),
    "invoke without input": (lambda s: s.invoke(THING, "echo"), [("RequestAnswered", None)]),
    "invoke what fails": (lambda s: s.invoke(THING, "fail"), [("RequestFailed", "ActionFailed")]),
    "invoke nothing": (lambda s: s.invoke(THING, "x"), [("RequestFailed", "NotFound")]),
    "observe": (lambda s: s.observe(THING, "unit"), [("FeedEstablished",), ("PropertyRead", "K")]),
    "observe nothing": (lambda s: s.observe(THING, "x"), [("FeedEnded", "NotFound")]),
    "subscribe": (lambda s: s.subscribe(THING, "rain"), [("FeedEstablished",)]),
    "subscribe to nothing": (lambda s: s.subscribe(THING, "x"), [("FeedEnded", "NotFound")]),
}


@each_row("case", VERBS)
def test_every_verb_is_understood(case: str) -> None:
    ask, wanted = VERBS[case]
    pair = Pair()
    asked = ask(pair.session)
    assert pair.go_on() == wanted
    assert getattr(asked, "done", True)
    statistics = pair.session.statistics()
    assert (statistics.open, statistics.strays, statistics.unreadable) == (0, 0, 0)
    assert statistics.asked == statistics.answered + statistics.failed + statistics.forgotten


@pytest.mark.parametrize("offers", [(), OURS])
def test_nothing_of_ours_is_sent(offers: tuple[str, ...]) -> None:
    pair = Pair(offers=offers)
    credit = lmos.SessionOptions().credit
    pair.session.invoke(THING, "echo", remaining=1, attempt=1, credit=credit, binary=True)
    pair.session.observe(THING, "unit")
    pair.session.subscribe(THING, "rain")
    sent = [json.loads(frame) for frame in pair.session.frames()]
    common = {"messageType", "thingId", "messageId", "correlationId"}
    assert [message.keys() - common for message in sent] == [{"action", "input"}, {"property"}, {"event"}]
    assert sent[2]["messageType"] == "subscribeevent"
    with pytest.raises(NotAllowed):
        pair.session.invoke(THING, "echo", streams={"voice": "audio/pcm"})


def test_an_observation_goes_on_without_correlation() -> None:
    pair = Pair()
    feed = pair.session.observe(THING, "unit")
    pair.go_on()
    assert pair.hear(pair.server.change("unit", "C")) == [("PropertyRead", "C")]
    pair.session.write(THING, "unit", "F")
    assert pair.go_on() == [("PropertyRead", "F"), ("RequestAnswered", "F")]
    pair.session.stop(feed)
    assert not feed.ended
    assert pair.go_on() == [("FeedEnded", None)]
    assert feed.ended
    assert pair.server.observed == []


def test_what_an_earlier_observation_left_on_its_way_is_not_of_the_next() -> None:
    pair = Pair()
    feed = pair.session.observe(THING, "unit")
    pair.go_on()
    on_its_way = pair.server.change("unit", "C")
    pair.session.stop(feed)
    pair.session.observe(THING, "unit")
    assert pair.hear(on_its_way) == [("StrayMessage",)]
    assert pair.go_on() == [("FeedEnded", None), ("FeedEstablished",), ("PropertyRead", "C")]


def test_a_read_is_not_answered_by_what_is_observed() -> None:
    pair = Pair()
    pair.session.read(THING, "unit")
    pair.server.observed.append("unit")
    assert pair.hear(pair.server.change("unit", "C")) == [("StrayMessage",)]
    assert pair.go_on() == [("RequestAnswered", "C")]


def test_a_subscription_goes_on_until_it_is_stopped() -> None:
    pair = Pair()
    feed = pair.session.subscribe(THING, "rain")
    assert not feed.established
    pair.go_on()
    assert pair.hear(pair.server.happen("rain", {"mm": 3})) == [("EventOccurred", "rain", {"mm": 3})]
    pair.session.stop(feed)
    assert pair.go_on() == [("FeedEnded", None)]
    assert pair.hear(pair.server.happen("rain", 1)) == []


def test_an_event_before_its_acknowledgement_is_not_lost() -> None:
    pair = Pair()
    pair.session.subscribe(THING, "rain")
    [frame] = pair.session.frames()
    acknowledged = pair.server.take(frame)
    assert pair.hear(pair.server.happen("rain", 1)) == [("FeedEstablished",), ("EventOccurred", "rain", 1)]
    assert pair.hear(acknowledged) == []


def test_a_stop_of_what_the_server_has_not_is_a_success() -> None:
    pair = Pair()
    feed = pair.session.subscribe(THING, "rain")
    pair.go_on()
    pair.server.subscribed.clear()
    pair.session.stop(feed)
    assert pair.go_on() == [("FeedEnded", None)]
    assert feed.error is None


def test_times_are_numbers_of_seconds() -> None:
    pair = Pair()
    pair.session.observe(THING, "unit")
    [frame] = pair.session.frames()
    [answer] = pair.server.take(frame)
    _, read = pair.session.receive(answer)
    assert isinstance(read, lmos.PropertyRead)
    assert read.at == datetime(2025, 1, 20, 19, 0, 0, 520_000, tzinfo=UTC)


def test_queries_and_cancels_stay_here() -> None:
    pair = Pair()
    run = pair.session.invoke(THING, "echo")
    frames = pair.session.frames()
    query = pair.session.query(run)
    assert (query.done, query.value) == (True, RunStatus("pending"))
    cancel = pair.session.cancel(run, "bored")
    assert (cancel.done, cancel.value) == (True, RunStatus("failed", cancelled=True, reason="bored"))
    assert isinstance(run.error, ActionCancelled)
    assert pair.go_on() == []
    assert pair.hear(pair.server.take(frames[0])) == []
    assert pair.session.statistics().late == 1
    statistics = pair.session.statistics()
    assert (statistics.remembered, statistics.open, statistics.failed) == (0, 0, 1)


def test_a_run_that_is_given_up_may_fail_unheard() -> None:
    pair = Pair()
    run = pair.session.invoke(THING, "fail")
    [frame] = pair.session.frames()
    pair.session.cancel(run)
    assert pair.hear(pair.server.take(frame)) == []


def test_a_tell_that_fails_is_lost() -> None:
    pair = Pair()
    pair.session.forget(pair.session.invoke(THING, "echo"))
    told_to_fail = pair.session.invoke(THING, "fail")
    pair.session.forget(told_to_fail)
    assert pair.go_on() == [("ForgottenFailed", "ActionFailed")]
    assert isinstance(told_to_fail.error, ActionFailed)


def test_there_is_no_subscription_to_all_events() -> None:
    pair = Pair()
    with pytest.raises(NotAllowed):
        pair.session.subscribe_all(THING)
    assert pair.session.frames() == []


def test_the_server_closes_at_what_it_cannot_read() -> None:
    """The fake is as strict as what it stands for: what a spec session sends makes it close."""
    for ask in (lambda s: s.read(THING, "unit"), lambda s: s.subscribe(THING, "rain")):
        hand = Hand()
        ask(hand.session)
        [frame] = hand.session.frames()
        with pytest.raises(Closed):
            KotlinServer(THING).take(bytes(frame))
