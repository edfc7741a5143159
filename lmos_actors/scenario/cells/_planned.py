"""The requested runs of one file: the cells to run twice, and the runs that end without a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lmos_actors.reports import FileResult, Missing
from lmos_actors.scenario.model import Compare
from lmos_actors.system.model import is_real

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from lmos_actors.scenario.format import Cell, Resolved, Selection


@attrs.frozen
class PlannedFile:
    """A file, the numbers of its chosen cells, and its result, to which runs are added."""

    resolved: Resolved
    cells: Sequence[int]
    result: FileResult

    @classmethod
    def of(cls, file: str, resolved: Resolved, chosen: Selection, trials: int | None) -> PlannedFile:
        """Return the plan of a file; if `trials` is None, each cell has as many trials as the file sets."""
        cells = [number for number, cell in enumerate(resolved.cells) if chosen.fits(cell)]
        scenario = resolved.cells[0].scenario
        result = FileResult(
            file,
            resolved.name,
            scenario.trials.pass_rate,
            trials or scenario.trials.count,
            len(cells),
            seeds=len({resolved.cells[number].seed for number in cells}),
            notes=tuple(filter(None, dict.fromkeys(resolved.cells[number].note for number in cells))),
        )
        return cls(resolved, cells, result)

    def chosen(self) -> list[Cell]:
        """Return the cells that were chosen."""
        return [self.resolved.cells[number] for number in self.cells]

    def missing(self, under_way: Container[tuple[int, int]]) -> Iterator[tuple[Cell, Missing]]:
        """Yield the runs without a result; `under_way` has the runs that have begun."""
        has = {(run.label, run.trial) for run in self.result.runs}
        for number, cell in zip(self.cells, self.chosen(), strict=True):
            found = Missing(label=cell.label, values=cell.values, seed=cell.seed, trial=0)
            for trial in range(1, self.result.trials + 1):
                if (cell.label, trial) not in has:
                    yield cell, attrs.evolve(found, trial=trial, begun=(number, trial) in under_way)

    def to_repeat(self, which: str) -> list[int]:
        """Return the numbers of the cells to run twice: all for "all", none for "off".

        For any other value, these are the cells with the first seed. Cells in real time are left out, as no
        two of their runs are the same.
        """
        if which == "off":
            return []
        cells = self.resolved.cells
        simulated = [number for number in self.cells if not is_real(cells[number].scenario.world)]
        if which == "all" or not simulated:
            return simulated
        return [number for number in simulated if cells[number].seed == cells[simulated[0]].seed]

    def narrowed(self, settings: Container[str]) -> list[str]:
        """Return the keys of the file that `settings` or the choice of cells have reduced to one value."""
        cells = self.resolved.cells
        left = [key for key in cells[self.cells[0]].values if _distinct(self.chosen(), key) == 1]
        return [key for key in left if key in settings or _distinct(cells, key) > 1]

    def not_compared(self, narrowed: Container[str]) -> list[Compare]:
        """Return the checks that compare along one of the narrowed keys."""
        checks = self.resolved.cells[0].scenario.checks
        return [check for check in checks if isinstance(check, Compare) and check.across in narrowed]

    def compare(self, narrowed: Sequence[str]) -> None:
        """Judge the checks that compare several cells."""

        def place_of(index: int) -> str:
            return self.resolved.document.place(("checks", index))

        checks = self.resolved.cells[0].scenario.checks
        if not any(isinstance(check, Compare) for check in checks):
            return
        from lmos_actors.scenario.judge import judge_compared

        self.result.compared[:] = judge_compared(checks, self.result.runs, place_of, narrowed=narrowed)


def _distinct(cells: Iterable[Cell], key: str) -> int:
    return len({str(cell.values[key]) for cell in cells})
