"""Linearizability of a register: whether one order of its operations explains what all its callers saw.

An operation takes effect at one instant between its call and its answer. A history is linearizable if its
operations can be put in an order in which an operation that was over when another began comes first, and each
read returns the value written last. The search is by Wing and Gong, with Lowe's memory of what has been
tried. It goes through the history from its start, and puts next any operation that began before any unordered
one was over. It never examines the same set of ordered operations with the same value twice.

What keeps the search narrow:

- A read that returns the present value goes next at once: it changes nothing, so it can only be in the
  way later. So does a comparison that failed and fails now. Only writes make branches.
- A write of unknown outcome may have happened, or may happen at any later time. If nobody has read its
  value, it is left out; if it alone wrote the value, it happened before the first read of that was over.
- A set of ordered operations is the number of those at the start of the history, and a few bits for the
  rest.

Finding an order is hard in general, so the search is bounded; `linearize` returns None past the bound.

A failing history is made small by steps that cannot make a linearizable history fail. Its end is cut off, so
that operations open at that time get an unknown outcome. Reads and values are left out, each value with all
operations that read or write it. If each value is written once, two values are enough. For each of the two,
it is enough to keep the write, the operation that ended first, and the one that began last (Gibbons and
Korach). All of these are tried, so that no smaller history fails at that instant. In other histories no
further step is possible.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_LOOKED_AT: Final = 200_000
"""Maximum number of sets of ordered operations that the search for one key visits."""

UNKNOWN: Final = math.inf
"""The end of an operation whose outcome is unknown."""

_FEW: Final = 20_000
"""Maximum number of sets of ordered operations visited to see whether a smaller history fails."""

Sort: TypeAlias = Literal["read", "write", "compare_and_set"]


@attrs.frozen
class Operation:
    """An operation on a register; `call` and `end` are its places in the history of all calls and answers.

    `value` is the value read or written. For a comparison, `expected` is the expected value, and `is_set` is
    whether the comparison held. An operation without an answer has the end `UNKNOWN`.
    """

    sort: Sort
    value: str
    call: int
    end: float
    expected: str = ""
    is_set: bool = True

    @property
    def is_known(self) -> bool:
        """Whether the operation has been answered."""
        return self.end != UNKNOWN

    @property
    def writes(self) -> bool:
        """Whether the operation may change the value."""
        return self.sort == "write" or (self.sort == "compare_and_set" and (self.is_set or not self.is_known))

    def seen(self) -> str | None:
        """Return the value that the register must have had; None if several values are possible."""
        if self.sort == "read":
            return self.value
        return self.expected if self.sort == "compare_and_set" and self.is_set else None


def linearize(history: Iterable[Operation], initial: str, most: int = MOST_LOOKED_AT) -> bool | None:
    """Return whether a history of one register is linearizable; None if the search would take too long."""
    operations = _narrowed(history, initial)
    tried: set[tuple[int, int, str]] = set()
    left = [(0, 0, initial)]
    while left:
        first, ordered, value = left.pop()
        found = _settled(operations, first, ordered, value)
        if found is None:
            return True
        first, ordered, candidates = found
        if (first, ordered, value) in tried:
            continue
        if len(tried) >= most:
            return None
        tried.add((first, ordered, value))
        for index in candidates:
            operation = operations[index]
            if operation.sort == "write" or operation.expected == value:
                left.append((first, ordered | 1 << index - first, operation.value))
    return False


def _settled(
    operations: Sequence[Operation], first: int, ordered: int, value: str
) -> tuple[int, int, list[int]] | None:
    """Order all operations that change nothing, and return the writes that can be next.

    Return None if all operations are in order. `first` is the first operation that is not in order yet; bit n
    of `ordered` stands for the operation n places after `first`. The writes are sorted by their ends, the
    earliest last.
    """
    while True:
        while ordered & 1:
            ordered >>= 1
            first += 1
        soonest = UNKNOWN
        candidates: list[int] = []
        quiet = 0
        bits = ordered
        for index in range(first, len(operations)):
            operation = operations[index]
            if operation.call > soonest:
                break
            if not bits & 1:
                soonest = min(soonest, operation.end)
                if operation.writes:
                    candidates.append(index)
                elif (operation.value == value) if operation.sort == "read" else operation.expected != value:
                    quiet |= 1 << index - first
            bits >>= 1
        if not quiet:
            if soonest == UNKNOWN:
                return None  # the operations left may never have happened
            candidates.sort(key=lambda index: -operations[index].end)
            return first, ordered, candidates
        ordered |= quiet


def _narrowed(history: Iterable[Operation], initial: str) -> list[Operation]:
    """Return a history sorted by calls, in which writes of unknown outcome are narrowed down by reads."""
    operations = sorted(
        (each for each in history if each.is_known or each.writes), key=lambda each: each.call
    )
    if all(each.is_known for each in operations) or any(
        each.sort == "compare_and_set" for each in operations
    ):
        return operations
    writers: dict[str, int] = {}
    first_read: dict[str, float] = {}
    for each in operations:
        if each.sort == "write":
            writers[each.value] = writers.get(each.value, 0) + 1
        else:
            first_read[each.value] = min(each.end, first_read.get(each.value, UNKNOWN))
    narrowed: list[Operation] = []
    for each in operations:
        if each.is_known:
            narrowed.append(each)
        elif each.value in first_read:
            is_sure = writers[each.value] == 1 and each.value != initial
            narrowed.append(attrs.evolve(each, end=first_read[each.value]) if is_sure else each)
    return narrowed


# ---- the smallest history that fails


def smallest_failing(
    history: Sequence[Operation], initial: str, most: int = MOST_LOOKED_AT
) -> tuple[Operation, ...]:
    """Return the smallest part of a history that is not linearizable, in the order of its calls.

    The operations come from the history; if one ends after the instant of the failure, only its call counts.
    The history must not be linearizable.
    """

    def fails(part: Sequence[Operation], looked_at: int = _FEW) -> bool:
        return linearize(part, initial, looked_at) is False

    cut = _first_failing_cut(history, lambda part: fails(part, most))
    originals = {each.call: each for each in history}
    small = _two_values(cut, initial, fails) or _reduced(cut, fails)
    return tuple(originals[each.call] for each in sorted(small, key=lambda each: each.call))


def _first_failing_cut(
    history: Sequence[Operation], fails: Callable[[Sequence[Operation]], bool]
) -> list[Operation]:
    """Return the beginning of a history, up to the first answer with which it fails."""
    ends = sorted(each.end for each in history if each.is_known)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if fails(_up_to(history, ends[middle])):
            high = middle
        else:
            low = middle + 1
    return _up_to(history, ends[low])


def _up_to(history: Sequence[Operation], end: float) -> list[Operation]:
    found = [each for each in history if each.call < end]
    cut = [each if each.end <= end else attrs.evolve(each, end=UNKNOWN, is_set=True) for each in found]
    return [each for each in cut if each.is_known or each.writes]


def _two_values(
    cut: Sequence[Operation], initial: str, fails: Callable[[Sequence[Operation]], bool]
) -> list[Operation] | None:
    """Return the smallest failing part of a history; None unless each of its values is written only once."""
    groups: dict[str, list[Operation]] = {}
    for each in cut:
        if each.sort == "compare_and_set":
            return None
        groups.setdefault(each.value, []).append(each)
    for value, group in groups.items():
        if sum(each.writes for each in group) > (value != initial):
            return None
    last = max((each for each in cut if each.is_known), key=lambda each: each.end)
    extremes = {value: _extremes(group) for value, group in groups.items()}
    own = extremes.pop(last.value)
    if fails(own):
        return _fewest(own, fails)
    others = sorted(extremes.values(), key=lambda group: -max(each.call for each in group))
    pairs = [part for part in ([*own, *other] for other in others) if fails(part)]
    return min((_fewest(part, fails) for part in pairs[:64]), key=len, default=None)


def _extremes(group: Sequence[Operation]) -> list[Operation]:
    """Return three operations on a value: its write, the first to end, and the last to begin."""
    chosen = [each for each in group if each.writes]
    chosen += [min(group, key=lambda each: each.end), max(group, key=lambda each: each.call)]
    return list({each.call: each for each in chosen}.values())


def _fewest(part: Sequence[Operation], fails: Callable[[Sequence[Operation]], bool]) -> list[Operation]:
    """Return a failing part, reduced to the smallest number of reads with which it still fails."""
    writes = [each for each in part if each.writes]
    reads = [each for each in part if not each.writes]
    for count in range(len(reads)):
        for chosen in combinations(reads, count):
            if fails([*writes, *chosen]):
                return [*writes, *chosen]
    return list(part)


def _reduced(cut: Sequence[Operation], fails: Callable[[Sequence[Operation]], bool]) -> list[Operation]:
    """Return a failing part of a history from which no read and no value can be left out."""
    kept = list(cut)
    size = len(kept)
    while True:
        before = len(kept)
        kept = _without_reads(kept, fails, size)
        kept = _without_values(kept, fails, size)
        if len(kept) == before:
            if size == 1:
                return kept
            size = max(1, size // 2)


def _without_reads(
    kept: list[Operation], fails: Callable[[Sequence[Operation]], bool], size: int
) -> list[Operation]:
    """Return a history without some reads; up to `size` at a time are left out if the rest still fails."""
    reads = [each for each in kept if not each.writes]
    for start in range(0, len(reads), size):
        gone = {each.call for each in reads[start : start + size]}
        rest = [each for each in kept if each.call not in gone]
        if fails(rest):
            kept = rest
    return kept


def _without_values(
    kept: list[Operation], fails: Callable[[Sequence[Operation]], bool], size: int
) -> list[Operation]:
    """Return a history without some values; up to `size` at a time are left out if the rest still fails.

    Each value goes with all operations that read or write it. A failed comparison saw any value but the
    expected one, so no value may be left out while the history has one.
    """
    values = list(dict.fromkeys(each.value for each in kept if each.writes))
    for start in range(0, len(values), size):
        if any(each.sort == "compare_and_set" and not each.writes for each in kept):
            break
        gone = set(values[start : start + size])
        while more := {each.value for each in kept if each.seen() in gone and each.writes} - gone:
            gone |= more
        rest = [each for each in kept if each.value not in gone and each.seen() not in gone]
        if fails(rest):
            kept = rest
    return kept
