"""Hints: what a file of them says, and what is said of a wrong one."""

from __future__ import annotations

import json

import msgspec
import pytest

from lmos_actors.conformance.target import Call, Hints, NewValue
from lmos_actors.files import FileError

YAML = """\
inputs:
  ask: {question: "How are you?"}
  ping: null
triggers:
  rang: {action: ring, input: {note: "x"}}
  alarm: {action: raise_alarm}
slow: {action: wait, input: {seconds: 5}}
fails: {action: fail}
changes:
  level: {action: turn, input: 7}
  label: {value: null}
"""
TOML = """\
slow = {action = "wait", input = {seconds = 5}}
fails = {action = "fail"}
[inputs]
ask = {question = "How are you?"}
[triggers.rang]
action = "ring"
"""
PROPERTIES, ACTIONS, EVENTS = (
    ["level", "label"],
    ["ask", "ping", "ring", "raise_alarm", "wait", "fail", "turn"],
    ["rang"],
)


def written(tmp_path, text: str, name: str = "hints.yaml") -> str:
    file = tmp_path / name
    file.write_text(text)
    return str(file)


def test_all_hints_are_read(tmp_path) -> None:
    hints = Hints.load(written(tmp_path, YAML))
    assert hints == Hints(
        inputs={"ask": {"question": "How are you?"}, "ping": None},
        triggers={"rang": Call(action="ring", input={"note": "x"}), "alarm": Call(action="raise_alarm")},
        slow=Call(action="wait", input={"seconds": 5}),
        fails=Call(action="fail"),
        changes={"level": Call(action="turn", input=7), "label": NewValue(value=None)},
    )


def test_toml_and_json(tmp_path) -> None:
    expected = Hints(
        inputs={"ask": {"question": "How are you?"}},
        triggers={"rang": Call(action="ring")},
        slow=Call(action="wait", input={"seconds": 5}),
        fails=Call(action="fail"),
    )
    assert Hints.load(written(tmp_path, TOML, "hints.toml")) == expected
    text = json.dumps({"changes": {"level": {"value": 1}}})
    assert Hints.load(written(tmp_path, text, "hints.json")) == Hints(changes={"level": NewValue(value=1)})


def test_an_input_may_be_null_and_may_be_absent() -> None:
    assert Call(action="a", input=None).members() == {"input": None}
    assert Call(action="a", input=None).has_input
    assert Call(action="a").members() == {}
    assert Call(action="a").input is msgspec.UNSET


def test_no_hints_at_all() -> None:
    assert Hints() == Hints(inputs={}, triggers={}, slow=None, fails=None, changes={})
    Hints().check(properties=(), actions=(), events=())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("trigers: {}", 'hints.yaml:1:1: unknown key "trigers", did you mean "triggers"?'),
        ("slow: wait", "hints.yaml:1:7: expected a mapping"),
        ("slow: {}", 'hints.yaml:1:1: missing key "action"'),
        ("slow: {action: wait, inputs: 1}", 'unknown key "inputs", did you mean "input"?'),
        ("triggers: {rang: {action: [ring]}}", "hints.yaml:1:27: expected text, saw a list"),
        ("changes: {level: 7}", "hints.yaml:1:18: expected a mapping, saw the number 7"),
        ("changes: {level: {value: 7, action: turn}}", "level"),
        ("changes: {level: {valeu: 7}}", 'unknown key "valeu", did you mean "value"?'),
        ("[]", "expected a mapping"),
        ("inputs: {a: 1, a: 2}", "hints.yaml:1:16"),
    ],
)
def test_mistakes_have_their_place(text, told, tmp_path) -> None:
    with pytest.raises(FileError) as caught:
        Hints.load(written(tmp_path, text))
    assert told in str(caught.value)


def test_every_mistake_is_reported(tmp_path) -> None:
    with pytest.raises(FileError) as caught:
        Hints.load(written(tmp_path, "slow: 1\nfails: 2\nodd: 3\n"))
    assert [mistake.line for mistake in caught.value.mistakes] == [1, 2, 3]


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        ("ask", '2:3: no action "ask"'),
        ("ring", '5:18: no action "ring"'),
        ("wait", '7:16: no action "wait"'),
        ("fail", '8:17: no action "fail"'),
        ("turn", '10:19: no action "turn"'),
        ("level", '10:3: no property "level", did you mean "label"?'),
        ("alarm", '6:3: no event "alarm"'),
    ],
)
def test_names_are_held_against_those_of_the_description(lacking, told, tmp_path) -> None:
    names = {"properties": PROPERTIES, "actions": ACTIONS, "events": [*EVENTS, "alarm"]}
    hints = Hints.load(written(tmp_path, YAML))
    hints.check(**names)
    with pytest.raises(FileError) as caught:
        hints.check(**{kind: [name for name in each if name != lacking] for kind, each in names.items()})
    assert f"hints.yaml:{told}" in str(caught.value)
    assert len(caught.value.mistakes) == 1


def test_hints_that_are_in_no_file_are_held_against_the_description_too() -> None:
    with pytest.raises(
        FileError, match=r"hints: triggers.rang.action: no action \"rung\", did you mean \"ring\""
    ):
        Hints(triggers={"rang": Call(action="rung")}).check(properties=[], actions=["ring"], events=["rang"])
