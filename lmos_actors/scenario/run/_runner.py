"""Execution of one run of one cell, from an empty world to its RunResult.

`run_cell` never raises because of a file or its agents: every error becomes a failure of the result. The
verdict is "passed" only if every step and every check is counted as done (`_result` compares the numbers), so
that a run with a step or check skipped by mistake cannot pass.
"""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

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
from lmos_actors.system.model import PROCESS, is_real

from .._guard import GRACE, REAL_LIMIT, RUNTIME, Guard, restoring_directory
from .._worlds import run_world
from ..model import Compare, Scenario, Simulation
from ._doubles import Doubles
from ._run import Run, RunObserver
from ._run_environment import RunEnvironment, is_crash_expected, way_to_expect
from ._secrets import without_secrets
from ._step_text import count_steps, describe, each_step
from .records import StepLog, Watch, log_header
from .steps import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.files import DataPath
    from lmos_actors.reports import CheckResult, Ended, FaultResult

    from ..format import Cell, Resolved
    from ._run import Progress
    from ._watched import Onlooker, WatchedLog
    from .records import StateSampler, StopInstrument
    from .steps import Timeline

SHOWN_CAUSES = 3
SHOWN_CRASHES = 5
SHOWN_APPROVALS = 5
MOST_FAILURES = 200
TAIL = 200
SLOW = "the run, on this machine"
"""The failure of a run past its limit that may just be slow."""
"""Number of log lines that are kept without `whole_log`."""


@attrs.define(eq=False)
class _RunState:
    """A run in progress, with the data for its result."""

    run: Run
    root: Path
    log: TraceLog
    guard: Guard
    doubles: Doubles
    on_start: Callable[[RunObserver], None]
    hide_secrets: bool
    watched: WatchedLog | None = None
    """The part in front of the log, if the run is watched."""
    secrets: tuple[str, ...] = ()
    """The secrets that its log must not contain, with `hide_secrets`."""
    ended: Ended = "failed"
    completed: bool = False
    clock: trio.abc.Clock | None = None
    """The clock of the world, once the world exists."""
    virtual: float = 0.0
    tree: tuple[str, ...] = ()
    faults: tuple[FaultResult, ...] = ()
    judged: list[CheckResult] = attrs.Factory(list["CheckResult"])
    problems: list[Failure] = attrs.Factory(list[Failure])

    def add_problem(self, what: str, expected: str, saw: str, place: str = "") -> None:
        self.problems.append(Failure(place, what, expected, saw))


def real_limit_of(cell: Cell) -> float:
    """Return the default limit for a run of a cell, in seconds of real time."""
    scenario = cell.scenario
    populations = scenario.population if isinstance(scenario, Simulation) else ()
    begin = 0.0
    if cell.deployed is not None and scenario.world == PROCESS:
        begin = sum(float(group.ready) for group in cell.deployed.deployment.groups.values())
    agents = sum(population.count for population in populations)
    return REAL_LIMIT + begin + agents / 1_000  # one second more for so many agents of populations


