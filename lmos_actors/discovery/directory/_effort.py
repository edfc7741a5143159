"""What a JSONPath search works on, and what it costs: everything that is looked at is counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._entries import Entry
    from ._options import DirectoryOptions

PER_NODE: Final = 64  # bytes of a description that cost as much as a node
LOOK: Final = 1_024  # nodes between two looks at the clock
PATTERNS: Final = 64  # regular expressions that are kept compiled
LONGEST_PATTERN: Final = 1_000  # characters


class TooMuch(Exception):
    """The search costs more than one may."""


class Effort:
    """What one search has cost so far, and may cost; `seconds` None: no limit of time."""

    def __init__(self, options: DirectoryOptions, *, seconds: float | None) -> None:
        self._left = options.max_nodes
        self._ends = None if seconds is None else time.perf_counter() + seconds
        self._look = self._left - LOOK
        self._stopped = False

    def spend(self, nodes: int = 1) -> None:
        """Count. Raises TooMuch."""
        self._left -= nodes
        if self._left < self._look:
            self._look = self._left - LOOK
            self._check()

    def _check(self) -> None:
        if self._left < 0:
            raise TooMuch("it looks at too many values")
        if self._stopped or (self._ends is not None and time.perf_counter() > self._ends):
            raise TooMuch("it takes too long")

    def stop(self) -> None:
        """End it at its next look at the clock; to be called from another thread."""
        self._stopped = True


class Kept(dict[str, Any]):
    """A description, as long as somebody looks at it."""

    __slots__ = ("__weakref__",)


class Texts(Sequence[Any]):
    """Descriptions, which are read of their texts when they are looked at, and forgotten after."""

    def __init__(self, entries: Sequence[Entry], effort: Effort) -> None:
        self.entries = entries
        self.effort = effort
        self._read: WeakValueDictionary[int, Kept] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: int | slice) -> Any:
        places = range(len(self.entries))[place]
        if isinstance(places, range):
            return (self._at(each) for each in places)
        return self._at(places)

    def _at(self, number: int) -> Kept:
        found = self._read.get(number)
        if found is None:
            text = self.entries[number].told()
            self.effort.spend(1 + len(text) // PER_NODE)
            found = self._read[number] = Kept(msgspec.json.decode(text))
        return found

    def __iter__(self) -> Iterator[Any]:
        return map(self._at, range(len(self.entries)))

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@lru_cache(maxsize=PATTERNS)
def pattern_of(pattern: str, whole: bool) -> Any:
    """Return what says whether a text fits a regular expression, in linear time; None for what is none."""
    from jsonschema_rs import Draft202012Validator, RegexOptions

    if len(pattern) > LONGEST_PATTERN:
        return None
    schema = {"pattern": f"^(?:{pattern})$" if whole else pattern}
    limits = RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
    try:
        return Draft202012Validator(schema, pattern_options=limits).is_valid
    except ValueError:
        return None
