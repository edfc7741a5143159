"""What words on a command line mean as values."""

from __future__ import annotations

import io
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors import ConfigError
from lmos_actors.cli._inputs import Pairs, Written, input_of, kinds_of, read_json, written_in
from tests.json_texts import READ, REFUSED
from tests.rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
MAYBE_TEXT = {"oneOf": [TEXT, {"type": "null"}]}
CITY = {"type": "object", "properties": {"city": TEXT, "days": NUMBER, "zip": TEXT, "any": {}}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def value(*words: str, schema: dict[str, Any] | None = None) -> Any:
    given = input_of(words, ("--within", "--raw"))
    assert given is not None
    return given.value(schema)


@each_row(
    ("words", "schema", "expected"),
    [
        (['{"city": "Bonn"}'], None, {"city": "Bonn"}),
        (['{"city": "Bonn"}'], CITY, {"city": "Bonn"}),
        (["[1, 2]"], None, [1, 2]),
        (["null"], None, None),
        (["-3.5"], None, -3.5),
        (["12"], NUMBER, 12),
        (['"Bonn"'], TEXT, "Bonn"),
        (["Bonn"], TEXT, "Bonn"),
        (["12"], TEXT, "12"),
        (["null"], TEXT, "null"),
        (["null"], MAYBE_TEXT, None),
        (["12"], MAYBE_TEXT, "12"),
        (["celsius"], {"enum": ["celsius", "kelvin"]}, "celsius"),
        (["12"], {"type": ["string", "number"]}, 12),
        (["1.5"], NUMBER, 1.5),
        (["city=Bonn"], None, {"city": "Bonn"}),
        (["city=Bonn", "days=3"], CITY, {"city": "Bonn", "days": 3}),
        (["city=Bonn", "days=3"], None, {"city": "Bonn", "days": 3}),
        (["zip=01067", "city=7"], CITY, {"zip": "01067", "city": "7"}),
        (["zip=01067", "city=7"], None, {"zip": "01067", "city": 7}),
        (['city="Bonn"'], CITY, {"city": "Bonn"}),
        (["city="], CITY, {"city": ""}),
        (["city=a=b"], CITY, {"city": "a=b"}),
        (["any=[1, 2]"], CITY, {"any": [1, 2]}),
        (["any=Bonn"], CITY, {"any": "Bonn"}),
        (["größe=3"], None, {"größe": 3}),
    ],
    ids=repr,
)
def test_a_value(words: list[str], schema: dict[str, Any] | None, expected: Any) -> None:
    found = value(*words, schema=schema)
    assert (found, type(found)) == (expected, type(expected))


@each_row(
    ("words", "schema", "said"),
    [
        (['{"city": "Bonn"'], None, "INPUT: not JSON, column 16: expecting ',' delimiter"),
        (["{city: 1}"], None, "INPUT: not JSON, column 2: expecting property name enclosed in double quotes"),
        (['{"a": 1}\n}'], None, "INPUT: not JSON, line 2, column 1: extra data"),
        (['{"a": NaN}'], None, "INPUT: not JSON, NaN is no number"),
        (["[" * 100_000], None, "INPUT: not JSON, it is nested too deeply"),
        (["Bonn"], None, "INPUT: not JSON, column 1: expecting value; a text is written '\"Bonn\"'"),
        (["Bonn"], NUMBER, "INPUT: not JSON, column 1: expecting value; it takes integer"),
        (["city=Bonn", "Rome"], None, 'INPUT: "Rome" is not NAME=VALUE; JSON is one word: quote it'),
        (['{"city":', '"Bonn"}'], None, 'INPUT: "{"city":" is not NAME=VALUE; JSON is one word: quote it'),
        (["city=Bonn", "city=Rome"], None, "city: is given twice"),
        (['{"a": 1, "a": 2}'], None, "INPUT: not JSON, an object has the member 'a' twice"),
        (["1e400"], NUMBER, "INPUT: not JSON, Number out of range; it takes integer"),
        (["citty=Bonn"], CITY, 'no parameter "citty", did you mean "city"?'),
        (["x=Bonn"], CITY, 'no parameter "x", there is city, days, zip, any'),
        (["days=some"], CITY, "days: not JSON, column 1: expecting value; it takes integer"),
        (["a=b"], TEXT, "a: the action takes no parameters by name, but string"),
        (["--wihtin"], None, 'no option "--wihtin", did you mean "--within"?'),
        (["-v"], None, 'no option "-v"'),
        (["@nowhere.json"], None, "nowhere.json: cannot be read: No such file or directory"),
        (["@a\0b"], None, "a\0b: cannot be read: embedded null byte"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_is_wrong(words: list[str], schema: dict[str, Any] | None, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        value(*words, schema=schema)


def test_a_word_is_read_as_every_door_reads_it() -> None:
    assert {row: repr(read_json(text)) for row, text in READ.items()} == {
        row: repr(json.loads(text)) for row, text in READ.items()
    }
    for text in REFUSED.values():
        with pytest.raises(ValueError, match=r"."):
            read_json(text)


@pytest.mark.parametrize("words", [['{"city": "Bonn"'], ["[1,"], [" {"]])
def test_certain_mistakes_are_reported_before_connecting(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        input_of(words)


def test_nothing_is_no_input() -> None:
    assert input_of([]) is None


def test_a_file_and_the_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "question.json"
    file.write_text('{"city": "Bonn"}\n', encoding="utf-8-sig")
    assert value(f"@{file}") == {"city": "Bonn"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Bonn\n")))
    assert written_in("-", "VALUE").value(TEXT) == "Bonn"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{'city'}")))
    with pytest.raises(ConfigError, match=r"^standard input: not JSON, column 2"):
        input_of(["-"])
    file.write_bytes(b'"\xff"')
    with pytest.raises(ConfigError, match=r"question\.json: is not UTF-8 at byte 2$"):
        value(f"@{file}")


def test_a_file_of_any_size_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lmos_actors.cli._inputs.MOST_BYTES", 1 << 20)
    (tmp_path / "big").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match=r"has more than 1 MiB$"):
        value(f"@{tmp_path}/big")


@given(JSON)
def test_json_is_what_was_written(data: Any) -> None:
    assert Written("INPUT", json.dumps(data)).value() == data


@given(st.text())
def test_a_text_that_is_no_json_text_is_taken_as_it_is(text: str) -> None:
    if not text.strip().startswith('"'):
        assert Written("INPUT", text).value(TEXT) == text
    assert Written("INPUT", json.dumps(text)).value(TEXT) == text


@given(st.lists(st.text(), max_size=3))
def test_nothing_but_config_errors(words: list[str]) -> None:
    try:
        given = input_of([word for word in words if word != "-"])
        assert given is None or isinstance(given, Written | Pairs)
        if given is not None:
            given.value()
    except ConfigError:
        pass


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        (None, None),
        ({}, None),
        ({"title": "x"}, None),
        ({"oneOf": [TEXT, {}]}, None),
        ({"anyOf": [TEXT, NUMBER]}, {"string", "integer"}),
        ({"const": 3}, {"integer", "number"}),
        ({"enum": ["a", None]}, {"string", "null"}),
    ],
)
def test_which_kinds_a_schema_has(schema: dict[str, Any] | None, kinds: set[str] | None) -> None:
    assert kinds_of(schema) == kinds


@pytest.mark.parametrize("text", ["Infinity", "-Infinity", "NaN", "", "1" * 5000])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|Expecting|digits"):
        read_json(text)
