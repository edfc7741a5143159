"""One run of one cell: a world of its own, its agents, its story, its checks."""

from __future__ import annotations

import contextlib
import sys
import traceback
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors._errors import (
    LmosActorsError,
    RestartIntensityExceeded,
    StartFailed,
    SupervisionError,
    group_of,
    text_of,
)
from lmos_actors._node import open_node
from lmos_actors.actors import Thing
from lmos_actors.reports import Failure, RunResult
from lmos_actors.simulation import TraceLog, simulate
from lmos_actors.supervision import Pool, Supervisor, SupervisorSpec, children_of

from ._classes import paths, supervisor_spec
from ._doubles import Doubles
from ._expect import Verdict, judge_bounded, judge_latency
from ._guard import RUNTIME, Guard, staying
from ._logs import head_of
from ._model_checks import Latency, Never, Restarts, Statistics
from ._steps import Story
from ._watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._node import Node
    from lmos_actors.files import Document
    from lmos_actors.reports import Ended
    from lmos_actors.supervision import ChildSpec

    from ._resolve import Cell, Resolved

REAL_LIMIT = 60.0
"""Seconds of real time that one run may take, unless said otherwise."""

SHOWN_CAUSES = 3


@attrs.define
class _Telling:
    """One run while it goes on."""

    cell: Cell
    document: Document
    root: Path
    story: Story
    log: TraceLog
    guard: Guard
    doubles: Doubles
    ended: Ended = "failed"
    told: bool = False
    virtual: float = 0.0
    checks_passed: int = 0
    tree: tuple[str, ...] = ()
    node: Node | None = None
    problems: list[Failure] = attrs.Factory(list[Failure])

    def problem(self, what: str, expected: str, saw: str, place: str = "") -> None:
        self.problems.append(Failure(place, what, expected, saw))


def run_cell(
    resolved: Resolved,
    cell: Cell,
    trial: int,
    *,
    real_limit: float = REAL_LIMIT,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
    last_words: Callable[[str, str], None] = lambda why, where: None,
) -> RunResult:
    """Run a cell once in a simulated world, in the main thread. Raises KeyboardInterrupt, and nothing else.

    What agents print goes to standard error. Past `real_limit` seconds of real time the run is ended; if it
    cannot be, `last_words` is called with why and where, and the process ends with 124; with 130 if it
    cannot be ended by Ctrl-C.
    """
    log = TraceLog(run=head_of(resolved, cell, trial))
    watch = Watch(log)
    story = Story(cell.scenario, resolved.document, watch, progress)
    guard = Guard(real_limit, last_words)
    doubles = Doubles(cell, resolved.document, paths(cell.root))
    telling = _Telling(cell, resolved.document, resolved.root, story, log, guard, doubles)
    began = perf_counter()
    try:
        with contextlib.redirect_stdout(sys.stderr), staying(), guard:
            simulate(_live, telling, watch, seed=cell.seed, log=log)
    except BaseException as error:  # noqa: ASYNC103 -- what ended the run is its verdict
        if not _interrupted(error):
            _went_wrong(telling, error)
            telling.problems += doubles.open_matters(told=False)
        elif not guard.fired:
            raise KeyboardInterrupt from None
    if guard.interrupted and not guard.fired:  # and the code that it hit has suppressed it
        raise KeyboardInterrupt
    if guard.fired:
        telling.ended = "time limit"
        expected = f"an end within {real_limit:g} s of real time"
        place = story.at if guard.where == RUNTIME and story.at else guard.where
        telling.problems = [Failure("", "the run", expected, f"it was still busy at {place}")]
    log.end()
    return _result(telling, trial, perf_counter() - began)


async def _live(telling: _Telling, watch: Watch) -> None:
    with telling.guard.heeding():
        await _stage(telling, watch)