def run_cell(
    resolved: Resolved,
    cell: Cell,
    trial: int,
    *,
    real_limit: float | None = None,
    progress: Progress = lambda done, total, text: None,
    on_start: Callable[[RunObserver], None] = lambda observer: None,
    on_stuck: Callable[[str, str], None] = lambda why, where: None,
    whole_log: bool = True,
    hide_secrets: bool = False,
    stop: StopInstrument | None = None,
    states: StateSampler | None = None,
    speed: float = 1.0,
    onlooker: Onlooker | None = None,
    of_processor: bool = False,
) -> RunResult:
    """Run a cell once in a new world, in the main thread. Blocks. Raises only KeyboardInterrupt.

    Agents print to standard error. A run that exceeds `real_limit` seconds of real time (None:
    `real_limit_of` the cell) is ended. If that fails, `on_stuck` is called with the reason and the run's
    activity, and the process exits with 124, or with 130 if Ctrl-C cannot end the run.

    `progress` is called with the number of steps done, or the microseconds of a simulation. `on_start` is
    called once, with a read-only view of the run. Without `whole_log` the result has only the last lines of
    the log. `hide_secrets` removes secrets from log lines, even those that agents passed on as plain data.
    `stop` takes a snapshot at its stop point and ends the run there; the result is then incomplete. `states`
    takes digests of the states reached. With `of_processor`, the limit is processor time; see `Guard`. If the
    world has real time, `speed` of its seconds pass per second while no task can run. `onlooker` gets the log
    while it is written, and may hold up virtual time.
    """
    to = None if onlooker is None else onlooker.writer
    log = TraceLog(to, run=log_header(resolved, cell, trial), keep=None if whole_log else TAIL)
    document = resolved.document_of(cell)
    run = Run(cell, document, Watch(log), StepLog(_count_steps(cell)), progress, resolved.access)
    run.stop, run.states = stop, states
    if stop is not None:
        stop.watch(log)
    limit = real_limit_of(cell) if real_limit is None else real_limit
    guard = _guard(limit, on_stuck, lambda where: _stuck_at(state, where), of_processor=of_processor)  # pyright: ignore[reportUnknownLambdaType]
    doubles = Doubles(cell, document, cell.system.paths)
    state = _RunState(run, resolved.root, log, guard, doubles, on_start, hide_secrets)
    state.watched = None if onlooker is None else onlooker.before(log, run, guard)
    began = perf_counter()
    try:
        with contextlib.redirect_stdout(sys.stderr), restoring_directory(), guard:
            run_world(cell.scenario.world, _run_interruptible, state, seed=cell.seed, log=log, speed=speed)
    except BaseException as error:  # noqa: ASYNC103 -- what ended the run is its verdict
        if not _interrupted(error):
            _note_end(state, error)
            state.problems += doubles.failures(complete=False)
        elif not guard.fired:
            raise KeyboardInterrupt from None
    if guard.interrupted and not guard.fired:  # the interrupted code has suppressed it
        raise KeyboardInterrupt
    _end(state, limit)
    return _result(state, trial, perf_counter() - began, whole_log)


def _guard(
    limit: float,
    on_stuck: Callable[[str, str], None],
    stuck_at: Callable[[str], str],
    *,
    of_processor: bool,
) -> Guard:
    """Return the guard of a run; if the run cannot be ended, the guard reports its activity."""

    def say(why: str, where: str) -> None:
        on_stuck(SLOW if guard.is_slow else why, stuck_at(where))

    guard = Guard(limit, say, of_processor=of_processor)
    return guard


def _end(state: _RunState, limit: float) -> None:
    """End the log of a run, and note whether the time limit has ended the run."""
    if state.guard.fired:
        state.ended = "time limit"
        expected = f"an end within {limit:g} s of real time"
        what = SLOW if state.guard.is_slow else "the run"
        run, where = state.run, state.guard.where
        if where == RUNTIME and run.at and isinstance(run.cell.scenario, Scenario):
            where = run.at  # for a timeline it would be the last entry, however long ago
        doing = "running" if where == RUNTIME else f"busy at {where}"
        far = _progress_at(run.cell, state.virtual)
        state.problems = [Failure("", what, expected, f"it was still {doing}, at {far}")]
    state.log.end()
    if state.watched is not None:
        state.watched.pass_on()


def _stuck_at(state: _RunState, where: str) -> str:
    """Return a text on the activity of a run that ignores interrupts. Called in the thread of the guard."""
    if where != RUNTIME:
        return f"it hangs at {where}"
    at = 0.0 if state.clock is None else state.clock.current_time()
    far = _progress_at(state.run.cell, at)
    return f"it was still running, at {far}, and needs more than {GRACE:g} s to stop"


def _progress_at(cell: Cell, at: float) -> str:
    """Return a text on the progress of a run at an instant."""
    scenario = cell.scenario
    of = f" of {float(scenario.stop.at):g} s" if isinstance(scenario, Simulation) else ""
    return f"{round(at, 3):g} s{of} of virtual time" if not is_real(scenario.world) else f"{at:.1f} s{of}"


def _count_steps(cell: Cell) -> int:
    """Return the number of steps of a scenario, or of timeline entries of a simulation."""
    scenario = cell.scenario
    return count_steps(scenario.steps) if isinstance(scenario, Scenario) else len(_entries_of(scenario))


def _each_step(cell: Cell) -> Iterator[tuple[DataPath, str]]:
    """Yield each step or entry once, as its path in the file and its text."""
    scenario = cell.scenario
    if isinstance(scenario, Scenario):
        yield from ((path, describe(step)) for path, step in each_step(scenario.steps))
    else:
        yield from ((("timeline", index), describe(entry)) for index, entry in _entries_of(scenario))


def _entries_of(simulation: Simulation) -> Sequence[tuple[int, Any]]:
    from .steps import entries_of

    return entries_of(simulation)


