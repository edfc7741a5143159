"""Each section of the page on performance that has a table names the program that measures it."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.benchmarks.cases import CASES
from tests.source import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "performance.md"
NOT_KEPT: Final = "not kept here"
PROGRAM: Final = re.compile(
    r"tests[./]benchmarks[./](\w+)|`pytest (tests/[\w/]+\.py)|`lmos-actors run (scenarios/\w+\.yaml)"
)


def sections() -> dict[str, str]:
    """Return the sections of the page that have a table, by their headings."""
    parts = re.split(r"^(#+ .*)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {heading: text for heading, text in found.items() if "\n|---" in text}


@pytest.mark.parametrize("heading", sections())
def test_figures_name_their_program(heading: str) -> None:
    text = sections()[heading]
    named = [name for name in re.findall(r"`([\w-]+)`", text) if name in CASES]
    programs = PROGRAM.findall(text)
    assert named or programs or NOT_KEPT in text
    for module, test, scenario in programs:
        path = f"tests/benchmarks/{module}.py" if module else test or scenario
        paths = path, f"tests/benchmarks/{module}/__main__.py"
        assert module.startswith("limits_") or any((ROOT / each).exists() for each in paths), path
