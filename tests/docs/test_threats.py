"""The page of threats: each line has a footnote, and each footnote names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.source import ROOT

PAGE = (ROOT / "docs/explanation/threats.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| threat |")]
FOOTNOTES = dict(re.findall(r"^\[\^(\d+)\]:\n((?: {4}.+\n)+)", PAGE, re.MULTILINE))
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_every_line_names_tests_that_are_there() -> None:
    missing: list[str] = []
    for line in LINES:
        _, _, mark = line.strip("| ").rpartition(" | ")
        found = re.fullmatch(r"\[\^(\d+)\]", mark)
        assert found is not None, line
        note = FOOTNOTES[found[1]]
        named = NAMED.findall(note)
        assert " ".join(note.split()) == ", ".join(f"`{path}::{name}`" for path, name in named), line
        missing += [f"{line[:60]}: {path}::{name}" for path, name in named if name not in names_in(path)]
    assert missing == []


def test_there_are_lines() -> None:
    assert sorted(FOOTNOTES, key=int) == [str(number + 1) for number in range(len(LINES))]
    assert sum(len(NAMED.findall(note)) for note in FOOTNOTES.values()) == PAGE.count("::test_")
    assert len(LINES) > 30
