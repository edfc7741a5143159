"""Comparison of message logs: the common beginning, and the first records that differ. Pure functions."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors.files import is_mapping

from ._logs import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PASSED_OVER: Final = ("run.file",)
"""Fields in which two heads may differ: the same file may be in another folder."""


@attrs.frozen
class FieldDifference:
    """A member that differs: its name, such as `value.text`, and both values. A missing value is None."""

    name: str
    first: Any
    second: Any


@attrs.frozen
class Divergence:
    """Result of comparing the records of two runs.

    `common` is the number of equal records at the start, and `before` has the last of these. `first` and
    `second` have the next records of each run; an empty tuple if its log has ended. If both are empty, the
    runs are equal.
    """

    common: int
    before: tuple[LogLine, ...]
    first: tuple[LogLine, ...]
    second: tuple[LogLine, ...]

    @property
    def equal(self) -> bool:
        """True if there is no difference."""
        return not self.first and not self.second

    @property
    def fields(self) -> tuple[FieldDifference, ...]:
        """The differences between the first two records that differ."""
        if not self.first or not self.second:
            return ()
        return tuple(differing(self.first[0].data, self.second[0].data))


def compare_records(first: Iterable[LogLine], second: Iterable[LogLine], context: int = 3) -> Divergence:
    """Compare the records of two runs, without heads and last lines.

    The result has up to `context` common records before the first difference, and some after it.
    """
    one, other = _records(first), _records(second)
    before: deque[LogLine] = deque(maxlen=context)
    common = 0
    while True:
        left, right = next(one, None), next(other, None)
        if left is None or right is None or left.text != right.text:
            break
        before.append(left)
        common += 1
    rest = [
        (head, *islice(lines, context)) if head is not None else ()
        for head, lines in ((left, one), (right, other))
    ]
    return Divergence(common, tuple(before), rest[0], rest[1])


def _records(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    return (line for line in lines if line.sort == "record")


def lines_of(texts: Iterable[str]) -> Iterator[LogLine]:
    """Yield the lines of a log from their texts in memory."""
    for number, text in enumerate(texts, start=1):
        yield LogLine(number, text, msgspec.json.decode(text.encode("utf-8", "surrogatepass")))


def compare_heads(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[FieldDifference, ...]:
    """Return the differences between the heads of two logs."""
    return tuple(found for found in differing(first, second) if found.name not in PASSED_OVER)


def differing(
    first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = ""
) -> Iterator[FieldDifference]:
    """Yield the members that differ; nested members are named by their path."""
    for name in dict.fromkeys([*first, *second]):
        left, right = first.get(name), second.get(name)
        if is_mapping(left) and is_mapping(right):
            yield from differing(left, right, f"{prefix}{name}.")
        elif left != right or (name in first) != (name in second):
            yield FieldDifference(f"{prefix}{name}", left, right)
