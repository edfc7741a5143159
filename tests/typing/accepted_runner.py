"""A sample for the runner itself: both type checkers accept all of it."""

from __future__ import annotations


def double(number: int) -> int:
    return 2 * number


total: int = double(21)
