"""A consumer's session and what it listens to: confirmation, routing, gaps, ends (D9, D10, D11, W2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmos_actors.errors import AgentUnavailable, LocalProtocolError, MailboxFull
from lmos_actors.protocol import lmos
from lmos_actors.protocol.lmos import Feed, SessionOptions
from tests.protocol.lmos.thing_by_hand import OURS, THING, TIME, Hand
from tests.rows import each_row

# ---- what confirms it


CONFIRMED: dict[str, tuple[tuple[str, ...], str, bool, list[str]]] = {
    "foreign observe": ((), "observe", False, ['observeProperty c1 name="x"']),
    "foreign subscribe": ((), "subscribe", True, ['subscribeEvent c1 event="x"']),
    "foreign subscribe_all": ((), "subscribe_all", True, ["subscribeAllEvents c1"]),
    "our observe": (OURS, "observe", False, ['observeProperty c1 name="x" gaps=true']),
    "our subscribe": (OURS, "subscribe", False, ['subscribeEvent c1 event="x" ack=true gaps=true']),
    "our subscribe_all": (OURS, "subscribe_all", False, ["subscribeAllEvents c1 ack=true gaps=true"]),
    "no gaps": (("acks",), "subscribe", False, ['subscribeEvent c1 event="x" ack=true']),
    "no acks": (("gaps",), "subscribe", True, ['subscribeEvent c1 event="x" gaps=true']),
}


def listen(hand: Hand, verb: str, name: str = "x") -> Feed:
    names = () if verb == "subscribe_all" else (name,)
    feed: Feed = getattr(hand.session, verb)(THING, *names)
    return feed


@pytest.mark.parametrize("case", CONFIRMED)
def test_silence_is_a_yes_where_nothing_confirms(case: str) -> None:
    offers, verb, at_once, wanted = CONFIRMED[case]
    hand = Hand(offers=offers)
    feed = listen(hand, verb)
    assert hand.short() == wanted
    assert feed.established == at_once
    confirmed = hand.say("acknowledgement", "c1", message="x")
    assert confirmed == ([] if at_once else [("FeedEstablished",)])
    assert hand.say("acknowledgement", "c1", message="x") == []
    assert feed.established


@pytest.mark.parametrize("verb", ["observe", "subscribe", "subscribe_all"])
def test_the_first_value_confirms(verb: str) -> None:
    hand = Hand(offers=OURS)
    feed = listen(hand, verb)
    if verb == "observe":
        first, more = hand.reading("c1", "x", 1), hand.reading("c1", "x", 2)
        assert (first, more) == ([("FeedEstablished",), ("PropertyRead", 1)], [("PropertyRead", 2)])
    else:
        first, more = (hand.say("event", "c1", event="x", data=data) for data in (1, 2))
        assert (first, more) == (
            [("FeedEstablished",), ("EventOccurred", "x", 1)],
            [("EventOccurred", "x", 2)],
        )
    assert feed.established


@pytest.mark.parametrize("offers", [(), OURS])
@pytest.mark.parametrize("verb", ["observe", "subscribe", "subscribe_all"])
def test_an_error_is_the_end_at_any_time(verb: str, offers: tuple[str, ...]) -> None:
    hand = Hand(offers=offers)
    feed = listen(hand, verb)
    assert hand.error("c1", "503") == [("FeedEnded", "AgentUnavailable")]
    assert feed.ended
    assert isinstance(feed.error, AgentUnavailable)
    assert hand.error("c1", "503") == []
    assert hand.session.statistics().listening == 0
    again = listen(hand, verb)
    hand.say("acknowledgement", again.message_id, message="x")
    assert hand.error(again.message_id, "404") == [("FeedEnded", "NotFound")]


# ---- where a value goes. Feeds: a property x, b event x, c event y, d all events; then what came

ROUTES: list[tuple[str, str, str | None, str, list[tuple[Any, ...]]]] = [
    ("abcd", "reading", "a", "x", [("a", "x")]),
    ("abcd", "reading", None, "x", [("a", "x")]),
    ("abcd", "reading", None, "y", [("stray",)]),
    ("abcd", "reading", "foreign", "x", [("stray",)]),
    ("abcd", "reading", "a", "y", [("stray",)]),
    ("abcd", "reading", "b", "x", [("stray",)]),
    ("bcd", "reading", None, "x", [("stray",)]),
    ("abcd", "event", "b", "x", [("b", "x")]),
    ("abcd", "event", "d", "x", [("d", "x")]),
    ("abcd", "event", "d", "z", [("d", "z")]),
    ("abcd", "event", None, "x", [("b", "x")]),
    ("abcd", "event", None, "z", [("d", "z")]),
    ("abcd", "event", "foreign", "y", [("c", "y")]),
    ("abcd", "event", "foreign", "z", [("d", "z")]),
    ("abc", "event", "foreign", "z", [("stray",)]),
    ("abc", "event", None, "z", [("stray",)]),
    ("abcd", "event", "b", "y", [("stray",)]),
    ("abcd", "event", "a", "x", [("stray",)]),
]


@each_row(("feeds", "kind", "correlation", "name", "wanted"), ROUTES)
def test_a_value_goes_to_one_feed(
    feeds: str, kind: str, correlation: str | None, name: str, wanted: list[tuple[Any, ...]]
) -> None:
    hand = Hand()
    session = hand.session
    asks = {
        "a": lambda: session.observe(THING, "x"),
        "b": lambda: session.subscribe(THING, "x"),
        "c": lambda: session.subscribe(THING, "y"),
        "d": lambda: session.subscribe_all(THING),
    }
    live = {letter: asks[letter]() for letter in feeds}
    ids = {letter: feed.message_id for letter, feed in live.items()}
    wire = None if correlation is None else ids.get(correlation, correlation)
    raw = {"thingID": THING, "messageID": "t", "timestamp": TIME, "correlationID": wire}
    if kind == "reading":
        raw |= {"messageType": "propertyReading", "name": name, "value": 1}
    else:
        raw |= {"messageType": "event", "event": name, "data": 1}
    came = session.receive(json.dumps(raw))
    letters = {feed.message_id: letter for letter, feed in live.items()}
    found: list[tuple[Any, ...]] = []
    for one in came:
        match one:
            case lmos.PropertyRead(feed=feed):
                found.append((letters[feed.message_id], feed.name))
            case lmos.EventOccurred(feed=feed, event=event):
                found.append((letters[feed.message_id], event))
            case lmos.StrayMessage():
                found.append(("stray",))
            case _:
                assert isinstance(one, lmos.FeedEstablished)
    assert found == wanted


def test_things_are_told_apart() -> None:
    hand = Hand()
    hand.session.observe("urn:other", "x")
    assert hand.reading(None, "x", 1) == [("StrayMessage",)]


def test_gaps_are_passed_on() -> None:
    hand = Hand(offers=OURS)
    listen(hand, "observe")
    assert hand.say("gap", "c1", reason="restart", missed=3) == [("ValuesMissed", "restart", 3)]
    assert hand.say("gap", "c1", reason="restart") == [("ValuesMissed", "restart", None)]
    assert hand.say("gap", reason="restart") == [("StrayMessage",)]


# ---- stopping

STOPPED = {
    "observe": 'unobserveProperty c2 name="x"',
    "subscribe": 'unsubscribeEvent c2 event="x"',
    "subscribe_all": "unsubscribeAllEvents c2",
}


@pytest.mark.parametrize("verb", STOPPED)
def test_a_stop_is_confirmed_where_the_peer_can(verb: str) -> None:
    for offers in ((), OURS):
        hand = Hand(offers=offers)
        feed = listen(hand, verb)
        hand.sent()
        hand.session.stop(feed)
        hand.session.stop(feed)
        assert hand.short() == [STOPPED[verb] + (" ack=true" if offers else "")]
        assert feed.ended == (not offers)
        confirmed = hand.say("acknowledgement", "c2", message="x")
        assert confirmed == ([("FeedEnded", None)] if offers else [])
        assert feed.ended
        assert feed.error is None
        assert hand.session.statistics().listening == 0


@pytest.mark.parametrize("offers", [(), OURS])
def test_an_error_as_the_answer_to_a_stop_is_no_more_than_a_yes(offers: tuple[str, ...]) -> None:
    hand = Hand(offers=offers)
    feed = listen(hand, "subscribe")
    hand.sent()
    hand.session.stop(feed)
    assert hand.error("c2", "500") == ([("FeedEnded", None)] if offers else [])
    assert feed.ended


def test_what_was_on_its_way_when_it_was_stopped_goes_nowhere() -> None:
    hand = Hand()
    observed, subscribed = listen(hand, "observe"), listen(hand, "subscribe")
    hand.sent()
    hand.session.stop(observed)
    hand.session.stop(subscribed)
    listen(hand, "observe")
    listen(hand, "subscribe")
    assert hand.reading("c1", "x", 1) == []
    assert hand.say("event", "c2", event="x", data=1) == []
    assert hand.error("c2") == []
    assert hand.say("gap", "c1", reason="x") == []
    assert hand.session.statistics().late == 4
    assert hand.session.statistics().strays == 0
    assert hand.reading("c5", "x", 2) == [("FeedEstablished",), ("PropertyRead", 2)]


def test_what_was_not_sent_is_taken_back() -> None:
    hand = Hand(offers=OURS)
    feed = listen(hand, "subscribe")
    hand.session.stop(feed)
    assert hand.sent() == []
    assert feed.ended


def test_single_subscriptions_outlive_the_one_to_all() -> None:
    hand = Hand()
    everything, one = listen(hand, "subscribe_all"), listen(hand, "subscribe")
    hand.sent()
    hand.session.stop(everything)
    assert hand.short() == ["unsubscribeAllEvents c3", 'subscribeEvent c4 event="x"']
    assert hand.say("event", "c2", event="x", data="on its way") == [("EventOccurred", "x", "on its way")]
    assert hand.say("event", "c4", event="x", data="again") == [("EventOccurred", "x", "again")]
    assert hand.say("event", "c1", event="y", data="late") == []
    assert not one.ended
    hand.session.stop(one)
    for former in ("c2", "c4"):
        assert hand.say("event", former, event="x", data="late") == []
    assert hand.session.statistics().strays == 0


def test_a_subscription_that_still_waits_goes_out_after_the_end_of_all() -> None:
    hand = Hand()
    everything = listen(hand, "subscribe_all")
    hand.sent()
    listen(hand, "subscribe")
    hand.session.stop(everything)
    assert hand.short() == ["unsubscribeAllEvents c3", 'subscribeEvent c4 event="x"']


# ---- limits


def test_one_feed_of_a_kind_at_a_time() -> None:
    hand = Hand()
    feed = listen(hand, "observe")
    with pytest.raises(LocalProtocolError, match="already"):
        listen(hand, "observe")
    listen(hand, "subscribe")
    hand.session.stop(feed)
    assert listen(hand, "observe") is not feed


def test_so_many_feeds_and_no_more() -> None:
    hand = Hand(options=SessionOptions(max_listening=2))
    listen(hand, "observe", "a")
    listen(hand, "observe", "b")
    with pytest.raises(MailboxFull):
        listen(hand, "observe", "c")


def test_what_is_known_of_former_feeds_is_bounded() -> None:
    hand = Hand()
    for _ in range(600):
        feed = listen(hand, "subscribe")
        hand.sent()
        hand.session.stop(feed)
    statistics = hand.session.statistics()
    assert (statistics.listening, statistics.remembered) == (0, 256)


def test_stops_that_are_not_confirmed_keep_their_room() -> None:
    hand = Hand(offers=OURS, options=SessionOptions(max_listening=2))
    for _ in range(2):
        feed = listen(hand, "subscribe")
        hand.sent()
        hand.session.stop(feed)
    with pytest.raises(MailboxFull):
        listen(hand, "subscribe")
    assert hand.say("acknowledgement", "c2", message="x") == [("FeedEnded", None)]
    listen(hand, "subscribe")


def test_a_stop_that_is_never_confirmed_ends_with_the_connection() -> None:
    hand = Hand(offers=OURS)
    feed = listen(hand, "subscribe")
    hand.sent()
    hand.session.stop(feed)
    assert hand.session.closed().feeds == ()
    assert feed.ended
