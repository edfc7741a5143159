"""YAML means the same with and without libyaml, and what YAML 1.2 says; other texts are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lmos_actors.files import FileError, parse
from tests.files.test_document import LOADERS

LOADER = "lmos_actors.files._yaml.LOADER"

TAKEN = [
    # tabs that do not indent
    ("a: 1\t\nb:\t2\t# two\n", {"a": 1, "b": 2}),
    ('{\n\t"a": [\n\t\t1\n\t]\n}\n', {"a": [1]}),
    ("a:\n  one\n  \ttwo\tthree\n", {"a": "one two\tthree"}),
    ("one\n\ttwo\n", "one two"),
    ("---\ttext\n", "text"),
    ("a:\t|\n  one\n  \ttwo\n", {"a": "one\n\ttwo\n"}),
    # signs inside of brackets
    ('{"a":1, "b" :2}\n', {"a": 1, "b": 2}),
    ("[a:b, a?, -1, --, a-]\n", ["a:b", "a?", -1, "--", "a-"]),
    ("{? a : 1, b : }\n", {"a": 1, "b": None}),
    ("{a :b}\n", {"a :b": None}),
    ("[a#b, c] # d\n", ["a#b", "c"]),
    # lines that continue a value
    ("a: [\n  1,\n# two\n  2\n]\n", {"a": [1, 2]}),
    ("[1,\n2]\n", [1, 2]),
    ('"one\ntwo"\n', "one two"),
    # texts at the end of a file that ends within a line
    ("- |+\n   ", ["\n"]),
    ("a: |\n  x\n   ", {"a": "x\n \n"}),
    ("a: |\n  x", {"a": "x\n"}),
    ("a: |-\n  x", {"a": "x"}),
    ("a: | # text\n  x\n", {"a": "x\n"}),
    ("a: |2\n   x\n # end\n", {"a": " x\n"}),
    ("a: |\n\n# end\nb: 1\n", {"a": "", "b": 1}),
    ("# first\n%YAML 1.2\n---\na: 1\n", {"a": 1}),
]
"""Texts, and the data that both parsers read."""

REFUSED = [
    # `?`, `:` and `-` that begin plain text in YAML 1.2, and a key for both parsers
    ("[?x]\n", "1:2", 'write a space after "?"'),
    ("{?y: 1}\n", "1:2", 'write a space after "?"'),
    ("{a:, b: 1}\n", "1:3", 'write a space after ":"'),
    ("{a:[b]}\n", "1:3", 'write a space after ":"'),
    ("[a:?b]\n", "1:3", 'write a space after ":"'),
    ("[-]\n", "1:2", 'put "-" in quotes'),
    ("- [-, -]\n", "1:4", 'put "-" in quotes'),
    ("[? ]\n", "1:4", 'a key is missing after "?"'),
    # comments
    ("[a, b,#c\n]\n", "1:7", "a space is missing before the #"),
    ('a: "b"#c\n', "1:7", "a space is missing before the #"),
    ("[a]#b\n", "1:4", "a space is missing before the #"),
    ("a: ># b\n  c\n", "1:4", 'write " #" before a comment'),
    ("a: >\n \n   \n # b\n", "4:2", "this comment would be part of the text"),
    # tabs
    ("a: |\n \tb\n", "2:2", "a tab cannot indent"),
    ("a: 1\n\t\nb: 2\n", "2:1", "a tab cannot indent"),
    ('a: "b\n\tc"\n', "2:1", "a tab cannot indent"),
    ("a: b\n\tc\n", "2:1", "a tab cannot indent"),
    ("- [\n\ta\n ]\n", "2:1", "a tab cannot indent"),
    ("a: |\t\n  b\n", "1:4", "end the line after"),
    # lines that continue a value, and are not indented
    ("a: [b,\nc]\n", "2:1", "begin this line with 1 or more spaces"),
    ('a:\n  b: "c\n  d"\n', "3:3", "begin this line with 3 or more spaces"),
    ('a: {"b\n# c": 1}\n', "2:1", "begin this line with 1 or more spaces"),
    ("a:\n|\n b\n", "2:1", 'indent "|" more'),
    # directives, and line ends of YAML 1.1
    ("%FOO bar\n---\na: 1\n", "1:1", "YAML directives"),
    ("# a\n%YAML 1.2\n%TAG ! x\n---\na: 1\n", "3:1", "YAML directives"),
    ("# a\u2028b: 1\n", "1:4", '"\\L", in double quotes'),
    ("a: b\u2029c: 1\n", "1:5", '"\\P", in double quotes'),
    ("a: b\x85c: 1\n", "1:5", '"\\N", in double quotes'),
]


def outcome(text: str) -> object:
    """Return the data of a text, or `FileError` if it is refused."""
    try:
        document = parse(text, name="f")
    except FileError:
        return FileError
    return FileError if document.mistakes else document.data


@pytest.mark.parametrize("loader", LOADERS)
def test_what_is_taken_means_what_yaml_1_2_says(loader: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOADER, loader)
    for text, data in TAKEN:
        assert outcome(text) == data, text


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "place", "part"), REFUSED)
def test_what_has_two_meanings_is_refused(
    text: str, place: str, part: str, loader: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOADER, loader)
    with pytest.raises(FileError) as refused:
        parse(text, name="f")
    first = refused.value.mistakes[0]
    assert (f"{first.line}:{first.column}", part in first.message) == (place, True), first


PIECES = (
    *(
        "a",
        "1",
        "?",
        ":",
        ": ",
        "-",
        "- ",
        ",",
        "[",
        "]",
        "{",
        "}",
        "#",
        " #",
        "\t",
        " ",
        "'",
        '"',
        "|",
        ">-",
    ),
    *("\n", "\n  ", "\n- ", "\nb: ", "k: ", "---", "...", "%", "\\", "~", "|2", "\r\n"),
)


@pytest.mark.skipif(len(LOADERS) == 1, reason="PyYAML was built without libyaml")
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_both_parsers_read_a_text_alike(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found: list[object] = []
        for loader in LOADERS:
            patch.setattr(LOADER, loader)
            found.append(outcome(text))
    assert repr(found[0]) == repr(found[1])
