"""`tests/matrix.py`: what an ordinary run leaves out is run with `--matrix`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import matrix
from tests.source import ROOT


@pytest.mark.parametrize(
    ("everything", "cases", "number"), [(False, [0, 3, 6], 8), (True, [0, 1, 2, 3, 4, 5, 6], 100)]
)
def test_an_ordinary_run_takes_a_share(
    monkeypatch: pytest.MonkeyPatch, everything: bool, cases: list[int], number: int
) -> None:
    monkeypatch.setattr(matrix, "_everything", everything)
    assert matrix.some(range(7), of=3) == cases
    assert matrix.some(range(7), of=3, besides=lambda case: case == 4) == sorted({*cases, 4})
    assert matrix.some(range(7), of=3, matrix=2) == ([0, 2, 4, 6] if everything else [0, 3, 6])
    assert matrix.examples(100) == number
    assert matrix.few_or_all("few", "all") == ("all" if everything else "few")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "outcome"), [((), "1 deselected"), (("--matrix",), "1 test collected")])
def test_a_marked_test_is_run_with_the_option_alone(words: tuple[str, ...], outcome: str) -> None:
    test = "tests/long/test_long_runs.py::test_few_seeds_pass"
    call = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *words, test]
    said = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert outcome in said