async def _stage(telling: _Telling, watch: Watch) -> None:
    cell, story = telling.cell, telling.story
    root = cell.root
    empty = SupervisorSpec(
        "root",
        strategy=root.strategy,
        max_restarts=root.max_restarts,
        max_seconds=float(root.max_seconds),
        auto_shutdown=root.auto_shutdown,
    )
    places = paths(root)
    async with open_node(empty, instrument=watch) as node:
        telling.node = node
        for name, path in places.items():
            story.refs[name] = node.find(cell.agent_class(name), path)
        for spec in supervisor_spec(root, cell, story.refs, telling.doubles.classes).children:
            await _start(node, spec)
        story.things = {name: Thing(ref) for name, ref in story.refs.items()}
        await _tell(telling)
    telling.problems += telling.doubles.open_matters(told=telling.told)
    if telling.told:
        _judge_after(telling)
        if not telling.problems:
            telling.ended = "passed"


async def _start(node: Node, spec: ChildSpec[Any] | SupervisorSpec | Pool[Any]) -> None:
    if isinstance(spec, SupervisorSpec):
        await node.start_supervisor(spec)
    elif isinstance(spec, Pool):
        await node.start_pool(spec)
    else:
        await node.start_child(spec)


async def _tell(telling: _Telling) -> None:
    story, timeout = telling.story, telling.cell.scenario.timeout
    began = trio.current_time()
    try:
        with trio.move_on_after(timeout) as scope:
            telling.told = await story.tell()
    finally:
        telling.virtual = round(trio.current_time() - began, 6)
        telling.tree = draw(telling)
    if scope.cancelled_caught or (not telling.told and telling.virtual >= timeout):
        telling.told = False
        telling.ended = "failed" if story.failures else "time limit"
        telling.problem("the story", f"its end within {timeout} of virtual time", f"still at {story.at}")
    if telling.told:
        _judge(telling)


# --- checks


def _judge(telling: _Telling) -> None:
    """Judge what is counted while the agents are still there."""
    story, checks = telling.story, telling.cell.scenario.checks
    for index, check in enumerate(checks):
        verdicts: list[Verdict] = []
        if isinstance(check, Latency):
            verdicts = judge_latency(check, story.latencies.get(check.of, []))
        elif isinstance(check, Restarts):
            verdicts = judge_bounded(check, restarts_of(telling, check.of))
        elif isinstance(check, Statistics):
            numbers = story.things[check.of].slot.statistics()
            verdicts = judge_bounded(check, getattr(numbers, check.counter))
        else:
            continue
        _note(telling, index, verdicts)


def _judge_after(telling: _Telling) -> None:
    """Judge what must hold until the last agent has stopped."""
    assert telling.node is not None
    letters = telling.node.dead_letters
    for index, check in enumerate(telling.cell.scenario.checks):
        if isinstance(check, Never):
            saw = "none"
            if letters:
                first = letters[0]
                saw = f"{len(letters)}, the first for {first.agent}.{first.affordance} ({first.reason})"
            _note(telling, index, [Verdict(not letters, "no dead letter", saw)])


def _note(telling: _Telling, index: int, verdicts: list[Verdict]) -> None:
    check = telling.cell.scenario.checks[index]
    bad = [verdict for verdict in verdicts if not verdict.ok]
    if verdicts and not bad:
        telling.checks_passed += 1
        return
    what = f"check {type(check).__name__.lower()}"
    for name in ("of", "counter"):
        what += f" {getattr(check, name)}" if hasattr(check, name) else ""
    for verdict in bad or [Verdict(False, "something to judge", "nothing")]:
        telling.problem(what, verdict.expected, verdict.saw, telling.document.place(("checks", index)))


def restarts_of(telling: _Telling, name: str) -> int:
    """Count how often an agent, or a supervisor, was restarted."""
    thing = telling.story.things.get(name)
    if thing is not None:
        return thing.slot.statistics().restarts
    assert telling.node is not None
    return next(s.incarnation - 1 for s in _supervisors(telling.node.root) if s.label == name)


def _supervisors(above: Supervisor) -> list[Supervisor]:
    below = [s for child in above.children if isinstance(child, Supervisor) for s in _supervisors(child)]
    return [above, *below]


# --- what went wrong around the story


