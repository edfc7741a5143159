"""Budget of a JSONPath search, and the data it works on: every visited value is counted.

A search is an expression of a client over all descriptions, so its cost is the client's choice: `$..[?@..x]`
visits every pair of nested values. A time limit alone would let two such searches use a core for seconds,
and differ from machine to machine; so nodes are counted (`SearchBudget.spend`), and the clock is checked
every `CHECK_EVERY` nodes. Descriptions are decoded when they are visited and dropped afterwards
(`LazyDescriptions`), so that memory does not grow with the directory; decoding is counted by size. Regular
expressions of a query take linear time (`use_i_regexps`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._entries import Entry
    from ._options import DirectoryOptions

CHECK_EVERY: Final = 1_024  # nodes between two checks of the clock


class BudgetExceeded(Exception):
    """Search that exceeds its budget."""


class SearchBudget:
    """Remaining budget of one search: nodes, and seconds (None for no limit)."""

    def __init__(self, options: DirectoryOptions, *, seconds: float | None) -> None:
        self._left = options.max_nodes
        self._ends = None if seconds is None else time.perf_counter() + seconds
        self._check_at = self._left - CHECK_EVERY
        self._stopped = False

    def spend(self, nodes: int = 1) -> None:
        """Count visited nodes. Raises BudgetExceeded."""
        self._left -= nodes
        if self._left < self._check_at:
            self._check_at = self._left - CHECK_EVERY
            self._check()

    def _check(self) -> None:
        if self._left < 0:
            raise BudgetExceeded("it visits too many values")
        if self._stopped or (self._ends is not None and time.perf_counter() > self._ends):
            raise BudgetExceeded("it takes too long")

    def stop(self) -> None:
        """End the search at its next check of the clock. Safe to call from another thread."""
        self._stopped = True


class CachedDescription(dict[str, Any]):
    """Decoded description, remembered for as long as the search refers to it."""

    __slots__ = ("__weakref__",)


class LazyDescriptions(Sequence[Any]):
    """Sequence of descriptions that are decoded when they are visited, and dropped afterwards."""

    def __init__(self, entries: Sequence[Entry], budget: SearchBudget) -> None:
        self.entries = entries
        self.budget = budget
        self._decoded: WeakValueDictionary[int, CachedDescription] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: int | slice) -> Any:
        places = range(len(self.entries))[place]
        if isinstance(places, range):
            return (self._at(each) for each in places)
        return self._at(places)

    def _at(self, number: int) -> CachedDescription:
        found = self._decoded.get(number)
        if found is None:
            text = self.entries[number].encoded()
            self.budget.spend(1 + len(text) // 64)  # decoding 64 bytes costs about as much as visiting a node
            found = self._decoded[number] = CachedDescription(msgspec.json.decode(text))
        return found

    def __iter__(self) -> Iterator[Any]:
        return map(self._at, range(len(self.entries)))

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other
