"""What became of every step: kept as it happens, within bounds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.reports import StepResult

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT: Final = 1_000
"""Of how many rounds of one step it is kept what became of them."""

MOST: Final = 20_000
"""Of how many steps of one run."""

SHOWN: Final = 3
"""How many of the steps that have not ended are named."""


@attrs.define
class StepEntry:
    """One step that has begun; `ok` is None until it has ended."""

    place: str
    what: str
    begin: float
    end: float | None = None
    ok: bool | None = None

    def finish(self, ok: bool, now: float) -> None:
        """Note how it ended; only the first time counts."""
        if self.ok is None:
            self.ok, self.end = ok, now


class StepLog:
    """The steps of one run, in the order in which they began. `total` of them are asked for."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        """How many have ended as they should, those that are not kept among them."""
        self._lines: list[StepEntry] = []
        self._begun: Counter[str] = Counter()

    def begin(self, place: str, what: str, now: float) -> StepEntry:
        """Note that a step begins; return the line on which to note its end."""
        line = StepEntry(place, what, now)
        self._begun[place] += 1
        if self._begun[place] <= KEPT and len(self._lines) < MOST:
            self._lines.append(line)
        return line

    def mark(self) -> int:
        """Return what `still` takes to leave out what has begun so far."""
        return len(self._lines)

    def unfinished(self, mark: int = 0) -> str:
        """Name the steps that have begun and not ended, "" for none."""
        going = [f"{line.place} {line.what}" for line in self._lines[mark:] if line.ok is None]
        more = f" and {len(going) - SHOWN} more" if len(going) > SHOWN else ""
        return ", ".join(going[:SHOWN]) + more

    def results(self, asked_for: Iterable[tuple[str, str]]) -> tuple[StepResult, ...]:
        """Return what became of the steps.

        Last those `asked_for` that were not reached, by place and words.
        """
        told = [StepResult(**attrs.asdict(line)) for line in self._lines]
        missing = [
            StepResult(place=place, what=what, ok=None)
            for place, what in asked_for
            if place not in self._begun
        ]
        return (*told, *missing)