def _interrupted(error: BaseException) -> bool:
    group = group_of(error)
    return isinstance(error, KeyboardInterrupt) or any(map(_interrupted, group.exceptions if group else ()))


def _went_wrong(telling: _Telling, error: BaseException) -> None:
    """Note an exception that left the world."""
    if isinstance(error, StartFailed) and not telling.tree:
        telling.ended = "could not run"
        name = error.path.rpartition("/")[2]
        here = ("agents", name) if name in telling.cell.scenario.agents else ("tree",)
        cause = error.__cause__ or error
        telling.problem(
            f"start {error.path}",
            "a running agent",
            said(cause, telling.root),
            telling.document.place(here, key=True),
        )
    elif isinstance(error, RestartIntensityExceeded):
        causes = [said(cause, telling.root) for cause in error.causes[-SHOWN_CAUSES:]]
        telling.problem("the tree", "a root supervisor that goes on", "; ".join([str(error), *causes]))
    elif isinstance(error, LmosActorsError) and not isinstance(error, SupervisionError):
        telling.problem("the run", "an end", f"{type(error).__name__}: {error}")
    else:
        telling.problem("the run", "an end", said(error, telling.root))


def said(error: BaseException, root: Path) -> str:
    """Say what was raised, and where in the project."""
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
    """Give the one exception of a group, through all its levels; a group of several as it is."""
    group = group_of(error)
    return _only(group.exceptions[0]) if group is not None and len(group.exceptions) == 1 else error


_PACKAGE = Path(__file__).resolve().parents[1]


def _result(telling: _Telling, trial: int, real: float) -> RunResult:
    story, scenario = telling.story, telling.cell.scenario
    steps = story.total
    failures = [*story.failures, *telling.problems]
    if telling.ended == "failed" and not failures:
        failures = [Failure("", "the tree", "one that lives until the story ends", f"its end at {story.at}")]
    done, whole = (story.done, telling.checks_passed), (steps, len(scenario.checks))
    if telling.ended == "passed" and done != whole:  # nothing passes by accident
        telling.ended = "failed"
        failures.append(Failure("", "the run", f"{whole} steps and checks", f"{done}"))
    return RunResult(
        label=telling.cell.label,
        values=telling.cell.values,
        seed=telling.cell.seed,
        trial=trial,
        ended=telling.ended,
        steps=steps,
        steps_done=story.done,
        checks=len(scenario.checks),
        checks_passed=telling.checks_passed,
        failures=tuple(failures),
        virtual=telling.virtual,
        real=real,
        digest=telling.log.digest(),
        tree=telling.tree,
        log=tuple(telling.log.lines()),
    )


def draw(telling: _Telling) -> tuple[str, ...]:
    """Draw the tree as it stands, with mailboxes and counts."""
    assert telling.node is not None
    rows = _rows(telling.node.root, "")
    width = max(len(row[0]) for row in rows)
    states = max(len(row[1]) for row in rows)
    head = f"{'':{width}}  {'':{states}}  mailbox  handled  restarts"
    return (
        head.rstrip(),
        *(f"{a:{width}}  {b:{states}}  {c:>7}  {d:>7}  {e:>8}".rstrip() for a, b, c, d, e in rows),
    )


def _rows(above: Supervisor, indent: str) -> list[tuple[str, str, str, str, str]]:
    spec = above.spec
    limit = f"{above.statistics().restarts} restarts, {spec.max_restarts} allowed in {spec.max_seconds:g} s"
    rows = [(f"{indent}{above.label} {spec.strategy}", limit, "", "", "")]
    for child in above.children:
        if isinstance(child, Supervisor):
            rows += _rows(child, indent + "  ")
            continue
        numbers = child.statistics()
        seats = f"{numbers.waiting}/{child.mailbox.size}"
        rows.append(
            (f"{indent}  {child.label}", numbers.state, seats, str(numbers.handled), str(numbers.restarts))
        )
        below = children_of(child)
        rows += _rows(below, indent + "  ")[1:] if below is not None else []
    return rows
