"""The shrinking of a failing file to a smaller file that fails in the same way.

Each way to make a file simpler yields candidates. The first candidate that is lighter and fails in the same
way replaces the file, and the way begins again with the new file. Shrinking is over when no way finds such a
candidate. It always ends, because each step lowers a weight that cannot fall forever.

A failure that needs the drawn faults must go on needing them: a candidate counts only if it does not fail in
this way without them. Without that rule a file would shrink to another failure, such as a check that nothing
could fulfil because the run is too short, or has too few agents.

A failure may depend on an instant, such as the time of a message, and with fewer agents messages come at
other instants. So if a file with fewer agents does not fail, faults are moved to the instants of its own
events.

This module does not run files: it calls a `Fails`, which returns the first of several candidates that fails
in the same way. It passes several at once so that they can run in parallel. As only the first failing one
counts, their number does not affect the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from ._plain import text_of, without_drawn
from ._simpler import WAYS, fewer_of_population, gentler_faults, moved_faults, tidied
from ._weight import weight_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._plain import Data

Fails: TypeAlias = Callable[[Sequence["Data"]], int | None]
"""Returns the index of the first of several files that fails in the same way, None if none does."""

Instants: TypeAlias = Callable[["Data"], Sequence[int]]
"""Runs a file, and returns the instants at which something happened, in microseconds."""

AT_ONCE: Final = 8
"""The number of candidates that are handed over at once."""

MOST_INSTANTS: Final = 32
"""Maximum number of instants of one run to which faults are moved; further ones are left out."""


class Shrinker:
    """The shrinking of one file with up to `most` candidates.

    `tried` is the number of candidates that were run; `data` is the simplest failing file so far.
    """

    def __init__(
        self, data: Data, fails: Fails, *, instants: Instants | None = None, most: int = 2_000
    ) -> None:
        self.data = data
        self.tried = 0
        self._fails = fails
        self._instants = instants
        self._most = most
        self._seen = {text_of(data)}
        self._alone: dict[str, bool] = {}
        self._needs_drawn = False

    def run(self) -> Data:
        """Shrink the file as far as possible, and return it."""
        alone = without_drawn(self.data)
        if alone != self.data:
            self._needs_drawn = self._fails([alone]) is None
            self.data = self.data if self._needs_drawn else alone
        before = None
        while before is not self.data and self.tried < self._most:
            before = self.data
            for way in WAYS:
                if way is gentler_faults:  # after this, a fault fits only one instant
                    self._follow(self._fewer_agents_at_other_instants)
                self._follow(way)
        tidy = tidied(self.data)
        if tidy != self.data and self._fails([tidy]) == 0:
            self.data = tidy
        return self.data

    def _follow(self, way: Callable[[Data], Iterator[Data]]) -> None:
        """Apply one way to make the file simpler as often as possible."""
        candidates = self._lighter(way)
        while several := list(islice(candidates, AT_ONCE)):
            found = self._first_that_fails(several)
            if found is not None:
                self.data = found
                candidates = self._lighter(way)

    def _fewer_agents_at_other_instants(self, data: Data) -> Iterator[Data]:
        if self._instants is None or not self._needs_drawn:
            return
        for fewer in fewer_of_population(data):
            if weight_of(fewer) < weight_of(self.data):
                instants = self._instants(without_drawn(fewer))
                for at in instants[:: -(-len(instants) // MOST_INSTANTS) or 1]:
                    yield from moved_faults(fewer, at)

    def _lighter(self, way: Callable[[Data], Iterator[Data]]) -> Iterator[Data]:
        weight = weight_of(self.data)
        for candidate in way(self.data):
            if weight_of(candidate) < weight and text_of(candidate) not in self._seen:
                yield candidate

    def _first_that_fails(self, several: Sequence[Data]) -> Data | None:
        left = several[: max(self._most - self.tried, 0)]
        while left:
            number = self._fails(left)
            tried = left if number is None else left[: number + 1]
            self.tried += len(tried)
            self._seen.update(map(text_of, tried))
            if number is None or self._is_same_failure(left[number]):
                return None if number is None else left[number]
            left = left[number + 1 :]
        return None

    def _is_same_failure(self, candidate: Data) -> bool:
        """Return whether a failing file needs its drawn faults to fail; True if the original needs none."""
        if not self._needs_drawn:
            return True
        alone = without_drawn(candidate)
        if alone == candidate:
            return False
        text = text_of(alone)
        if text not in self._alone:
            self._alone[text] = self._fails([alone]) == 0
        return not self._alone[text]
