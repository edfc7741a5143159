"""Reading YAML, JSON and TOML: the same data, the places of it, and clear refusals."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError, parse, read
from lmos_actors.files._source import Source
from lmos_actors.files._yaml import PythonLoader, read_yaml
from tests.rows import each_row

LOADERS: list[Any] = [PythonLoader] + ([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])

# text, then line:column and a part of the message of the first mistake
BAD_YAML = [
    ("", "1:1", "the file is empty"),
    ("# nothing\n", "1:1", "the file is empty"),
    ("a: 1\nb: 2\na: 3\n", "3:1", 'key "a" is given twice, first on line 1'),
    ("a:\n  x: {k: 1, k: 2}\n", "2:13", 'key "k" is given twice'),
    ('1: a\n"1": b\n', "2:1", 'key "1" is given twice'),
    ("a:\n\tb: 1\n", "2:1", "a tab cannot indent"),
    ("a: @x\n", "1:4", "in quotes"),
    ("a: b: c\n", "1:5", "a second ':'"),
    ("a: &x 1\n", "1:4", "anchors (&x)"),
    ("a: 1\nb: *x\n", "2:4", "aliases (*x)"),
    ("a: 1\n<<: {b: 2}\n", "2:1", "merge keys"),
    ("a: !!python/object/apply:os.system [ls]\n", "1:4", "tags"),
    ("a: !x 1\n", "1:4", "tags"),
    ("--- 1\n--- 2\n", "2:1", "one document"),
    ("%YAML 1.1\n---\na: 1\n", "1:1", "YAML directives"),
    ("a: .inf\n", "1:4", "not a finite number"),
    ("a: 1e999\n", "1:4", "not a finite number"),
    ("a: " + "1" * 1001 + "\n", "1:4", "more than 1000 digits"),
    ("? [a]\n: 1\n", "1:3", "a key is text"),
    ("a: [1, 2\nb: 3\n", "2:2", ""),
    ("[" * 70, "1:66", "nested more than 64 deep"),
    ("- " * 100_000, "1:131", "nested more than 64 deep"),
    ("a: \x07\n", "1:4", "is not allowed"),
    ("a: 'x\n", "1:4", "this quote is not closed"),
    ("a\nb: 1\n", "1:1", '":" is missing after "a"'),
    ("a:\n  - b 1\n    c: 2\n", "2:5", '":" is missing after "b 1"'),
    ("a: 1\n  b: 2\n", "2:3", "the line is indented too far"),
]

BAD_JSON = [
    ("", "1:1", "the file is empty"),
    (" \n", "1:1", "the file is empty"),
    ('{"a": 1,\n "a": 2}', "2:2", 'key "a" is given twice, first on line 1'),
    ('{"a": NaN}', "1:7", "'NaN' is not a JSON value"),
    ('{"a": 1e999}', "1:7", "not a finite number"),
    ('{"a": 01}', "1:7", "'01' is not a JSON value"),
    ('{"a": 1,}', "1:9", "a comma before"),
    ("[1 2]", "1:4", "expected ','"),
    ('{"a" 1}', "1:6", 'expected ":"'),
    ("{a: 1}", "1:2", "double quotes"),
    ('{"a": "\\ud83d"}', "1:7", "surrogate"),
    ('{"a": "x', "1:7", "not closed"),
    ('{"a": "\t"}', "1:7", "not closed"),
    ("[1] 2", "1:5", "more text after the end"),
    ("[" * 100_000, "1:66", "nested more than 64 deep"),
    ('{"a":', "1:6", "the file ends"),
    ("[" + "1" * 1001 + "]", "1:2", "more than 1000 digits"),
    ("\x00", "1:1", "is not a JSON value"),
    ('["\x07"]', "1:2", "has a control character"),
]

BAD_TOML = [
    ("# nothing\n", "1:1", "the file is empty"),
    ("a = 1\na = 2\n", "2:6", "Cannot overwrite"),
    ("a = \n", "1:5", "Invalid value"),
    ("a = 2026-01-02\n", "1:5", "dates and times"),
    ("[x]\nb = [1, inf]\n", "2:9", "not a finite number"),
    ("a = " + "1" * 5000, "1:5", "too many digits"),
    ("a = " + "1" * 1001, "1:5", "more than 1000 digits"),
    ("a = " + "[" * 100_000, "1:1", "nested more than 64 deep"),
    ("a." * 100_000 + "b = 1", "1:1", "nested more than 64 deep"),
    ("a = " + "[" * 70 + "]" * 70, "1:1", "nested more than 64 deep"),
]


def first(text: str, kind: str) -> tuple[str, str]:
    try:
        document = parse(text, name="f", format=kind)  # type: ignore[arg-type]
        mistake = document.mistakes[0]
    except FileError as error:
        mistake = error.mistakes[0]
    return f"{mistake.line}:{mistake.column}", mistake.message


@pytest.mark.parametrize(("text", "place", "part"), BAD_YAML)
@pytest.mark.parametrize("loader", LOADERS)
def test_bad_yaml(text: str, place: str, part: str, loader: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.files._yaml.LOADER", loader)
    where, message = first(text, "yaml")
    assert part in message
    # The two parsers agree on places but for the end of an unclosed list.
    assert where == place or text.startswith("a: [1")


INDENTED = [
    ("a:\n  - b: 1\n   c: 2\n", "3:4", "does not continue the list that begins on line 2"),
    ("a:\n  - b: 1\n  -c: 2\n", "3:3", 'a space is missing after "-"'),
    ("a:\n  b: 1\n  - c\n", "3:3", "does not continue the mapping that begins on line 2"),
    ("a: {b: ${c.d}}\n", "1:8", "write $(NAME), with round brackets"),
    ("a: {b: 1 c: 2}\n", "1:11", "a comma is missing before"),
    ("a: {b: 1\nc: 2\n", "2:2", '"," or "}" is missing before this; the bracket was opened on line 1'),
    ('a: "b" c\n', "1:8", "the value ends before this"),
    ("a:\n  b: 1\n\tc: 2\n", "3:1", "a tab cannot indent"),
]


@pytest.mark.parametrize(("text", "place", "part"), INDENTED)
@pytest.mark.parametrize("loader", LOADERS)
def test_bad_indentation(
    text: str, place: str, part: str, loader: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.files._yaml.LOADER", loader)
    where, message = first(text, "yaml")
    assert (where, part in message) == (place, True), message


@each_row(("text", "place", "part"), BAD_JSON)
def test_bad_json(text: str, place: str, part: str) -> None:
    where, message = first(text, "json")
    assert (where, part in message) == (place, True), message


@pytest.mark.parametrize(("text", "place", "part"), BAD_TOML)
def test_bad_toml(text: str, place: str, part: str) -> None:
    where, message = first(text, "toml")
    assert (where, part in message) == (place, True), message


@pytest.mark.parametrize(
    ("written", "value", "warns"),
    [
        ("no", "no", True),
        ("On", "On", True),
        ("y", "y", True),
        ("12:30", "12:30", True),
        ("2026-01-02", "2026-01-02", True),
        ("2026-01-02T10:00:00Z", "2026-01-02T10:00:00Z", True),
        ("1_000", "1_000", True),
        ("0b11", "0b11", True),
        ("010", 10, True),
        ("000", 0, True),
        ("'no'", "no", False),
        ("true", True, False),
        ("~", None, False),
        ("0x1F", 31, False),
        ("0o17", 15, False),
        ("1e3", 1000.0, False),
        ("-7", -7, False),
        (".5", 0.5, False),
        ("north", "north", False),
        ("10:99", "10:99", False),
        ("", None, False),
    ],
)
@pytest.mark.parametrize("loader", LOADERS)
def test_yaml_scalars(written: str, value: object, warns: bool, loader: object) -> None:
    tree = read_yaml(Source("f", f"k: {written}\n"), loader)
    assert tree.data == {"k": value}
    assert type(tree.data["k"]) is type(value)
    assert [note.line for note in tree.notes] == ([1] if warns else [])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{a: Is it right?}", {"a": "Is it right?"}),
        ("[what? no, a?b, a??, '?']", ["what? no", "a?b", "a??", "?"]),
        ("{a?: b?, c: d ? e}", {"a?": "b?", "c": "d ? e"}),
        ("{? a : b?, c: d}", {"a": "b?", "c": "d"}),
        ("who? me", "who? me"),
    ],
)
@pytest.mark.parametrize("loader", LOADERS)
def test_a_question_mark_belongs_to_plain_text(written: str, value: object, loader: object) -> None:
    assert read_yaml(Source("f", f"k: {written}\n"), loader).data == {"k": value}


def test_a_number_read_otherwise_is_named() -> None:
    notes = parse("a: 010\nb: 000\nc: -07\n", name="f").notes
    assert [note.message.split(";")[0] for note in notes] == [
        "010 is read as the number 10",
        "000 is read as the number 0",
        "-07 is read as the number -7",
    ]


def test_keys_are_the_text_that_is_written() -> None:
    document = parse("on: 1\n12:30: 2\nnull: 3\n2: 4\n", name="f")
    assert document.data == {"on": 1, "12:30": 2, "null": 3, "2": 4}


PLACES = {
    "yaml": "a:\n  b: [1, {c: x}]\n  São: two\n",
    "json": '{"a":\n {"b": [1, {"c": "x"}],\n "São": "two"}}',
    "toml": "[a]\nb = [1, {c = 'x'}]\n'São' = \"two\"\n",
}


@pytest.mark.parametrize(
    ("kind", "c_key", "c_value", "two"),
    [("yaml", "2:11", "2:14", "3:8"), ("json", "2:13", "2:18", "3:9"), ("toml", "2:10", "2:14", "3:9")],
)
def test_keys_and_values_have_places_in_every_format(kind: str, c_key: str, c_value: str, two: str) -> None:
    document = parse(PLACES[kind], name="f", format=kind)  # type: ignore[arg-type]
    assert document.data == {"a": {"b": [1, {"c": "x"}], "São": "two"}}
    path = ("a", "b", 1, "c")
    assert document.place(path, key=True) == f"f:{c_key}"
    assert document.place(path) == f"f:{c_value}"
    assert document.place(("a", "São")) == f"f:{two}"
    assert document.place((*path, "deeper", 3)) == f"f:{c_key}", (
        "an unknown path is at its nearest known part"
    )


def test_places_in_toml_tables() -> None:
    text = 'x = """\n[no]\n"""\n[[s]]\ndo = 1 # c\n[[s]]\n"d o" = 2\n[s.t]\nu.v = [\n 1, # ]\n 2]\n[[s.w]]\n'
    text += "k=1\n"
    document = parse(text, name="f", format="toml")
    assert document.place(("s", 0, "do")) == "f:5:6"
    assert document.place(("s", 1, "d o"), key=True) == "f:7:1"
    assert document.place(("s", 1, "t", "u", "v", 1)) == "f:11:2"
    assert document.place(("s", 1, "w", 0, "k")) == "f:13:3"


def test_the_line_and_a_caret_are_shown() -> None:
    document = parse("a: 1\nbee: wrong\n", name="f.yaml")
    assert (
        str(FileError([document.mistake(("bee",), "no")]))
        == "f.yaml:2:6: no\n    2 | bee: wrong\n      |      ^^^^^"
    )


def test_a_long_line_is_cut_around_the_caret() -> None:
    document = parse("a: '" + "x" * 5000 + "'\n", name="f")
    detail = document.mistake(("a",), "no").detail
    assert max(map(len, detail.splitlines())) < 120


def test_many_mistakes_are_counted() -> None:
    document = parse("a: 1\n" * 200, name="f")
    error = FileError(document.mistakes)
    assert len(error.mistakes) == 199
    assert str(error).endswith("and 149 more")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_is_what_the_standard_library_reads(value: object) -> None:
    document = parse(json.dumps(value, indent=1), name="f", format="json")
    assert document.data == value
    assert document.mistakes == ()


VISIBLE = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")))


@given(st.dictionaries(VISIBLE, st.lists(st.integers() | st.booleans() | st.none() | VISIBLE)))
def test_json_is_yaml(value: object) -> None:
    """Of characters that need no escape; PyYAML refuses escaped surrogate pairs."""
    assert parse(json.dumps(value, ensure_ascii=False), name="f").data == value


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for kind in ("yaml", "json", "toml"):
        with suppress(FileError):
            assert parse(text, name="f", format=kind).name == "f"  # type: ignore[arg-type]


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@` \n\t,?.0_", max_size=40))
def test_any_punctuation_is_read_or_refused(text: str) -> None:
    test_any_text_is_read_or_refused.hypothesis.inner_test(text)


# --- files


def refusal(path: Path, **options: int) -> str:
    with pytest.raises(FileError) as caught:
        read(path, **options)
    (mistake,) = caught.value.mistakes
    return f"{mistake.place.removeprefix(str(path.parent))}: {mistake.message}"


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "weather.yaml").write_text("a: 1")
    assert refusal(tmp_path / "wether.yaml") == '/wether.yaml: no such file, did you mean "weather.yaml"?'
    assert refusal(tmp_path / "nowhere" / "x.yaml") == "/x.yaml: no such file"


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").mkdir()
    assert refusal(tmp_path / "d.yaml") == "/d.yaml: is a directory"
    os.mkfifo(tmp_path / "p.yaml")
    assert refusal(tmp_path / "p.yaml") == "/p.yaml: is not a regular file"
    assert "cannot be read" in refusal(tmp_path / "a\0b.yaml")
    assert "cannot be read" in refusal(tmp_path / ("x" * 5000 + ".yaml"))


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: 1")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert refusal(file) == "/x.yaml: cannot be read: Permission denied"


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: 1234")
    assert read(file, limit=7).data == {"a": 1234}
    assert refusal(file, limit=6) == "/x.yaml: is larger than 6B"


def test_the_limit_of_a_file_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: 1234\n" + "# a comment line\n" * 62_000)
    way = "LMOS_ACTORS_MAX_FILE=2MiB in the environment allows it"
    assert refusal(file) == f"/x.yaml: is larger than 1MiB; {way}"
    monkeypatch.setenv("LMOS_ACTORS_MAX_FILE", "2MiB")
    assert read(file).data == {"a": 1234}
    monkeypatch.setenv("LMOS_ACTORS_MAX_FILE", "2")
    with pytest.raises(ConfigError, match=r"LMOS_ACTORS_MAX_FILE: '2' has no unit, did you mean '2B'\?"):
        read(file)


def test_an_unknown_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a: 1")
    assert "expected .yaml, .yml, .json or .toml" in refusal(tmp_path / "x.txt")


def test_files_are_read_in_utf_8_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes("\ufeffa: é".encode())
    assert read(file).data == {"a": "é"}
    file.write_bytes("a: é".encode("utf-16"))
    assert "UTF-16" in refusal(file)
    file.write_bytes("b: é\na: é".encode("latin-1"))
    assert refusal(file) == "/x.yaml:1:4: byte 0xe9 is not UTF-8, save the file as UTF-8"


def test_line_ends_do_not_matter() -> None:
    for end in ("\n", "\r\n", "\r"):
        document = parse(f"a: 1{end}b:{end}  - c: 2{end}", name="f")
        assert document.place(("b", 0, "c")) == "f:3:8"


@pytest.mark.parametrize("kind", ["yaml", "json", "toml"])
def test_a_wide_file_is_read(kind: str) -> None:
    wide = {f"k{n}": [n, {"x": "y"}] for n in range(2000)}
    text = json.dumps(wide)
    if kind == "toml":
        text = "".join(f'{key} = [{n}, {{x = "y"}}]\n' for key, (n, _) in wide.items())
    document = parse(text, name="f", format=kind)  # type: ignore[arg-type]
    assert document.data == wide
