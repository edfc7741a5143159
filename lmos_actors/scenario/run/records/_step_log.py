"""The log of the steps of one run: when each step began and ended, and whether it succeeded.

The log is bounded: it keeps the first rounds of a step inside a long `repeat`, and the first steps of a run.
Steps beyond the bounds still count in `done`, so that "all steps done" stays exact.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.reports import StepResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KEPT: Final = 1_000
"""The largest number of rounds of one step that are kept."""

MOST: Final = 20_000
"""The largest number of steps of one run that are kept."""

SHOWN: Final = 3
"""The largest number of unfinished steps that a message names."""


@attrs.define
class StepEntry:
    """One step that has begun; `ok` is None until it has ended."""

    place: str
    what: str
    begin: float
    end: float | None = None
    ok: bool | None = None

    def finish(self, ok: bool, now: float) -> None:
        """Record the end of the step; only the first call counts."""
        if self.ok is None:
            self.ok, self.end = ok, now


class StepLog:
    """The steps of one run in the order in which they began. `total` is their number in the file."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        """The number of successful steps, including those beyond the bounds."""
        self._lines: list[StepEntry] = []
        self._begun: Counter[str] = Counter()

    def begin(self, place: str, what: str, now: float) -> StepEntry:
        """Record the start of a step and return its entry; the entry's `finish` records the end."""
        line = StepEntry(place, what, now)
        self._begun[place] += 1
        if self._begun[place] <= KEPT and len(self._lines) < MOST:
            self._lines.append(line)
        return line

    def changes(self) -> StepChanges:
        """Return an object whose `take` yields the changes since its last call."""
        return StepChanges(self._lines)

    def mark(self) -> int:
        """Return a mark for `unfinished`, which leaves out the steps before the mark."""
        return len(self._lines)

    def unfinished(self, mark: int = 0) -> str:
        """Return a text on the steps that have begun and not ended; "" if there are none."""
        going = [f"{line.place} {line.what}" for line in self._lines[mark:] if line.ok is None]
        more = f" and {len(going) - SHOWN} more" if len(going) > SHOWN else ""
        return ", ".join(going[:SHOWN]) + more

    def results(self, asked_for: Iterable[tuple[str, str]]) -> tuple[StepResult, ...]:
        """Return the results of the steps that have begun, then of the steps in `asked_for` that have not.

        `asked_for` has the place and the text of each step of the file.
        """
        results = [StepResult(**attrs.asdict(line)) for line in self._lines]
        missing = [
            StepResult(place=place, what=what, ok=None)
            for place, what in asked_for
            if place not in self._begun
        ]
        return (*results, *missing)


class StepChanges:
    """The steps of a run that have begun or ended since the last `take`."""

    def __init__(self, lines: list[StepEntry]) -> None:
        self._lines = lines
        self._seen = 0
        self._open: dict[int, StepEntry] = {}

    def take(self, most: int) -> Iterator[tuple[int, StepEntry]]:
        """Yield the steps that have begun or ended since the last call, with their numbers.

        At most `most` steps that have begun are yielded; the next call yields the rest.
        """
        for number, line in tuple(self._open.items()):
            if line.ok is not None:
                del self._open[number]
                yield number, line
        for number, line in enumerate(islice(self._lines, self._seen, self._seen + most), self._seen):
            self._seen += 1
            if line.ok is None:
                self._open[number] = line
            yield number, line
