"""What an ordinary run leaves to `--matrix`: most of a large matrix, and most of the random examples.

Nothing is left out for good: `pytest --matrix` and `.ci/run --matrix` run all of it. The share of an ordinary
run is the same each time, so that a failure is no matter of luck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

T = TypeVar("T")

EXAMPLES = 100
"""What Hypothesis draws for a test that names no number."""

_everything = False


def ask_everything() -> None:
    """Let this run be one of `--matrix`. To be called before any test module is imported."""
    global _everything
    _everything = True


def some(cases: Iterable[T], *, of: int) -> list[T]:
    """Return every `of`-th of the cases, beginning with the first; with `--matrix`, all of them."""
    return list(cases)[:: 1 if _everything else of]


def slow(cases: Iterable[T], of: Container[T]) -> list[Any]:
    """Return the cases as parameters, those of `of` marked `slow`."""
    return [pytest.param(case, marks=[pytest.mark.slow] * (case in of)) for case in cases]


def few_or_all(few: T, everything: T) -> T:
    """Return what an ordinary run takes, or what `--matrix` takes."""
    return everything if _everything else few


def examples(number: int) -> int:
    """Return how many examples Hypothesis draws: a twelfth of the number, or all of it with `--matrix`."""
    return few_or_all(max(number // 12, 5), number)
