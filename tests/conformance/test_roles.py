"""What cases try things out with: for the scripted thing, and for things that have less."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors.conformance.inputs import fits
from lmos_actors.conformance.scripted import described
from lmos_actors.conformance.target import (
    Call,
    Hints,
    NewValue,
    NotOffered,
    NotRun,
    Roles,
    Target,
    Thing,
    readable_part,
)

SECONDS = {"type": "object", "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": 60}}}


def roles(data: dict[str, Any] | None = None, **options: Any) -> Roles:
    data = {"title": "none", **data} if data is not None else described("ws://thing:8080")
    thing = Thing(id="urn:a", text="", data=data, description=None, where="file.json")
    target = Target(given="file.json", thing=thing, readable_part=readable_part(thing, None))
    return Roles(target=target, **options)


SCRIPTED = roles()
NOTHING = roles({})
FREE = roles(allow_unsafe=True)


# --- the scripted thing has something of each


def test_each_role_finds_its_property() -> None:
    assert SCRIPTED.readable_property() == "level"
    assert SCRIPTED.readable_property(lambda name: name.startswith("v")) == "version"
    assert SCRIPTED.writable_property() == "level"
    assert SCRIPTED.read_only_property() == "version"
    assert SCRIPTED.write_only_property() == "secret"
    assert SCRIPTED.observable_property() == "level"


def test_calls_fit_their_schemas() -> None:
    calls = SCRIPTED.safe_calls()
    assert [call.action for call in calls] == ["echo", "add", "ring", "raise_alarm", "wait"]
    for call in calls:
        schema = SCRIPTED.target.actions[call.action].input
        assert (schema is not None) == call.has_input
        assert schema is None or fits(schema, call.input) is None
    assert calls[-1].input == {"seconds": 0}


def test_calls_by_what_they_take_and_give() -> None:
    assert SCRIPTED.safe_call() == SCRIPTED.safe_calls()[0] == SCRIPTED.call("echo")
    assert SCRIPTED.safe_call(input=False).action == "raise_alarm"
    assert SCRIPTED.safe_call(input=True, output=False).action == "ring"
    assert SCRIPTED.safe_call(input=True, output=True).action == "echo"
    with pytest.raises(NotOffered, match="it describes no action without an input with an output"):
        SCRIPTED.safe_call(input=False, output=True)


def test_special_calls() -> None:
    assert SCRIPTED.slow_call() == Call(action="wait", input={"seconds": 60})
    assert SCRIPTED.failing_call() == Call(action="fail")
    assert SCRIPTED.streamed_call() == Call(action="count", input={"to": 1000})


def test_events_and_what_makes_them_happen() -> None:
    assert SCRIPTED.event() == "rang"
    assert SCRIPTED.triggers("rang")[0].action == "ring"
    assert SCRIPTED.triggers("alarm")[0].action == "raise_alarm"
    assert "reset" not in [call.action for call in SCRIPTED.triggers("alarm")]
    assert sorted(call.action for call in FREE.triggers("alarm")) == sorted(
        ["echo", "add", "ring", "raise_alarm", "wait", "reset"]
    )


def test_what_is_invented_depends_on_the_seed_alone() -> None:
    assert roles(seed="7").safe_calls() == roles(seed="7").safe_calls()
    assert len({str(roles(seed=str(seed)).safe_calls()) for seed in range(9)}) > 5


# --- what changes a property


def test_another_value_is_written_only_if_that_is_allowed() -> None:
    with pytest.raises(NotRun, match="level would be written with another value: --allow-unsafe"):
        SCRIPTED.change_of("level", 20)
    found = FREE.change_of("level", 20)
    assert isinstance(found, NewValue)
    assert found.value != 20
    assert 0 <= found.value <= 100
    assert FREE.changeable_property() == "level"


def test_what_cannot_be_written_needs_a_hint() -> None:
    with pytest.raises(NotRun, match="what changes uptime is not known: name it under changes, --hints"):
        FREE.change_of("uptime", 1.0)
    hinted = roles(hints=Hints(changes={"uptime": Call(action="add", input={"a": 1, "b": 2})}))
    assert hinted.change_of("uptime", 1.0) == Call(action="add", input={"a": 1, "b": 2})
    assert (hinted.changeable_property(), hinted.observable_property()) == ("uptime", "uptime")


def test_a_hint_lets_nothing_be_changed_that_may_not_be() -> None:
    hints = Hints(changes={"level": NewValue(value=7), "label": Call(action="reset")})
    with pytest.raises(NotRun, match="--allow-unsafe"):
        roles(hints=hints).change_of("level", 20)
    with pytest.raises(NotRun, match="reset is not safe: --allow-unsafe lets it be invoked"):
        roles(hints=hints).change_of("label", "new")
    assert roles(hints=hints, allow_unsafe=True).change_of("level", 20) == NewValue(value=7)
    with pytest.raises(NotRun, match="--allow-unsafe"):
        SCRIPTED.changeable_property()


def test_a_property_that_has_one_value_alone() -> None:
    one = roles({"properties": {"a": {"const": 7, "observable": True}}}, allow_unsafe=True)
    with pytest.raises(NotRun, match="no other value for a was found: name it under changes, --hints"):
        one.change_of("a", 7)


def test_a_property_that_a_hint_names_only_needs_to_be_one_that_can_be_observed() -> None:
    fixed = {"properties": {"a": {"readOnly": True, "observable": True}}}
    with pytest.raises(NotRun, match="what changes a is not known"):
        roles(fixed, allow_unsafe=True).changeable_property()


# --- what takes a while


def timed(name: str, member: str, **members: Any) -> dict[str, Any]:
    number = {"type": "object", "properties": {member: {"type": "integer", "minimum": 1, "maximum": 9}}}
    return {name: {"safe": True, "input": number, **members}}


@pytest.mark.parametrize(("name", "member"), [("Sleep", "n"), ("run", "delaySeconds"), ("run", "duration")])
def test_runs_take_the_shortest_time_unless_the_case_needs_more(name, member) -> None:
    other = {"chat": {"safe": True, "synchronous": False}}
    found = roles({"actions": {**other, **timed(name, member)}})
    assert found.slow_call() == Call(action=name, input={member: 9})
    assert found.safe_calls() == (Call(action="chat"), Call(action=name, input={member: 1}))
    assert found.triggers("x")[-1] in found.safe_calls()


def test_what_is_synchronous_is_not_slow() -> None:
    found = roles(
        {"actions": {**timed("wait", "n", synchronous=True), **timed("chat", "n", synchronous=False)}}
    )
    assert found.slow_call() == Call(action="chat", input={"n": 9})


# --- hints


def test_hinted_inputs_come_first_and_stand() -> None:
    hinted = roles(hints=Hints(inputs={"ring": {"note": "x"}, "wait": {"seconds": 3}}))
    assert [call.action for call in hinted.safe_calls()][:2] == ["ring", "wait"]
    assert hinted.call("ring") == Call(action="ring", input={"note": "x"})
    assert hinted.slow_call() == Call(action="wait", input={"seconds": 3})


def test_hinted_calls_stand() -> None:
    hints = Hints(
        slow=Call(action="echo"), fails=Call(action="add", input={}), triggers={"rang": Call(action="echo")}
    )
    hinted = roles(hints=hints)
    assert hinted.slow_call() == Call(action="echo")
    assert hinted.failing_call() == Call(action="add", input={})
    assert hinted.triggers("rang") == (Call(action="echo"),)
    assert [call.action for call in hinted.safe_calls()] == ["ring", "raise_alarm", "echo", "wait"]
    assert roles(hints=Hints(triggers={"alarm": Call(action="ring")})).event() == "alarm"


@pytest.mark.parametrize("role", ["slow", "fails"])
def test_a_hint_lets_nothing_be_invoked_that_is_not_safe(role) -> None:
    hints = Hints(**{role: Call(action="reset")}, triggers={"rang": Call(action="reset")})
    ask = {"slow": "slow_call", "fails": "failing_call"}[role]
    with pytest.raises(NotRun, match="reset is not safe"):
        getattr(roles(hints=hints), ask)()
    assert getattr(roles(hints=hints, allow_unsafe=True), ask)() == Call(action="reset")
    assert roles(hints=hints).triggers("rang") == ()
    assert roles(hints=hints, allow_unsafe=True).triggers("rang") == (Call(action="reset"),)


# --- what is not there


@pytest.mark.parametrize(
    "ask",
    [
        Roles.readable_property, Roles.writable_property, Roles.read_only_property, Roles.write_only_property,
        Roles.observable_property, Roles.changeable_property, Roles.safe_call, Roles.safe_calls,
        Roles.slow_call, Roles.failing_call, Roles.streamed_call,
        Roles.event,
    ],
)  # fmt: skip
def test_a_thing_that_has_nothing_offers_nothing(ask) -> None:
    with pytest.raises(NotOffered):
        ask(NOTHING)
    assert NOTHING.triggers("rang") == ()


UNSAFE = {
    "actions": {
        "fail": {"input": SECONDS},
        "count": {"lmosx:streams": {"output": {"contentType": "application/json"}}},
        "wait": {"synchronous": False, "input": SECONDS},
        "do": {"input": SECONDS},
    }
}


@pytest.mark.parametrize(
    "ask",
    [
        Roles.safe_call,
        Roles.safe_calls,
        Roles.slow_call,
        Roles.failing_call,
        Roles.streamed_call,
    ],
)
def test_what_is_not_safe_is_not_run(ask) -> None:
    with pytest.raises(NotRun, match="is not safe: --allow-unsafe lets it be invoked"):
        ask(roles(UNSAFE))
    assert ask(roles(UNSAFE, allow_unsafe=True))


@pytest.mark.parametrize("ask", [Roles.slow_call, Roles.failing_call])
def test_what_no_description_says_needs_a_hint(ask) -> None:
    with pytest.raises(NotRun, match=r"it is not known which action .*--hints"):
        ask(roles({"actions": {"do": {"safe": True}}}))


def test_an_input_that_cannot_be_made_needs_a_hint() -> None:
    strange = {"actions": {"do": {"safe": True, "input": {"type": "string", "pattern": "^(?!x)y$"}}}}
    with pytest.raises(NotRun, match="no input for do could be made: name one under inputs, --hints"):
        roles(strange).safe_call()
    hinted = roles(strange, hints=Hints(inputs={"do": "y"}))
    assert hinted.safe_call() == Call(action="do", input="y")


def test_one_that_takes_a_stream_is_left_out() -> None:
    stream = {"contentType": "audio/pcm"}
    data = {
        "actions": {"talk": {"safe": True, "lmosx:streams": {"input": {"voice": stream}, "output": stream}}}
    }
    for ask in (Roles.safe_call, Roles.streamed_call):
        with pytest.raises(NotOffered):
            ask(roles(data))
