"""One run of one cell: a world of its own, its agents, its story or timeline, its checks."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import attrs
import trio

from lmos_actors.errors import (
    LmosActorsError,
    RestartIntensityExceeded,
    StartFailed,
    SupervisionError,
    group_of,
    text_of,
)
from lmos_actors.reports import Failure, RunResult, last_messages
from lmos_actors.simulation import TraceLog

from .._worlds import inhabit, is_real
from ..model import Compare, Scenario, Simulation
from ._doubles import Doubles
from ._guard import RUNTIME, Guard, staying
from ._heads import head_of
from ._run import Run, Watching
from ._scene import Scene, looked_at
from ._steps import Story
from ._timeline import Timeline, entries_of
from ._told import Told
from ._watch import Watch
from ._wording import count_steps, describe, each_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.files import DataPath
    from lmos_actors.reports import CheckResult, Ended, FaultResult

    from ..format import Cell, Resolved
    from ._run import Progress
    from ._stopping import Stop

REAL_LIMIT = 60.0
"""Seconds of real time that one run may take, unless said otherwise."""

SHOWN_CAUSES = 3
SHOWN_CRASHES = 5
MOST_FAILURES = 200
TAIL = 200
"""How many of the last lines of a log are kept where the whole is not wanted."""


@attrs.define(eq=False)
class _Telling:
    """One run while it goes on, and what is to be told of it."""

    run: Run
    root: Path
    log: TraceLog
    guard: Guard
    doubles: Doubles
    telling: Callable[[Watching], None]
    ended: Ended = "failed"
    told: bool = False
    virtual: float = 0.0
    tree: tuple[str, ...] = ()
    faults: tuple[FaultResult, ...] = ()
    judged: list[CheckResult] = attrs.Factory(list["CheckResult"])
    problems: list[Failure] = attrs.Factory(list[Failure])

    def problem(self, what: str, expected: str, saw: str, place: str = "") -> None:
        self.problems.append(Failure(place, what, expected, saw))


def run_cell(
    resolved: Resolved,
    cell: Cell,
    trial: int,
    *,
    real_limit: float = REAL_LIMIT,
    progress: Progress = lambda done, total, text: None,
    telling: Callable[[Watching], None] = lambda watching: None,
    last_words: Callable[[str, str], None] = lambda why, where: None,
    whole_log: bool = True,
    stop: Stop | None = None,
    speed: float = 1.0,
) -> RunResult:
    """Run a cell once in a world of its own, in the main thread. Raises KeyboardInterrupt, and nothing else.

    What agents print goes to standard error. Past `real_limit` seconds of real time the run is ended; if it
    cannot be, `last_words` is called with why and where, and the process ends with 124; with 130 if it
    cannot be ended by Ctrl-C.

    `progress` is told how far the run is, in steps, or microseconds of a simulation; `telling` is given what
    may be looked at while it goes on, once. Without `whole_log` the result has only the last lines.
    `stop` looks at the run at its stop point and ends it there: the result is then that of no whole run.
    Where the world's time is real, `speed` of its seconds go by in one; with another than 1 only while
    nobody has anything to do.
    """
    log = TraceLog(run=head_of(resolved, cell, trial), keep=None if whole_log else TAIL)
    run = Run(cell, resolved.document, Watch(log), Told(_count(cell)), progress)
    if stop is not None:
        run.stop = stop
        stop.watch(log)
    doubles = Doubles(cell, resolved.document, cell.paths)
    guard = Guard(real_limit, last_words)
    one = _Telling(run, resolved.root, log, guard, doubles, telling)
    began = perf_counter()
    try:
        with contextlib.redirect_stdout(sys.stderr), staying(), guard:
            inhabit(cell.scenario.world, _live, one, seed=cell.seed, log=log, speed=speed)
    except BaseException as error:  # noqa: ASYNC103 -- what ended the run is its verdict
        if not _interrupted(error):
            _went_wrong(one, error)
            one.problems += doubles.open_matters(told=False)
        elif not guard.fired:
            raise KeyboardInterrupt from None
    if guard.interrupted and not guard.fired:  # and the code that it hit has suppressed it
        raise KeyboardInterrupt
    if guard.fired:
        one.ended = "time limit"
        expected = f"an end within {real_limit:g} s of real time"
        place = run.at if guard.where == RUNTIME and run.at else guard.where
        one.problems = [Failure("", "the run", expected, f"it was still busy at {place}")]
    log.end()
    return _result(one, trial, perf_counter() - began, whole_log)


def _count(cell: Cell) -> int:
    """Count what there is to do: steps, or entries of a timeline."""
    scenario = cell.scenario
    return count_steps(scenario.steps) if isinstance(scenario, Scenario) else len(entries_of(scenario))


def _each(cell: Cell) -> Iterator[tuple[DataPath, str]]:
    """Return what there is to do, each once: where it stands in the file, and in words."""
    scenario = cell.scenario
    if isinstance(scenario, Scenario):
        yield from ((path, describe(step)) for path, step in each_step(scenario.steps))
    else:
        yield from ((("timeline", index), describe(entry)) for index, entry in entries_of(scenario))


async def _live(one: _Telling) -> None:
    stop = one.run.stop
    with one.guard.heeding(), contextlib.nullcontext() if stop is None else stop.around():
        await _stage(one)


async def _stage(one: _Telling) -> None:
    run, scene = one.run, Scene(one.run, one.doubles)
    async with scene.open():
        run.watch.often = run.follow
        one.telling(Watching(run))
        await _tell(one)
        if one.told:
            await scene.last_look()
        if isinstance(run.cell.scenario, Simulation):
            scene.cut()
    one.problems += one.doubles.open_matters(told=one.told)
    if one.told:
        _judge(one)
    _crashes(one)
    if one.told and not one.problems and not run.failures:
        one.ended = "passed"


async def _tell(one: _Telling) -> None:
    run, scenario = one.run, one.run.cell.scenario
    timeout = scenario.timeout if isinstance(scenario, Scenario) else None
    story = Story(run, scenario) if isinstance(scenario, Scenario) else Timeline(run, scenario)
    began = 0.0 if timeout is None else trio.current_time()
    try:
        with trio.move_on_after(float("inf") if timeout is None else timeout) as scope:
            one.told = await story.tell()
    finally:
        one.virtual = round(trio.current_time() - began, 6)
        one.tree = run.cast.draw()
        one.faults = run.faults.results() if run.faults is not None else ()
    if timeout is not None and (scope.cancelled_caught or (not one.told and one.virtual >= timeout)):
        one.told = False
        one.ended = "failed" if run.failures else "time limit"
        at = run.told.still() or run.at
        one.problem("the story", f"its end within {timeout}{_of_time(one)}", f"still at {at}")


def _of_time(one: _Telling) -> str:
    return "" if is_real(one.run.cell.scenario.world) else " of virtual time"


# --- checks


def _judge(one: _Telling) -> None:
    """Take the verdicts, once the last agent has stopped."""
    judges = one.run.judges
    assert judges is not None
    one.judged = judges.end()
    for check in one.judged:
        if not check.ok:
            kind = "" if check.name.startswith(check.kind) else f"{check.kind} "
            one.problem(f"check {kind}{check.name}", check.expected, check.saw, check.place)


def _crashes(one: _Telling) -> None:
    """Agents that crashed though the file does not ask for it fail the run."""
    run = one.run
    found = [crash for crash in run.crashes.unexpected() if not looked_at(run.cell, crash[0])]
    for agent, reason, count in found[:SHOWN_CRASHES]:
        times = f" ({count} times)" if count > 1 else ""
        one.problem(f"agent {agent}", "no crash that the file does not ask for", f"{reason}{times}")
    if len(found) > SHOWN_CRASHES:
        others = sum(count for _, _, count in found[SHOWN_CRASHES:])
        one.problem("other agents", "no crash that the file does not ask for", f"{others} more crashes")


# --- what went wrong around the story


def _interrupted(error: BaseException) -> bool:
    group = group_of(error)
    return isinstance(error, KeyboardInterrupt) or any(map(_interrupted, group.exceptions if group else ()))


def _went_wrong(one: _Telling, error: BaseException) -> None:
    """Note an exception that left the world."""
    if isinstance(error, trio.TrioInternalError):  # of a system task, which an agent has begun
        error = error.__cause__ or error
    if isinstance(error, StartFailed):
        _not_started(one, error)
    elif isinstance(error, RestartIntensityExceeded):
        causes = [said(cause, one.root) for cause in error.causes[-SHOWN_CAUSES:]]
        one.problem("the tree", "a root supervisor that goes on", "; ".join([str(error), *causes]))
    elif isinstance(error, LmosActorsError) and not isinstance(error, SupervisionError):
        one.problem("the run", "an end", f"{type(error).__name__}: {error}")
    else:
        one.problem("the run", "an end", said(error, one.root))


def _not_started(one: _Telling, error: StartFailed) -> None:
    path = error.path  # of a supervisor, whose child could not start
    for inner in re.findall(r"(\S+) could not start", str(error)):
        path = inner if inner.startswith(f"{path}/") else path
    if not one.tree or one.run.cast.never_started(path):
        one.ended = "could not run"
    saw = said(error.__cause__ or error, one.root)
    one.problem(f"start {path}", "a running agent", saw, _declared(one.run, path))


def _declared(run: Run, path: str) -> str:
    """Return the place in the file of an agent, a population, or the tree."""
    scenario, names = run.cell.scenario, path.split("/")
    if isinstance(scenario, Simulation):
        for index, entry in enumerate(scenario.population):
            if entry.id == names[0]:
                return run.place(("population", index))
    name = next((name for name in (path, names[-1]) if name in scenario.agents), None)
    here = ("tree",) if name is None else ("agents", name)
    return run.place(here, key=True)


def said(error: BaseException, root: Path) -> str:
    """Return what was raised, and where in the project."""
    error = _only(error)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(root)
        and not Path(frame.filename).is_relative_to(_PACKAGE)
        and "site-packages" not in frame.filename
    ]
    place = f" at {Path(frames[-1].filename).relative_to(root)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {text_of(error)}".rstrip(": ") + place


def _only(error: BaseException) -> BaseException:
    """Return the one exception of a group, through all its levels; a group of several as it is."""
    group = group_of(error)
    return _only(group.exceptions[0]) if group is not None and len(group.exceptions) == 1 else error


_PACKAGE = Path(__file__).resolve().parents[2]


def _result(one: _Telling, trial: int, real: float, whole_log: bool) -> RunResult:
    run, scenario = one.run, one.run.cell.scenario
    failures = [*run.failures, *one.problems]
    if one.ended == "passed" and failures:  # of what came after the verdict
        one.ended = "failed"
    if one.ended == "failed" and not failures:
        failures = [Failure("", "the tree", "one that lives until the story ends", f"its end at {run.at}")]
    checks = [check for check in scenario.checks if not isinstance(check, Compare)]
    passed = sum(check.ok for check in one.judged)
    done, whole = (run.told.done, passed), (run.told.total, len(checks))
    if one.ended == "passed" and (done != whole or not (any(whole) or scenario.measure)):
        one.ended = "failed"  # nothing passes by accident
        wanted = f"{whole} steps and checks" if any(whole) else "something to do, to check or to measure"
        failures.append(Failure("", "the run", wanted, f"{done}" if any(whole) else "nothing"))
    lines = one.log.lines()
    return RunResult(
        label=run.cell.label,
        values=run.cell.values,
        seed=run.cell.seed,
        trial=trial,
        ended=one.ended,
        steps=run.told.total,
        steps_done=run.told.done,
        checks=len(checks),
        checks_passed=passed,
        failures=tuple(failures[:MOST_FAILURES]),
        virtual=one.virtual,
        real=real,
        digest=one.log.digest(),
        tree=one.tree,
        told=run.told.results((run.place(path), what) for path, what in _each(run.cell)),
        judged=tuple(one.judged),
        series=run.judges.series() if run.judges is not None else (),
        faults=one.faults,
        metrics=run.judges.metrics() if run.judges is not None else {},
        last=last_messages(lines),
        log=tuple(lines) if whole_log else (),
        logged=len(one.log),
        real_time=is_real(scenario.world),
    )
