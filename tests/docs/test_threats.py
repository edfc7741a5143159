"""The page of threats names tests: each line some, and each of them is there."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.source import ROOT

PAGE = (ROOT / "docs/explanation/threats.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| threat |")]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.strip("| ").partition(" | ")[0][:60])
def test_a_line_names_tests_that_are_there(line: str) -> None:
    _, _, proof = line.strip("| ").rpartition(" | ")
    named = NAMED.findall(proof)
    assert ", ".join(f"`{path}::{name}`" for path, name in named) == proof
    assert [name for path, name in named if name not in names_in(path)] == []


def test_there_are_lines() -> None:
    assert len(LINES) == PAGE.count("::test_") - sum(len(NAMED.findall(line)) - 1 for line in LINES)
    assert len(LINES) > 30
