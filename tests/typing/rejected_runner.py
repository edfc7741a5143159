"""A sample for the runner itself: both type checkers refuse the marked lines and no other."""

from __future__ import annotations

from accepted_runner import double

total: int = double(21)
wrong_argument: int = double("21")  # E
wrong_result: str = double(21)  # E


def untyped(number):  # E
    ...