async def _run_interruptible(state: _RunState) -> None:
    stop = state.run.stop
    state.clock = trio.lowlevel.current_clock()
    if state.watched is not None:
        state.watched.open()
    with state.guard.handling_interrupts(), contextlib.nullcontext() if stop is None else stop.around():
        await _run_in_environment(state)


async def _run_in_environment(state: _RunState) -> None:
    run, environment = state.run, RunEnvironment(state.run, state.doubles, state.root)
    async with environment.open():
        run.watch.on_progress = run.report_progress
        state.on_start(RunObserver(run))
        await _run_story(state)
        _note_unanswered(state)
        if state.completed:
            await environment.judge_final_state()
        if state.hide_secrets:
            state.secrets = environment.secrets()
        if isinstance(run.cell.scenario, Simulation):
            environment.end_simulation()
    state.problems += state.doubles.failures(complete=state.completed)
    if state.completed:
        _judge(state)
    _note_crashes(state)
    if state.completed and not state.problems and not run.failures:
        state.ended = "passed"


async def _run_story(state: _RunState) -> None:
    run, scenario = state.run, state.run.cell.scenario
    timeout = scenario.timeout if isinstance(scenario, Scenario) else None
    if isinstance(scenario, Scenario):
        story: Story | Timeline = Story(run, scenario)
    else:
        from .steps import Timeline

        story = Timeline(run, scenario)
    began = 0.0 if timeout is None else trio.current_time()
    try:
        with trio.move_on_after(float("inf") if timeout is None else timeout) as scope:
            state.completed = await story.execute()
    finally:
        state.virtual = round(trio.current_time() - began, 6)
        state.tree = run.agents.draw()
        state.faults = run.faults.results() if run.faults is not None else ()
    if timeout is not None and (scope.cancelled_caught or (not state.completed and state.virtual >= timeout)):
        state.completed = False
        state.ended = "failed" if run.failures else "time limit"
        at = run.step_log.unfinished() or run.at
        span = f"{timeout}" if is_real(scenario.world) else f"{timeout} of virtual time"
        state.add_problem("the story", f"its end within {span}", f"still at {at}")


def _note_unanswered(state: _RunState) -> None:
    """Record unanswered questions of agents to people as failures of the run."""
    found = list(state.run.approvals.unanswered())
    for each in found[:SHOWN_APPROVALS]:
        what = f'approval "{each.text}" of {each.agent}'
        saw = "its deadline has refused it" if each.state == "expired" else "nobody has answered it"
        state.add_problem(what, 'a step "do: approve" or "do: refuse"', f'{saw} (key "{each.key}")')
    if len(found) > SHOWN_APPROVALS:
        others = f"{len(found) - SHOWN_APPROVALS} more that nobody has answered"
        state.add_problem("other approvals", 'a step "do: approve" or "do: refuse"', others)


# --- checks


def _judge(state: _RunState) -> None:
    """Collect the verdicts of all checks, once the last agent has stopped."""
    judges = state.run.judges
    assert judges is not None
    state.judged = judges.end()
    for check in state.judged:
        if not check.ok:
            kind = "" if check.name.startswith(check.kind) else f"{check.kind} "
            state.add_problem(f"check {kind}{check.name}", check.expected, check.saw, check.place)


def _note_crashes(state: _RunState) -> None:
    """Record unexpected crashes as failures of the run."""
    run = state.run
    found = [crash for crash in run.crashes.unexpected() if not is_crash_expected(run.cell, crash[0])]
    for agent, reason, count in found[:SHOWN_CRASHES]:
        times = f" ({count} times)" if count > 1 else ""
        saw = f"{reason}{times}{way_to_expect(run.cell, agent)}"
        state.add_problem(f"agent {agent}", "no crash that the file does not ask for", saw)
    if len(found) > SHOWN_CRASHES:
        others = sum(count for _, _, count in found[SHOWN_CRASHES:])
        state.add_problem("other agents", "no crash that the file does not ask for", f"{others} more crashes")


# --- errors outside the story


def _interrupted(error: BaseException) -> bool:
    group = group_of(error)
    return isinstance(error, KeyboardInterrupt) or any(map(_interrupted, group.exceptions if group else ()))


