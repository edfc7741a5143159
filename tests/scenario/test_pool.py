"""Runs in processes of a pool: in which order, and what becomes of them if a process dies or is slow."""

from __future__ import annotations

import json
import signal
import sys
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest

from lmos_actors.scenario.cells import FileJobs, Jobs, Pool, Task
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import (
    RunLost,
    RunOrder,
    RunProgress,
    Worker,
    WorkerMessage,
    WorkerReady,
    run_cell,
)
from tests.scenario.project import CAST, DYING, Project, die, dying, story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}
PATIENCE = 40.0  # seconds after which a process is taken to hang; none needs a tenth of it


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path_factory.mktemp("pool"))
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    made.write("dying.py", DYING)
    yield made
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("cast", "dying"):
            del sys.modules[name]


def order(file: str, label: str = "seed=1", **more: Any) -> RunOrder:
    given: dict[str, Any] = {"settings": {}, "seeds": None, "cell": 0, "trial": 1, "real_limit": 20.0}
    return RunOrder(file=file, label=label, **{**given, **more})


def results(inbox: SimpleQueue[WorkerMessage], count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        what = inbox.get(timeout=PATIENCE).what
        found += [] if isinstance(what, WorkerReady) else [what]
    return found


@pytest.mark.slow
def test_a_worker_takes_orders_one_after_the_other(project: Project) -> None:
    file = str(project.root / project.write("orders.yaml", story(NOTE, seeds=[1, 2])))
    inbox: SimpleQueue[WorkerMessage] = SimpleQueue()
    worker = Worker("1", inbox)
    worker.begin(order(file))
    worker.begin(order(file, "seed=2", cell=1, trial=3, log=False))
    worker.begin(order(file, "seed=3", cell=1))
    first, second, third = results(inbox, 3)
    worker.end()
    assert (first.seed, first.ok, second.seed, second.trial, second.log) == (1, True, 2, 3, ())
    assert json.loads(first.log[0])["seed"] == 1
    assert third == RunLost("RuntimeError: the file has changed while it was being run")
    assert inbox.empty()  # it was told to end: that is no news


@pytest.mark.slow
def test_results_come_through_whole(project: Project) -> None:
    sizes = {"name": "é", "size": 3}
    text = story(NOTE, matrix={"room": [sizes]}).replace(
        '"use": "cast.py:Actor"', '"use": "cast.py:Actor", "mailbox": {"size": "$(matrix.room.size)"}'
    )
    file = project.write("whole.yaml", text)
    resolved = load_scenario(project.root / file)
    here: RunResult = run_cell(resolved, resolved.cells[0], 1)
    inbox: SimpleQueue[WorkerMessage] = SimpleQueue()
    worker = Worker("1", inbox)
    worker.begin(order(str(project.root / file), here.label))
    (there,) = results(inbox, 1)
    worker.end()
    assert there.values == {"room": sizes}
    assert attrs.evolve(here, real=0.0) == attrs.evolve(there, real=0.0)
    assert here.ok


def next_end(pool: Pool) -> tuple[Task, Any]:
    """Wait for the next run to end; where the machine is slow, some say before that how far they are."""
    while (said := pool.take()) is None or isinstance(said[1], RunProgress):
        pass
    return said


@pytest.mark.slow
def test_a_pool_replaces_a_process_and_what_it_had_to_do_is_done(project: Project) -> None:
    """Second runs wait in one process; the first of them kills it."""
    bad = str(project.root / project.write("bad.yaml", dying(die(signal.SIGKILL))))
    good = str(project.root / project.write("fine.yaml", story(NOTE)))
    tasks = [Task(number, 1, second=True) for number in range(3)]
    heard: list[Any] = []
    with Pool() as pool:
        for task, file in zip(tasks, (bad, good, good), strict=True):
            pool.give(task, order(file), beside=False)
        assert pool.busy == 3
        while len(heard) < 3:
            heard.append(next_end(pool))
    assert [task for task, _ in heard] == tasks
    assert heard[0][1] == RunLost("its process ended by signal SIGKILL")
    assert [what.ok for _, what in heard[1:]] == [True, True]


@pytest.mark.slow
def test_a_run_that_is_dropped_is_not_heard_of(project: Project) -> None:
    spin = {"do": "invoke", "target": "actor", "action": "spin"}
    busy = str(project.root / project.write("spins.yaml", story(spin)))
    good = str(project.root / project.write("fine.yaml", story(NOTE)))
    first, second = Task(0, 1, second=True), Task(1, 1, second=True)
    with Pool() as pool:
        pool.give(first, order(busy), beside=False)
        pool.give(second, order(good), beside=False)
        pool.drop(first)
        assert pool.busy == 1
        task, said = next_end(pool)
    assert task is second
    assert said.ended == "passed"


@pytest.mark.slow
def test_first_and_second_runs_have_other_hash_seeds(project: Project) -> None:
    step = {"do": "invoke", "id": "seed", "target": "actor", "action": "seed"}
    file = str(project.root / project.write("seeds.yaml", dying(step)))
    digests: list[str] = []
    with Pool() as pool:
        for second in (False, True, False):
            pool.give(Task(0, 1, second), order(file))
            _, said = next_end(pool)
            assert not isinstance(said, RunLost)
            digests.append(said.digest)
    assert digests[0] == digests[2] != digests[1]


class Backwards:
    """A pool whose runs end in the opposite order."""

    def __init__(self) -> None:
        self.given: list[tuple[Task, RunOrder]] = []

    @property
    def busy(self) -> int:
        return len(self.given)

    def has_room(self, *, second: bool) -> bool:
        return True

    def give(self, task: Task, order: RunOrder, *, beside: bool) -> None:
        self.given.append((task, order))

    def take(self, *, wait: bool = True) -> tuple[Task, RunLost] | None:
        return (self.given.pop()[0], RunLost("gone")) if wait and self.given else None


class Ear:
    """Notes what it is told."""

    draws = False
    fail_fast = False

    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []

    def wants_log(self, cell: Any) -> bool:
        return False

    def gone(self, cell: Any, trial: int) -> None:
        pass

    def ended(self, cell: Any, run: RunResult) -> None:
        self.heard.append((run.seed, run.trial))


def test_runs_that_end_in_any_order_are_shown_in_one_order(project: Project) -> None:
    file = project.write("order.yaml", story(NOTE, seeds=[1, 2, 3]))
    asked = FileJobs(
        speed=1.0,
        file=file, resolved=load_scenario(project.root / file), settings={}, seeds=None, until=None,
        cells=[0, 1, 2], twice=[], trials=2, time_limit=9.0, workers=6,
    )  # fmt: skip
    pool, ear = Backwards(), Ear()
    Jobs(asked, cast("Any", pool), cast("Any", ear)).run()
    assert ear.heard == [(seed, trial) for seed in (1, 2, 3) for trial in (1, 2)]
