"""Bugs that are planted in agents, in `planted`: `explore` finds each, and shrinks it to a small file."""

from __future__ import annotations

import json
import sys
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING

import attrs
import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.explore import (
    Search,
    Shrinker,
    explored,
    failures_of,
    faults_of,
    plain_cells,
    space_of,
    text_of,
    weight_of,
    with_schedule,
    yaml_of,
)
from lmos_actors.scenario.format import load_scenario, resolve
from lmos_actors.scenario.run import ExploredRun, RunLost, StateSampler, run_cell
from lmos_actors.system import accepts
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lmos_actors.reports import RunResult
    from lmos_actors.scenario.explore import Data, Explored

FOLDER = ROOT / "tests/scenario/planted"

BUDGET = 640
"""Runs within which each bug is found by a search with any of the seeds."""


@attrs.frozen
class Bug:
    """A planted bug: its file, the agent that has it and the one that has not, and the failure it leads to.

    `seed` is that of a search which finds it soon. Over all seeds chance alone needs `ratio` times as many
    runs, and some more: docs/explanation/performance.md has the figures. `seeds` is how many are compared:
    fewer of what takes long.
    """

    file: str
    wrong: str
    right: str
    failure: str
    seed: int
    ratio: float
    seeds: int = 20


BUGS = [
    Bug("lost-update", "lists:Device", "lists:RightDevice", "check eventually all_there: not met", 18, 3),
    Bug("two-leaders", "terms:Candidate", "terms:RightCandidate", "check never two_leaders: broken", 1, 2, 8),
    Bug("double-charge", "checkout:Bank", "checkout:RightBank", "check always charged_once: broken", 3, 2),
    Bug("handled-twice", "newspaper:Reader", "newspaper:RightReader", "check never read_twice: broken", 9, 3),
    Bug("lost-message", "meters:Meter", "meters:RightMeter", "check always none_missing: broken", 7, 2.2, 8),
    Bug("own-writes", "notes:Author", "notes:RightAuthor", "check always fresh: broken", 15, 2.5),
]
MARKS = {
    "handled-twice": "slow",
    "own-writes": "slow",
    "lost-message": "matrix",
    "lost-update": "matrix",
    "two-leaders": "matrix",
}
# what finds and shrinks the other one is what finds these
of_the_oldest = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="searches are the same with every Python; one of them looks at many"
)
by_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.file)


class Hunt:
    """The search for one bug, as `explore` does it, in this process. With `right` agents there is none."""

    def __init__(self, bug: Bug, *, right: bool = False) -> None:
        self._bug = bug
        self._place = str(FOLDER / f"{bug.file}.yaml")
        resolved = load_scenario(self._place)
        (self._data,) = plain_cells(resolved.document, {})
        if right:
            self._data = json.loads(text_of(self._data).replace(bug.wrong, bug.right))
        self._space = space_of(resolved.cells[0], 0.0)

    def run(self, data: Data) -> Explored:
        """Run a file."""
        text = text_of(data)
        try:
            resolved = resolve(self._place, settings={}, seeds=None, accepts=accepts, text=text, fitted=True)
        except FileError as error:
            return explored(RunLost(str(error), refused=True))
        states = StateSampler()
        result = run_cell(resolved, resolved.cells[0], 1, real_limit=60, whole_log=False, states=states)
        return explored(ExploredRun(result, states.states, states.instants))

    def runs(self, seed: int, *, guided: bool = True) -> Iterator[tuple[Data, Explored]]:
        """Yield the runs of a search, with their files."""
        search = Search([self._space], [1], seed, guided=guided)
        while True:
            found: list[Explored] = []
            for schedule in search.batch():
                data = with_schedule(self._data, schedule.seed, schedule.faults)
                found.append(self.run(data))
                yield data, found[-1]
            search.take([run.outcome for run in found])

    def find(self, seed: int, most: int = BUDGET, *, guided: bool = True) -> tuple[int, Data | None]:
        """Return in which run the bug is found, and its file; None if it is not, in so many runs."""
        for number, (data, run) in enumerate(islice(self.runs(seed, guided=guided), most), 1):
            if self._bug.failure in run.failures:
                return number, data
        return most, None

    def shrunk(self, data: Data) -> Data:
        """Shrink a file that fails."""
        return Shrinker(data, self._first, instants=self._instants).run()

    def _instants(self, data: Data) -> Sequence[int]:
        return self.run(data).outcome.instants

    def _first(self, several: Sequence[Data]) -> int | None:
        runs = enumerate(map(self.run, several))
        return next((number for number, run in runs if self._bug.failure in run.failures), None)


def run_file(place: Path) -> RunResult:
    resolved = load_scenario(str(place))
    return run_cell(resolved, resolved.cells[0], 1, real_limit=60)


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=[getattr(pytest.mark, MARKS[bug.file])] if bug.file in MARKS else [])
        for bug in BUGS
    ],
    ids=lambda bug: bug.file,
)
def test_a_bug_is_found_and_its_file_is_small_and_fails_each_time(bug: Bug, tmp_path: Path) -> None:
    hunt = Hunt(bug)
    _, data = hunt.find(bug.seed, 65)
    assert data is not None
    small = hunt.shrunk(data)
    assert weight_of(small)[1] <= 3
    assert 1 <= len(faults_of(small)) <= 2
    place = tmp_path / "found.yaml"
    (tmp_path / "pyproject.toml").touch()
    place.write_text(yaml_of(small))
    first, second = run_file(place), run_file(place)
    assert bug.failure in failures_of(first)
    assert (first.digest, first.failures) == (second.digest, second.failures)
    assert bug.wrong in place.read_text()
    place.write_text(yaml_of(small).replace(bug.wrong, bug.right))
    assert failures_of(run_file(place)) == ()  # it is the agent that fails, not the file


@pytest.mark.matrix
@of_the_oldest
@pytest.mark.timeout(900)
@by_bug
def test_a_search_needs_fewer_runs_than_chance(bug: Bug) -> None:
    """Chance goes on until it has had its share of runs: more would prove nothing more."""
    hunt = Hunt(bug)
    seeds = range(1, bug.seeds + 1)
    guided = [hunt.find(seed) for seed in seeds]
    assert [seed for seed, (_, data) in zip(seeds, guided, strict=True) if data is None] == []
    left = ceil(bug.ratio * sum(runs for runs, _ in guided))
    for seed in seeds:
        left -= hunt.find(seed, left, guided=False)[0]
        if not left:
            return
    raise AssertionError(f"chance needed {left} runs fewer than {bug.ratio} times those of the search")


@pytest.mark.matrix
@of_the_oldest
@by_bug
def test_nothing_is_found_in_agents_without_the_bug(bug: Bug) -> None:
    """So no file asks for what cannot be."""
    for number, (data, run) in enumerate(islice(Hunt(bug, right=True).runs(1), 129)):
        assert run.failures == (), (number, yaml_of(data))
