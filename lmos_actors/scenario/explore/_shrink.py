"""The shrinking of a file that fails, to one that fails in the same way and has less in it.

Each way to make a file simpler yields candidates; the first that is lighter and fails in the same way takes
the place of the file, and the way begins again with it. When no way finds one any more, it is over: it always
is at some time, as each step lowers a weight that cannot be lowered for ever.

A failure that needs the faults that were drawn must go on to need them: a candidate counts only if it does
not fail so without them. Without that rule a file would shrink to another failure, such as a check that
nothing could fulfil because the run is too short, or too few agents are there.

A failure may need an instant, such as that of a message, and fewer agents have their messages at others. So
where fewer agents do not fail, the faults are moved to the instants at which something happens to them.

What is run is not known here: `Fails` says which candidates of several fail in the same way. Several are
handed over at once so that they can be run at the same time; the first that fails counts, so the result does
not depend on how many are.
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
"""Returns the number of the first of several files that fails in the same way, None if none does."""

Instants: TypeAlias = Callable[["Data"], Sequence[int]]
"""Runs a file, and returns the instants at which something happened, in microseconds."""

AT_ONCE: Final = 8
"""Candidates that are handed over at once."""

MOST_INSTANTS: Final = 32
"""Instants of one run to which faults are moved; of more, some are left out."""

MOST_TRIED: Final = 2_000
"""Candidates that are tried at most."""


class Shrinker:
    """The shrinking of one file. `tried` candidates were run, and `data` is the simplest that fails."""

    def __init__(
        self, data: Data, fails: Fails, *, instants: Instants | None = None, most: int = MOST_TRIED
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
        """Shrink the file as far as it goes, and return it."""
        alone = without_drawn(self.data)
        if alone != self.data:
            self._needs_drawn = self._fails([alone]) is None
            self.data = self.data if self._needs_drawn else alone
        before = None
        while before is not self.data and self.tried < self._most:
            before = self.data
            for way in WAYS:
                if way is gentler_faults:  # after which a fault fits one instant alone
                    self._follow(self._fewer_agents_at_other_instants)
                self._follow(way)
        self._tidy_up()
        return self.data

    def _follow(self, way: Callable[[Data], Iterator[Data]]) -> None:
        """Make the file simpler in one way until that goes no further."""
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
        """Return whether a file that fails would not without its drawn faults, where they are needed."""
        if not self._needs_drawn:
            return True
        alone = without_drawn(candidate)
        if alone == candidate:
            return False
        text = text_of(alone)
        if text not in self._alone:
            self._alone[text] = self._fails([alone]) == 0
        return not self._alone[text]

    def _tidy_up(self) -> None:
        tidy = tidied(self.data)
        if tidy != self.data and self._fails([tidy]) == 0:
            self.data = tidy
