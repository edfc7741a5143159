"""`fmt`: one layout, found again when it is formatted once more; comments stay, and so does the meaning."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from lmos_actors.cli import main
from lmos_actors.cli._init import TEMPLATES
from lmos_actors.files import FileError, lay_out_json, lay_out_yaml, parse
from lmos_actors.files._yaml import PythonLoader
from lmos_actors.scenario import scenario_schema
from lmos_actors.scenario.format import orders_of
from lmos_actors.scenario.format._key_order import WORDS
from tests.matrix import examples, some
from tests.rows import each_row
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = [
    *sorted((ROOT / "scenarios").glob("*.yaml")),
    *(ROOT / f"lmos_actors/cli/templates/{name}/scenarios/{name}.yaml.txt" for name in TEMPLATES),
]


LOADERS = [PythonLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


def laid_out(text: str, loader: Any = None) -> str:
    return lay_out_yaml(text, orders_of(parse(text, name="").data), loader)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_files_are_formatted(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert laid_out(text) == text


@pytest.mark.parametrize("file", some(SHIPPED, of=4), ids=lambda file: file.name)
def test_keys_in_any_order_come_into_one(file: Path) -> None:
    """The structs of a file turned around, without its comments, give what it has without them."""
    data = parse(file.read_text(encoding="utf-8"), name="").data
    turned = yaml.safe_dump(_turned(data), sort_keys=False, allow_unicode=True, width=1000)
    straight = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    ours, theirs = (parse(laid_out(text), name="").data for text in (turned, straight))
    assert list(ours) == list(data)
    for part in ("steps", "timeline", "checks"):
        assert [list(each) for each in ours.get(part, [])] == [list(each) for each in theirs.get(part, [])]


def _turned(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _turned(data[key]) for key in reversed(data)}
    return [_turned(each) for each in data] if isinstance(data, list) else data


def test_every_key_has_its_place() -> None:
    keys: set[str] = set()
    todo: list[Any] = [scenario_schema()]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if part.get("additionalProperties") is False:
                keys |= set(part.get("properties", {}))
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    assert sorted(keys - set(WORDS)) == []
    assert len(set(WORDS)) == len(WORDS)


# --- what becomes of what

HEAD = "lmos: scenario/v1\nname: x\n"


@each_row(
    ("before", "after"),
    [
        # order, indentation, quotes
        ("name: x\nlmos: scenario/v1\n", HEAD),
        (HEAD + "steps:\n- do: read\n  id: a\n", HEAD + "steps:\n  - do: read\n    id: a\n"),
        (HEAD + "steps:\n   -   id: a\n       do: read\n", HEAD + "steps:\n  - do: read\n    id: a\n"),
        (HEAD + "summary: 'two words'\n", HEAD + "summary: two words\n"),
        (HEAD + 'summary: "a: b"\n', HEAD + 'summary: "a: b"\n'),
        (HEAD + "summary: 'no'\n", HEAD + "summary: 'no'\n"),
        (HEAD + 'summary: "7"\n', HEAD + 'summary: "7"\n'),
        (HEAD + 'summary: "a #b"\n', HEAD + 'summary: "a #b"\n'),
        (HEAD + 'summary: "# b"\n', HEAD + 'summary: "# b"\n'),
        (HEAD + 'summary: "a\\nb"\n', HEAD + 'summary: "a\\nb"\n'),
        (HEAD + 'summary: ""\n', HEAD + 'summary: ""\n'),
        (HEAD + 'summary: "it is"\n', HEAD + "summary: it is\n"),
        (HEAD + "labels: { a:  'b',c: 'd, e' }\n", HEAD + "labels: {a: b, c: 'd, e'}\n"),
        (HEAD + "labels: {}\nseeds: [ ]\n", HEAD + "labels: {}\nseeds: []\n"),
        (HEAD + "labels: {\n a: b,\n c: d }\n", HEAD + "labels: {a: b, c: d}\n"),
        (HEAD + "summary:\n", HEAD + "summary:\n"),
        ("---\nlmos: scenario/v1\n", "lmos: scenario/v1\n"),
        ("lmos: scenario/v1", "lmos: scenario/v1\n"),
        ("lmos: scenario/v1   \r\nname: x\r\n", HEAD),
        # keys that are names, and open data, stay as they are
        (HEAD + "labels:\n  z: 1\n  a: 2\n", HEAD + "labels:\n  z: 1\n  a: 2\n"),
        (
            HEAD + "steps:\n  - do: invoke\n    input: {name: 1, lmos: 2}\n",
            HEAD + "steps:\n  - do: invoke\n    input: {name: 1, lmos: 2}\n",
        ),
        # blank lines
        (HEAD + "\n\n\nseeds: [1]\n\n\n", HEAD + "\nseeds: [1]\n"),
        ("\n\n" + HEAD, HEAD),
        # comments
        ("# first\n" + HEAD, "# first\n" + HEAD),
        ("# first\n\n# second\nname: x\nlmos: scenario/v1\n", "# first\n\n# second\n" + HEAD),
        (
            "name: x # n\n# of lmos\nlmos: scenario/v1   # l\n",
            "# of lmos\nlmos: scenario/v1   # l\nname: x  # n\n",
        ),
        (
            HEAD + "steps:\n# one\n- id: a\n  # of do\n  do: read # r\n\n  # two\n- do: read\n",
            HEAD + "steps:\n  # one\n  # of do\n  - do: read  # r\n    id: a\n    # two\n  - do: read\n",
        ),
        (HEAD + "labels: {a: b}  # c\n", HEAD + "labels: {a: b}  # c\n"),
        (
            HEAD + "labels: {a: b, # of a\n  # of c\n  c: d} # all\n",
            HEAD + "labels:\n  {\n    a: b,  # of a\n    # of c\n    c: d,\n  }  # all\n",
        ),
        (HEAD + "labels: # here\n    a: 1\n# end\n", HEAD + "labels:  # here\n  a: 1\n# end\n"),
        (
            HEAD + "steps:\n  - # why\n    do: read\n",
            HEAD + "steps:\n  # why\n  - do: read\n",
        ),
        (HEAD + 'summary: "a # b"  # c\n', HEAD + 'summary: "a # b"  # c\n'),
        # texts over several lines
        (
            HEAD + "summary: >-\n      one\n      two\n\n        three\nseeds: [1]\n",
            HEAD + "summary: >-\n  one\n  two\n\n    three\nseeds: [1]\n",
        ),
        (HEAD + "summary: |+\n   one\n\nseeds: [1]\n", HEAD + "summary: |+\n  one\n\nseeds: [1]\n"),
        (HEAD + "summary: | # c\n   # no comment\n", HEAD + "summary: | # c\n  # no comment\n"),
        (HEAD + "summary: |\n   one\n\n\nseeds: [1]\n", HEAD + "summary: |\n  one\n\nseeds: [1]\n"),
        (HEAD + "summary: one\n     two\n", HEAD + "summary: one\n  two\n"),
        (HEAD + "summary: 'one\n\n     two'\n", HEAD + "summary: 'one\n\n  two'\n"),
        (
            HEAD + "steps:\n- do: parallel\n  branches:\n  - - do: read\n    - do: read\n",
            HEAD + "steps:\n  - do: parallel\n    branches:\n      - - do: read\n        - do: read\n",
        ),
    ],
)  # fmt: skip
def test_a_layout(before: str, after: str) -> None:
    for loader in LOADERS:
        assert laid_out(before, loader) == after
        assert laid_out(after, loader) == after


# --- any text

WORD = st.sampled_from(
    ["a", "b c", "no", "1", "1.50", "x: y", "#z", "é", "$(vars.a)", "", "null", "[", "-", "it's"]
)
LEAF = st.one_of(WORD, st.integers(0, 99), st.booleans(), st.none(), st.floats(0, 9, width=16))
DATA = st.recursive(
    LEAF,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORD, inner, max_size=3)),
    max_leaves=12,
)
FILES = st.fixed_dictionaries(
    {"name": WORD},
    optional={
        "lmos": st.just("scenario/v1"),
        "steps": st.lists(DATA, max_size=3),
        "vars": DATA,
        "labels": DATA,
    },
)


@settings(max_examples=examples(80))
@given(FILES, st.sampled_from([True, False, None]), st.integers(2, 5), st.data())
def test_any_text_keeps_its_meaning_and_its_comments(
    data: dict[str, Any], flow: bool | None, indent: int, chance: st.DataObject
) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, indent=indent, sort_keys=False, allow_unicode=True)
    lines, comments = [], 0
    for line in text.splitlines():
        if not _is_within(lines, line) and chance.draw(st.booleans()):
            comments += 1
            lines.append(f"{line[: len(line) - len(line.lstrip())]}# comment {comments}")
        lines.append(line)
    commented = "\n".join(lines) + "\n"
    if parse(text, name="").mistakes or not _says_the_same(commented, parse(text, name="").data):
        return  # a comment inside of a text over several lines is part of it, or breaks it
    made = laid_out(commented)
    assert parse(made, name="").data == parse(text, name="").data
    assert sorted(re.findall(r"# comment \d+", made)) == sorted(f"# comment {n + 1}" for n in range(comments))
    assert laid_out(made) == made


def _says_the_same(text: str, data: Any) -> bool:
    try:
        return bool(parse(text, name="").data == data)
    except FileError:
        return False


def _is_within(lines: list[str], line: str) -> bool:
    return bool(lines) and not line.strip()


@given(FILES)
def test_any_json_keeps_its_meaning(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    made = lay_out_json(text, orders_of(data))
    assert json.loads(made) == data
    assert lay_out_json(made, orders_of(data)) == made


def test_json_is_laid_out() -> None:
    text = '{"name":"x","lmos":"scenario/v1", "seeds":[2.50],"labels":{ },"steps":[{"id":"\\u00e9","do":"read"}]}'  # noqa: E501
    assert lay_out_json(text, orders_of(json.loads(text))) == (
        '{\n  "lmos": "scenario/v1",\n  "name": "x",\n  "labels": {},\n  "seeds": [\n    2.50\n  ],\n'
        '  "steps": [\n    {\n      "do": "read",\n      "id": "\\u00e9"\n    }\n  ]\n}\n'
    )


# --- the command


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["fmt", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.yaml"
    file.write_text("name: x\nlmos: scenario/v1\n")
    file.chmod(0o640)
    assert call("a.yaml", "--check") == 1
    assert capfd.readouterr().err == "a.yaml: is not formatted\n"
    assert call("a.yaml", "--diff") == 1
    assert "+lmos: scenario/v1\n name: x\n-lmos: scenario/v1\n" in capfd.readouterr().out
    assert file.read_text() == "name: x\nlmos: scenario/v1\n"
    assert call("a.yaml") == 0
    assert capfd.readouterr() == ("", "a.yaml: formatted\n")
    assert file.read_text() == HEAD
    assert file.stat().st_mode & 0o777 == 0o640
    assert call("a.yaml", "--check") == call("a.yaml", "--diff") == call("a.yaml") == 0
    assert capfd.readouterr() == ("", "")
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]


def test_what_cannot_be_formatted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("a: [\n")
    (tmp_path / "twice.yaml").write_text("a: 1\na: 2\n")
    (tmp_path / "a.toml").write_text("a = 1\n")
    (tmp_path / "good.yaml").write_text("name:   x\n")
    assert call("bad.yaml", "twice.yaml", "a.toml", "none.yaml", "good.yaml") == 2
    err = capfd.readouterr().err
    assert "bad.yaml:2:1: " in err
    assert 'twice.yaml:2:1: key "a" is given twice' in err
    assert "a.toml: formatting TOML is not available yet" in err
    assert "none.yaml: no such file" in err
    assert (tmp_path / "bad.yaml").read_text() == "a: [\n"
    assert (tmp_path / "good.yaml").read_text() == "name: x\n"


def test_what_would_change_the_meaning_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lmos_actors.files._layout._scalar", lambda value, flow: value.raw.replace("7", "8"))
    file = tmp_path / "a.yaml"
    file.write_text("name:  x\nseeds: [7]\n")
    assert call(str(file)) == 2
    assert "cannot be formatted without changing its meaning" in capfd.readouterr().err
    assert file.read_text() == "name:  x\nseeds: [7]\n"
