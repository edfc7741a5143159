"""Observations and subscriptions at a thing: D9, D10, D11, W2, and traps c, e and f of kotlin-wot."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors.errors import AgentUnavailable, LocalProtocolError, NotFound
from lmos_actors.protocol.lmos import Listening, ListeningEnded, SessionOptions
from tests.protocol.lmos.consumer_by_hand import AT, Talk

HABITS = ["spec", "kotlin-wot"]

# subscribe, unsubscribe, members
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("observeProperty", "unobserveProperty", {"name": "x"}),
    ("subscribeEvent", "unsubscribeEvent", {"event": "x"}),
    ("subscribeAllEvents", "unsubscribeAllEvents", {}),
]
KIND = pytest.mark.parametrize(("kind", "leave", "members"), KINDS)


def listen(talk: Talk, kind: str, number: object = 1, **members: Any) -> Listening:
    value = (0, AT) if kind == "observeProperty" else ()
    return talk.session.accept(talk.ask(kind, number, **members), *value)


def deliver(talk: Talk, listening: Listening, value: object) -> None:
    if listening.kind == "property":
        talk.session.reading(listening, value, AT)
    else:
        talk.session.event(listening, "x", value, AT)


# habits, the member `ack` of the request, the option, the offers: whether there is an acknowledgement (D9)
ACKS: list[tuple[str, dict[str, Any], bool, tuple[str, ...], bool]] = [
    ("spec", {}, False, ("acks",), False),
    ("spec", {"ack": True}, False, ("acks",), True),
    ("spec", {"ack": True}, False, (), False),
    ("spec", {}, True, (), True),
    ("kotlin-wot", {}, False, (), True),
]


@KIND
@pytest.mark.parametrize(("habits", "ack", "option", "offers", "acknowledged"), ACKS)
def test_who_is_acknowledged(
    kind: str,
    leave: str,
    members: dict[str, Any],
    habits: str,
    ack: dict[str, Any],
    option: bool,
    offers: tuple[str, ...],
    acknowledged: bool,
) -> None:
    talk = Talk(habits, options=SessionOptions(acks=option, offers=offers))
    listening = listen(talk, kind, 1, **members, **ack)
    assert listening.active
    first = talk.short()
    if kind == "observeProperty":
        assert [line.split()[:2] for line in first] == [["propertyReading", "m1"]], (
            "the reading is the answer"
        )
    else:
        assert first == [f'acknowledgement m1 message="{kind}"'] * acknowledged
    assert [type(one) for one in talk.say(leave, 2, **members, **ack)] == [ListeningEnded]
    assert talk.short() == [f'acknowledgement m2 message="{leave}"'] * acknowledged
    assert talk.session.statistics().answered == 2
    assert talk.adds_up()


def test_an_acknowledgement_names_the_type_as_it_came() -> None:
    talk = Talk("kotlin-wot")
    for number, kind in enumerate(("subscribeevent", "subscribeEvent", "subscribeevent")):
        listen(talk, kind, number, event="x")
    assert [message["message"] for message in talk.heard()] == [
        "subscribeevent",
        "subscribeEvent",
        "subscribeevent",
    ]


def test_readings_are_correlated_with_the_observation_in_spec_habits() -> None:
    talk = Talk()
    listening = listen(talk, "observeProperty", 1, name="x", correlation="shared")
    talk.session.reading(listening, 1, AT)
    assert talk.short() == [f'propertyReading shared name="x" value={value}' for value in (0, 1)]


def test_later_readings_have_no_correlation_in_kotlin_wot_habits() -> None:
    talk = Talk("kotlin-wot")
    listening = listen(talk, "observeProperty", 1, name="x")
    talk.session.reading(listening, 1, AT)
    first, later = talk.heard()  # trap c: one without any of its members is dropped
    assert {**first, "messageId": "", "correlationId": None, "value": 1} == {**later, "messageId": ""}
    assert (first["correlationId"], later["correlationId"]) == ("m1", None)


@pytest.mark.parametrize("habits", HABITS)
@pytest.mark.parametrize("kind", ["subscribeEvent", "subscribeAllEvents"])
def test_events_are_correlated_with_the_subscription(kind: str, habits: str) -> None:
    talk = Talk(habits)
    listening = listen(talk, kind, 1, **({"event": "x"} if kind == "subscribeEvent" else {}))
    talk.heard()
    deliver(talk, listening, {"a": 1})
    deliver(talk, listening, 2)
    assert talk.short() == ['event m1 event="x" data={"a": 1}', 'event m1 event="x" data=2']


def test_readings_conflate_and_events_do_not() -> None:
    talk = Talk()
    observed, other = (listen(talk, "observeProperty", n, name=n) for n in ("a", "b"))
    subscribed = listen(talk, "subscribeEvent", 3, event="x")
    talk.heard()
    for number in range(3):
        deliver(talk, observed, number)
        deliver(talk, other, number)
        deliver(talk, subscribed, number)
    assert [m.get("value", m.get("data")) for m in talk.heard()] == [2, 2, 0, 1, 2]
    deliver(talk, observed, 3)
    assert [m["value"] for m in talk.heard()] == [3]


def test_the_first_reading_is_never_replaced() -> None:
    talk = Talk()
    deliver(talk, listen(talk, "observeProperty", 1, name="x"), 1)
    assert [m["value"] for m in talk.heard()] == [0, 1]


@KIND
@pytest.mark.parametrize("habits", HABITS)
def test_a_repeat_takes_the_place_and_nothing_comes_twice(
    kind: str, leave: str, members: dict[str, Any], habits: str
) -> None:
    talk = Talk(habits)
    first = listen(talk, kind, 1, **members)
    deliver(talk, first, "waits")
    unlistened, asked = talk.say(kind, 2, **members)  # trap e: this is how kotlin-wot leaves
    assert unlistened.listening is first
    second = talk.session.accept(asked, 0, AT)
    values = [m.get("value", m.get("data")) for m in talk.heard()]
    assert ("waits" in values) == (kind != "observeProperty"), "an old reading is not sent any more"
    assert (first.ended, second.active, talk.session.statistics().listening) == (True, True, 1)
    deliver(talk, first, 1)
    deliver(talk, second, 2)
    later = talk.heard()
    assert [m.get("value", m.get("data")) for m in later] == [2]
    if not (talk.kotlin and kind == "observeProperty"):
        assert later[0]["correlationId" if talk.kotlin else "correlationID"] == "m2"
    assert [one.listening for one in talk.say(leave, 3, **members)] == [second]
    assert talk.adds_up()


@KIND
@pytest.mark.parametrize("habits", HABITS)
def test_to_leave_what_is_not_there_is_a_success(
    kind: str, leave: str, members: dict[str, Any], habits: str
) -> None:
    talk = Talk(habits)
    assert talk.say(leave, 1, **members) == ()
    assert talk.short() == [f'acknowledgement m1 message="{leave}"'] * talk.kotlin
    assert talk.session.statistics().answered == 1


@KIND
def test_to_leave_is_never_refused(kind: str, leave: str, members: dict[str, Any]) -> None:
    talk = Talk(options=SessionOptions(max_open=1))
    listening = listen(talk, kind, 1, **members)
    talk.ask("readProperty", 2, name="x")
    talk.heard()
    assert [one.listening for one in talk.say(leave, 3, **members)] == [listening]
    assert talk.heard() == []


@KIND
def test_who_leaves_hears_no_more_not_even_what_waits(kind: str, leave: str, members: dict[str, Any]) -> None:
    talk = Talk()
    listening = listen(talk, kind, 1, **members)
    talk.heard()
    talk.session.reading(listening, 1, AT) if listening.kind == "property" else None
    talk.say(leave, 2, **members)
    deliver(talk, listening, 2)
    talk.session.gap(listening, "restart")
    talk.session.end(listening, NotFound("agent", "x"))
    assert talk.heard() == []


@KIND
def test_who_leaves_before_the_answer_still_gets_it(kind: str, leave: str, members: dict[str, Any]) -> None:
    talk = Talk("kotlin-wot")
    asked = talk.ask(kind, 1, **members)
    assert [one.listening for one in talk.say(leave, 2, **members)] == [asked.listening]
    listening = talk.session.accept(asked, 0, AT)
    assert (listening.ended, listening.active) == (True, False)
    deliver(talk, listening, 1)
    assert [line.split()[1] for line in talk.short()] == ["m2", "m1"]
    assert talk.session.statistics().listening == 0


def test_to_leave_all_events_is_to_leave_each() -> None:
    talk = Talk()
    one = listen(talk, "subscribeEvent", 1, event="a")
    everything = listen(talk, "subscribeAllEvents", 2)
    observed = listen(talk, "observeProperty", 3, name="a")
    elsewhere = listen(talk, "subscribeEvent", 4, event="a", thing="urn:other")
    assert [left.listening for left in talk.say("unsubscribeAllEvents", 5)] == [one, everything]
    assert [item.ended for item in (one, everything, observed, elsewhere)] == [True, True, False, False]
    assert talk.session.statistics().listening == 2


def test_listenings_of_different_names_kinds_and_things_are_apart() -> None:
    talk = Talk()
    made = [
        listen(talk, "observeProperty", 1, name="a"),
        listen(talk, "observeProperty", 2, name="b"),
        listen(talk, "subscribeEvent", 3, event="a"),
        listen(talk, "subscribeAllEvents", 4),
        listen(talk, "subscribeEvent", 5, event="a", thing="urn:other"),
    ]
    assert not any(one.ended for one in made)
    assert talk.session.statistics().listening == 5


@pytest.mark.parametrize("missed", [None, 3])
def test_a_gap_is_told_to_who_asked_for_it(missed: int | None) -> None:
    talk = Talk()
    listening = listen(talk, "subscribeEvent", 1, event="x", gaps=True)
    talk.session.gap(listening, "restart", missed)
    assert talk.short() == ['gap m1 reason="restart"' + ("" if missed is None else f" missed={missed}")]


@pytest.mark.parametrize(
    ("habits", "gaps", "offers"),
    [("spec", False, ("gaps",)), ("spec", True, ()), ("kotlin-wot", True, ("gaps",))],
)
def test_no_gap_is_told_to_others(habits: str, gaps: bool, offers: tuple[str, ...]) -> None:
    talk = Talk(habits, options=SessionOptions(offers=offers))
    listening = listen(talk, "subscribeEvent", 1, event="x", gaps=gaps)
    talk.heard()
    talk.session.gap(listening, "restart", 1)
    assert talk.heard() == []


def test_a_reading_does_not_overtake_the_gap_before_it() -> None:
    talk = Talk()
    listening = listen(talk, "observeProperty", 1, name="x", gaps=True)
    talk.heard()
    for number in (1, 2):
        deliver(talk, listening, number)
    talk.session.gap(listening, "restart")
    for number in (3, 4):
        deliver(talk, listening, number)
    assert [m.get("value", "gap") for m in talk.heard()] == [2, "gap", 4]


@KIND
@pytest.mark.parametrize("habits", HABITS)
def test_the_thing_may_end_it(kind: str, leave: str, members: dict[str, Any], habits: str) -> None:
    talk = Talk(habits)
    listening = listen(talk, kind, 1, **members)
    talk.heard()
    talk.session.end(listening, AgentUnavailable("x", "gone for good"))
    assert talk.short() == ['error m1 type="agent-unavailable" status="503"']
    assert listening.ended
    deliver(talk, listening, 1)
    talk.session.end(listening, AgentUnavailable("x"))
    assert talk.heard() == []
    assert talk.say(leave, 2, **members) == ()
    assert talk.session.statistics().listening == 0


def test_nothing_is_delivered_before_it_is_accepted() -> None:
    talk = Talk()
    observed = talk.ask("observeProperty", 1, name="x").listening
    subscribed = talk.ask("subscribeEvent", 2, event="x").listening
    for act in (
        lambda: talk.session.reading(observed, 1, AT),
        lambda: talk.session.event(subscribed, "x", 1, AT),
        lambda: talk.session.gap(observed, "x"),
        lambda: talk.session.end(observed, NotFound("agent", "x")),
    ):
        with pytest.raises(LocalProtocolError, match="not been accepted"):
            act()


def test_what_is_delivered_goes_where_it_is_listened_to() -> None:
    one, other = Talk(), Talk()
    listening = listen(one, "subscribeEvent", 1, event="x")
    with pytest.raises(LocalProtocolError, match="another connection"):
        other.session.event(listening, "x", 1, AT)


@KIND
def test_readings_are_for_observations_and_events_for_subscriptions(
    kind: str, leave: str, members: dict[str, Any]
) -> None:
    talk = Talk()
    listening = listen(talk, kind, 1, **members)
    talk.heard()
    deliver_otherwise = talk.session.event if listening.kind == "property" else talk.session.reading
    wrong: list[Any] = [listening, *(["x"] if listening.kind == "property" else []), 1, AT]
    with pytest.raises(LocalProtocolError, match="are for"):
        deliver_otherwise(*wrong)
    assert talk.heard() == []


def test_a_subscription_to_one_event_gets_no_other() -> None:
    talk = Talk()
    one = listen(talk, "subscribeEvent", 1, event="rang")
    every = listen(talk, "subscribeAllEvents", 2)
    with pytest.raises(LocalProtocolError, match="event 'hung' goes to a subscription to 'rang'"):
        talk.session.event(one, "hung", 1, AT)
    talk.session.event(every, "hung", 1, AT)
    assert [message["event"] for message in talk.heard()] == ["hung"]


def test_what_a_host_holds_is_shown_in_short_without_the_input() -> None:
    talk = Talk()
    run = talk.ask("invokeAction", 1, action="go", input="1234", streams={"voice": {"stream": 1}})
    listening = talk.session.accept(talk.ask("subscribeEvent", 2, event="rang"))
    talk.session.ready(run.streams["voice"])
    (arrived,) = talk.say("streamItem", 3, correlation="m1", stream=1, sequence=0, data="hello")
    assert [repr(each) for each in (arrived.run, arrived.stream, listening)] == [
        "<invoke 'go' of urn:thing waiting>",
        "<input 'voice' of m1, stream 1 open>",
        "<event 'rang' of urn:thing active>",
    ]
    assert repr(run.out) == "<answer of m1, stream open>"
    talk.session.complete(run)
    talk.session.end(listening, NotFound("event", "rang"))
    assert [repr(run), repr(listening), repr(run.streams["voice"])] == [
        "<invoke 'go' of urn:thing answered>",
        "<event 'rang' of urn:thing ended>",
        "<input 'voice' of m1, stream 1 closed>",
    ]
