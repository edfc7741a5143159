"""A number that is not finite is refused by whoever is given it, and nothing has happened."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import pytest

from lmos_actors import ActionFailed, InvalidInput
from lmos_actors.errors import LocalProtocolError
from lmos_actors.protocol import lmos
from tests.protocol.lmos.consumer_by_hand import AT, THING, Talk
from tests.protocol.lmos.thing_by_hand import Hand

NAN, INF = float("nan"), float("inf")


@attrs.frozen
class Point:
    x: float
    y: float | None = None


ODD = [NAN, -INF, [1, {"a": (None, NAN)}], {"a": [None, INF]}, Point(NAN)]
FINE = [None, 1.5, [None], {"null": "null"}, "null", {"a": [None, 1e308]}, Point(1.0)]


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_a_thing_says_nothing_of_it_and_can_still_answer(habits: str, value: Any) -> None:
    talk = Talk(habits)
    run = talk.ask("invokeAction", 1, action="go")
    with pytest.raises(LocalProtocolError, match=r"this actionStatus cannot be written .* not finite"):
        talk.session.complete(run, value)
    assert talk.heard() == []
    talk.session.fail(run, InvalidInput("no number"))
    assert [message["messageType"] for message in talk.heard()] == ["error"]


@pytest.mark.parametrize("value", FINE, ids=repr)
@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_a_null_is_none_of_it(habits: str, value: Any) -> None:
    talk = Talk(habits)
    talk.session.complete(talk.ask("invokeAction", 1, action="go"), value)
    assert [message["messageType"] for message in talk.heard()] == ["actionStatus"]


def test_events_items_and_answers_are_looked_at() -> None:
    talk = Talk()
    every = talk.session.accept(talk.ask("subscribeAllEvents", 1))
    run, name = talk.ask("invokeAction", 2, action="go"), talk.ask("readProperty", 3, name="unit")
    several = talk.ask("readAllProperties", 4)
    for give in (
        lambda: talk.session.event(every, "rang", [NAN], AT),
        lambda: talk.session.item(run, NAN),
        lambda: talk.session.answer(name, NAN, AT),
        lambda: talk.session.answer(several, {"unit": NAN}, AT),
    ):
        with pytest.raises(LocalProtocolError, match="not finite"):
            give()
    assert talk.heard() == []


def test_progress_is_refused() -> None:
    talk = Talk()
    run = talk.ask("invokeAction", 1, action="go")
    with pytest.raises(LocalProtocolError, match="not finite"):
        talk.session.progress(run, NAN)
    talk.session.complete(run, 1)
    assert [message["status"] for message in talk.heard()] == ["completed"]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_consumer_asks_nothing(value: Any) -> None:
    hand = Hand()
    for ask in (
        lambda: hand.session.write(THING, "unit", value),
        lambda: hand.session.write_many(THING, {"unit": value}),
        lambda: hand.session.invoke(THING, "go", value),
    ):
        with pytest.raises(LocalProtocolError, match="not finite"):
            ask()
    assert hand.session.statistics().open == 0
    assert hand.session.frames() == []


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_the_output_of_a_failure_is_looked_at(habits: str) -> None:
    talk = Talk(habits)
    run = talk.ask("invokeAction", 1, action="go")
    with pytest.raises(LocalProtocolError, match="not finite"):
        talk.session.fail(run, ActionFailed({"degrees": NAN}))
    talk.session.fail(run, ActionFailed("no number"))
    assert len(talk.heard()) == 1


ENVELOPE = {"thing_id": THING, "message_id": "m"}
STATUS = {"action": "go", "status": "in progress"}
PAYLOADS: list[tuple[type[Any], dict[str, Any], str]] = [
    (lmos.InvokeAction, {"action": "go"}, "input"),
    (lmos.WriteProperty, {"name": "unit"}, "data"),
    (lmos.WriteMultipleProperties, {}, "data"),
    (lmos.WriteAllProperties, {}, "data"),
    (lmos.PropertyReading, {"name": "unit"}, "value"),
    (lmos.PropertyReadings, {}, "data"),
    (lmos.ActionStatus, STATUS, "output"),
    (lmos.ActionStatus, STATUS, "progress"),
    (lmos.ActionStatus, {**STATUS, "progress": "half"}, "output"),
    (lmos.ActionStatus, {**STATUS, "output": "half"}, "progress"),
    (lmos.Event, {"event": "rang"}, "data"),
    (lmos.StreamItem, {"stream": 1, "sequence": 0}, "data"),
    (lmos.Error, dict.fromkeys(("type", "title", "status", "detail", "instance"), ""), "about"),
]


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
@pytest.mark.parametrize(
    ("message", "members", "payload"), PAYLOADS, ids=lambda one: getattr(one, "__name__", "")
)
def test_every_payload_of_every_message_is_looked_at(
    habits: Any, message: type[Any], members: dict[str, Any], payload: str
) -> None:
    codec = lmos.Codec(lmos.Dialect.of_consumer(True, habits))
    for value in ({"a": NAN}, {"a": [None, -INF]}):
        with pytest.raises(LocalProtocolError, match="not finite"):
            codec.encode(message(**ENVELOPE, **members, **{payload: value}))
    for fine in ({"a": 1e308}, {"null": None}):
        assert msgspec.json.decode(codec.encode(message(**ENVELOPE, **members, **{payload: fine})))


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_a_checked_input_is_written_as_any_other(habits: Any) -> None:
    for members in ({"text": "null", "size": 1.5, "left": None}, {}):
        written: list[Any] = []
        for made in (lmos.Checked, dict[str, Any]):
            hand = Hand(habits=habits)
            hand.session.invoke(THING, "go", made(members))
            written += [message["input"] for message in hand.sent()]
        assert written == [members, members]


def test_what_the_caller_has_checked_is_not_looked_at() -> None:
    codec = lmos.Codec(lmos.Dialect.of_consumer(True))
    message = lmos.InvokeAction(**ENVELOPE, action="go", input={"size": NAN})
    assert msgspec.json.decode(codec.encode(message, True))["input"] == {"size": None}  # hence the condition
    with pytest.raises(LocalProtocolError, match="not finite"):
        codec.encode(message)