def _note_end(state: _RunState, error: BaseException) -> None:
    if isinstance(error, trio.TrioInternalError):  # from a system task that an agent has started
        error = error.__cause__ or error
    if isinstance(error, StartFailed):
        _note_failed_start(state, error)
    elif isinstance(error, RestartIntensityExceeded):
        causes = [describe_error(cause, state.root) for cause in error.causes[-SHOWN_CAUSES:]]
        state.add_problem("the tree", "a root supervisor that goes on", "; ".join([str(error), *causes]))
    elif isinstance(error, LmosActorsError) and not isinstance(error, SupervisionError):
        state.add_problem("the run", "an end", f"{type(error).__name__}: {error}")
    else:
        state.add_problem("the run", "an end", describe_error(error, state.root))


def _note_failed_start(state: _RunState, error: StartFailed) -> None:
    path = error.path  # from a supervisor whose child could not start
    for inner in re.findall(r"(\S+) could not start", str(error)):
        path = inner if inner.startswith(f"{path}/") else path
    if not state.tree or state.run.agents.never_started(path):
        state.ended = "could not run"
    saw = describe_error(error.__cause__ or error, state.root)
    remote = state.run.cell.system.remotes.get(path)
    if remote is not None:
        from .steps import remedy_for

        fix = remedy_for(remote, error.__cause__ or error)
        saw = f"{saw}; {fix}" if fix else saw
    state.add_problem(f"start {path}", "a running agent", saw, _declared(state.run, path))


def _declared(run: Run, path: str) -> str:
    """Return the place in the file that declares a path: an agent, a population, a group, or the tree."""
    scenario, names, deployed = run.cell.scenario, path.split("/"), run.cell.deployed
    if deployed is not None and scenario.world == PROCESS and names[0] in deployed.deployment.groups:
        return run.place(("nodes", names[0]), key=True)
    if isinstance(scenario, Simulation):
        for index, entry in enumerate(scenario.population):
            if entry.id == names[0]:
                return run.place(("population", index))
    name = next((name for name in (path, names[-1]) if name in scenario.agents), None)
    here = ("tree",) if name is None else ("agents", name)
    return run.place(here, key=True)


def describe_error(error: BaseException, root: Path) -> str:
    """Return an exception as text, with its place in the project."""
    error = _unwrap_single(error)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(root)
        and not Path(frame.filename).is_relative_to(_PACKAGE)
        and "site-packages" not in frame.filename
    ]
    place = f" at {Path(frames[-1].filename).relative_to(root)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {text_of(error)}".rstrip(": ") + place


def _unwrap_single(error: BaseException) -> BaseException:
    """Return the only exception in nested groups; a group of several exceptions is returned unchanged."""
    group = group_of(error)
    return _unwrap_single(group.exceptions[0]) if group is not None and len(group.exceptions) == 1 else error


_PACKAGE = Path(__file__).resolve().parents[2]


def _result(state: _RunState, trial: int, real: float, whole_log: bool) -> RunResult:
    run, scenario = state.run, state.run.cell.scenario
    failures = [*run.failures, *state.problems]
    if state.ended == "passed" and failures:  # a failure after the verdict
        state.ended = "failed"
    if state.ended == "failed" and not failures:
        failures = [Failure("", "the tree", "one that lives until the story ends", f"its end at {run.at}")]
    checks = [check for check in scenario.checks if not isinstance(check, Compare)]
    passed = sum(check.ok for check in state.judged)
    done, whole = (run.step_log.done, passed), (run.step_log.total, len(checks))
    if state.ended == "passed" and (done != whole or not (any(whole) or scenario.measure)):
        state.ended = "failed"  # so that nothing passes by accident
        wanted = f"{whole} steps and checks" if any(whole) else "something to do, to check or to measure"
        failures.append(Failure("", "the run", wanted, f"{done}" if any(whole) else "nothing"))
    lines: Sequence[str] = state.log.lines()
    if state.hide_secrets:
        lines = without_secrets(lines, state.secrets)
    return RunResult(
        label=run.cell.label,
        values=run.cell.values,
        seed=run.cell.seed,
        trial=trial,
        ended=state.ended,
        steps=run.step_log.total,
        steps_done=run.step_log.done,
        checks=len(checks),
        checks_passed=passed,
        failures=tuple(failures[:MOST_FAILURES]),
        virtual=state.virtual,
        real=real,
        digest=state.log.digest(),
        tree=state.tree,
        step_results=run.step_log.results((run.place(path), what) for path, what in _each_step(run.cell)),
        judged=tuple(state.judged),
        series=run.judges.series() if run.judges is not None else (),
        faults=state.faults,
        metrics=run.judges.metrics() if run.judges is not None else {},
        last=last_messages(lines),
        log=tuple(lines) if whole_log else (),
        logged=len(state.log),
        real_time=is_real(scenario.world),
    )
