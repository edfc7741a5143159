"""The search of `explore` from its first run to its last: batches of runs and their finds."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.reports import count
from lmos_actors.scenario.run import log_header, real_limit_of
from lmos_actors.system.model import is_real

from ._finds import Finds
from ._plain import plain_cells, with_schedule
from ._runs import Runs
from ._search import Search
from ._space import space_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.reports import Failure
    from lmos_actors.scenario.cells import Pool
    from lmos_actors.scenario.format import Cell, Resolved
    from lmos_actors.scenario.model import Explore

    from ._finds import SearchShow
    from ._folder import Find, Folder
    from ._plain import Data
    from ._runs import Explored
    from ._search import Schedule

MOST_FOUND: Final = 10
"""Maximum number of different failures, after which a search ends."""

MOST_CELLS: Final = 64
"""Maximum number of matrix combinations in one search."""


@attrs.frozen(kw_only=True)
class SearchRequest:
    """A request to search a file: until `runs` runs are done, or `minutes` minutes have passed.

    Up to `workers` runs go on at once, each for at most `time_limit` seconds (default: the limit in the
    file). The `seed` determines all random choices. With `all_failures` the search goes on after the first
    new failure. With `fresh` it discards the results of earlier searches.
    """

    file: str
    settings: dict[str, str]
    runs: int | None
    minutes: float | None
    workers: int
    seed: int
    all_failures: bool = False
    fresh: bool = False
    time_limit: float | None = None


def _cells_of(resolved: Resolved, file: str) -> list[tuple[Cell, Data]]:
    """Return the first cell of each combination in a file's matrix, with that combination as file data.

    Raises ConfigError.
    """
    plain = plain_cells(resolved.document, resolved.settings)
    if len(plain) > MOST_CELLS:
        why = f"{len(plain)} combinations are too many to explore at once: --set narrows the matrix"
        raise ConfigError(why, file)
    each = len(resolved.cells) // len(plain)
    cells = [(resolved.cells[number * each], data) for number, data in enumerate(plain)]
    for cell, _ in cells:
        if is_real(cell.scenario.world):
            why = f"time is real in world: {cell.scenario.world}, and no run is like another"
            raise FileError([resolved.document.mistake(("world",), f"{why}: explore memory or wire")])
        if cell.scenario.explore is None:
            hint = '"explore: {faults: [crash, pause]}", for example'
            why = f"says nothing of what may be drawn: {hint}"
            raise FileError([resolved.document.mistake((), why)])
    return cells


class Exploration:
    """One search of a file, with the folder for its progress and a running pool of worker processes.

    Raises ConfigError.
    """

    def __init__(
        self, request: SearchRequest, resolved: Resolved, folder: Folder, pool: Pool, show: SearchShow
    ) -> None:
        self.request = request
        self.resolved = resolved
        self._folder = folder
        self._show = show
        self._cells = _cells_of(resolved, request.file)
        limit = request.time_limit or max(real_limit_of(cell) for cell, _ in self._cells)
        access, workers = resolved.access, request.workers
        self._runs = Runs(pool, request.file, workers=workers, time_limit=limit, access=access)
        self._finds = Finds(request.file, folder, self._runs, show, request.time_limit)
        self._known: deque[Explored] = deque()
        self._began = monotonic()
        self.resumed = 0
        """The number of runs that earlier searches have done."""
        self.done = 0
        """The number of runs done, including those of earlier searches."""
        self.states = 0
        """The number of states reached."""
        self.slow = 0
        """The number of runs that took too long with little processor time."""
        self.failure: Failure | None = None
        """Why the file could not run, "" if it could. If not, nothing was searched."""

    @property
    def found(self) -> list[Find]:
        """The failures found by this search and by earlier ones."""
        return self._folder.finds

    @property
    def seconds(self) -> float:
        """The number of seconds since the search began."""
        return monotonic() - self._began

    @property
    def explore(self) -> Explore:
        """The `explore` part of the file: the faults and arguments that may be drawn."""
        found = self._cells[0][0].scenario.explore
        assert found is not None  # `_cells_of` has checked it
        return found

    def run(self) -> None:
        """Search until there is nothing left to do. Raises KeyboardInterrupt, ConfigError."""
        request = self.request
        known, changed = self._folder.open(self._head(), fresh=request.fresh)
        self._known.extend(known)
        self.resumed = len(known)
        if changed:
            self._show.note(f"{self.request.file}: the file or its agents have changed, it is searched anew")
            self._finds.check_again()
        self._finds.go_on()
        baselines = self._baselines()
        if baselines is None:
            return
        spaces = [space_of(cell, run.virtual) for (cell, _), run in zip(self._cells, baselines, strict=True)]
        search = Search(spaces, self._seeds(), request.seed)
        batch = search.batch()
        while self._note_batch(search, batch, baselines):
            batch = search.batch()
            baselines = self._batch([self._data(schedule) for schedule in batch])

    def _head(self) -> dict[str, Any]:
        headers = [log_header(self.resolved, cell, 1) for cell, _ in self._cells]
        sources: dict[str, Any] = {}
        for header in headers:
            sources |= header["sources"] if isinstance(header["sources"], dict) else {}
        return {
            "sha256": headers[0]["sha256"],
            "settings": self.request.settings,
            "sources": sources,
            "seed": self.request.seed,
        }

    def _seeds(self) -> list[int]:
        each = len(self.resolved.cells) // len(self._cells)
        return [cell.seed for cell in self.resolved.cells[:each]]

    def _data(self, schedule: Schedule) -> Data:
        data = self._cells[schedule.cell][1]
        return with_schedule(data, schedule.seed, schedule.faults, schedule.arguments)

    # ---- runs

    def _baselines(self) -> list[Explored] | None:
        """Run each combination once without drawn faults; return None if the search cannot go on.

        Raises ConfigError if a file is refused.
        """
        seed = self._seeds()[0]
        runs = self._batch([with_schedule(data, seed, ()) for _, data in self._cells])
        for run in runs:
            if run.refused is not None:
                raise ConfigError(run.refused, self.request.file)
            if run.slow:
                return None
            if run.result is not None and run.result.ended == "could not run":
                self.failure = run.result.failures[0]
                self._show.note(f"{self.request.file}: {self.failure.what}: {self.failure.saw}")
                return None
        return runs if len(runs) == len(self._cells) else None

    def _batch(self, files: Sequence[Data]) -> list[Explored]:
        """Return the runs of a batch: known ones of earlier searches first, then new ones.

        There are fewer runs than files if the request allows no more.
        """
        left = len(files) if self.request.runs is None else self.request.runs - self.done
        files = files[: max(left, 0)]
        runs = [self._known.popleft() for _ in files if self._known]
        self.done += len(runs)
        for run in self._runs.in_order(files[len(runs) :]):
            self._folder.add(run)
            runs.append(run)
            self.done += 1
            seconds = max(self.seconds, 1e-9)
            done = f"{count(self.done, 'run')}, {count(self.states, 'state')}"
            found = f"{count(len(self.found), 'failure')} found"
            self._show.progress(f"{done}, {found}, {self._runs.count / seconds:.0f} runs/s")
            if self._is_over():
                break
        self._runs.drain()
        self.slow += sum(run.slow for run in runs)
        return runs

    def _is_over(self) -> bool:
        request = self.request
        if request.minutes is not None and self.seconds >= 60.0 * request.minutes:
            return True
        return request.runs is not None and self.done >= request.runs

    def _note_batch(self, search: Search, batch: Sequence[Schedule], runs: list[Explored]) -> bool:
        """Note the results of a batch; return whether the search is to go on."""
        outcomes = [run.outcome for run in runs]
        self.states = search.states_with(outcomes)
        if len(runs) == len(batch):
            search.take(outcomes)
        refused = [run.refused for run in runs if run.refused is not None]
        if refused and len(refused) == len(runs):
            raise ConfigError(refused[0], self.request.file)
        before = self.done - len(runs)
        for number, run in enumerate(runs):
            name = run.outcome.failure
            if name is not None and not self._finds.knows(name) and len(self.found) < MOST_FOUND:
                self._finds.add(name, self._data(batch[number]), before + number + 1)
        if self._is_over() or len(runs) < len(batch) or len(self.found) >= MOST_FOUND:
            return False
        return self.request.all_failures or not self._finds.added
