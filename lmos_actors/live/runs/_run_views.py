"""The views of runs. A view that nodes have too is made by the same class, from the data of a log."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import attrs
from msgspec import Meta, Struct, structs

from .._agent_view import AgentArguments
from .._flow import FlowArguments, FlowView
from .._messages import Refused
from .._node_views import MadeView
from .._tree_view import FindArguments, FindView, TopArguments, TreeArguments, TreeView, top_state
from .._trouble_views import CrashesArguments, NoArguments
from ._network_view import network_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .._merge_patch import State
    from .._viewer import View
    from ._board import RunsBoard, WatchedRun
    from ._run_model import RunModel, StepSeen

SHOWN_RUNS: Final = 300
SHOWN_LINES: Final = 20
SHOWN_RECORDS: Final = 50
TEXT: Final = 500


class RunArguments(Struct):
    """The arguments of every view: the run to show; None for the run in progress, or else the last one."""

    run: Annotated[str, Meta(max_length=64)] | None = None


class BoardView:
    """A view that a function computes from the board and the id of a run, while the board is locked."""

    is_busy = False

    def __init__(
        self, board: RunsBoard, run: str | None, make: Callable[[RunsBoard, str | None], State]
    ) -> None:
        self._board, self._run = board, run
        self._make = make

    def content(self) -> State:
        """Return the current state."""
        with self._board.lock:
            return self._make(self._board, self._run)


class RunView:
    """A view of one run, or without an id of the current run, computed while the board is locked.

    Its state has `gone` if the run does not exist, or if only its outcome is kept.
    """

    def __init__(self, board: RunsBoard, run: str | None, make: Make, arguments: Any) -> None:
        self._board, self._run = board, run
        self._make, self._arguments = make, arguments
        self._model: RunModel | None = None
        self._view: View = MadeView(dict)

    @property
    def is_busy(self) -> bool:
        """Whether the view will have more to show soon."""
        return self._view.is_busy

    def content(self) -> State:
        """Return the current state."""
        with self._board.lock:
            try:
                run = self._board.run(self._run)
            except Refused:
                return {"gone": True}
            if run.model is None:
                return {"gone": True, "id": run.head.id}
            if run.model is not self._model:
                self._model = run.model
                self._view = self._make(self._board, run, run.model, self._arguments)
            return self._view.content()


# ---- runs


def runs_state(board: RunsBoard, _run: str | None) -> State:
    """Return all runs; if there are very many, only the runs around the current one."""
    order = list(board.runs)
    at = 0 if board.current is None else order.index(board.current.head.id)
    first = max(0, min(at - SHOWN_RUNS // 2, len(order) - SHOWN_RUNS))
    shown = order[first : first + SHOWN_RUNS]
    rows = {id: _run_row(board.runs[id]) for id in shown}
    found: State = {"order": shown, "total": len(order), "from": first, "rows": rows}
    counts: dict[str, int] = {}
    for run in board.runs.values():
        counts[run.status] = counts.get(run.status, 0) + 1
    found["counts"] = counts
    return found if board.current is None else {**found, "current": board.current.head.id}


def _run_row(run: WatchedRun) -> State:
    outcome = run.outcome
    model = run.model
    row: State = {
        **_head(run),
        "done": run.done,
        "total": run.total,
        "unit": "s" if run.head.until is not None else "steps",
        "seconds": round(run.seconds, 1),
        "failures": [] if outcome is None else [each[:TEXT] for each in outcome.failures[:5]],
    }
    if outcome is not None:
        row["time"] = outcome.time
    elif model is not None:
        row["time"] = model.time
    if run.head.until is not None:
        row["total"] = run.head.until
        row["done"] = min(row.get("time", 0.0), run.head.until)
    return row


def _head(run: WatchedRun) -> State:
    head = run.head
    return {
        "id": head.id,
        "label": head.label,
        "file": head.file,
        "name": head.name,
        "trial": head.trial,
        "status": run.status,
    }


def run_state(board: RunsBoard, id: str | None) -> State:
    """Return the state of one run: its progress, steps, checks, faults and last lines."""
    try:
        run = board.run(id)
    except Refused:
        return {"gone": True}
    head, outcome, model, pace = run.head, run.outcome, run.model, board.pace
    state: State = {
        **_head(run),
        "is_real": head.is_real,
        "speed": "max" if pace.speed is None else pace.speed,
        "paused": pace.is_paused and not head.is_real,
        "waits": False,
        "time": 0.0 if outcome is None else outcome.time,
        "seconds": round(run.seconds, 1),
        "failures": [] if outcome is None else [each[:TEXT] for each in outcome.failures[:20]],
        **({} if head.until is None else {"until": head.until}),
    }
    if model is None:
        return state
    steps, ahead = _steps_until(model.steps.values(), model.time)
    checks = list(model.checks.values())
    if outcome is not None:
        steps = list(outcome.steps) or list(model.steps.values())
        checks = list(outcome.checks) or checks
    shown = [f"{record.line}"[:TEXT] for record in islice(reversed(model.records), SHOWN_LINES)]
    return state | {
        "time": model.time if outcome is None else max(model.time, outcome.time),
        "waits": model.waits and outcome is None,
        "records": model.recorded,
        "steps": [_step(each) for each in steps[-100:]],
        "steps_done": max(0, model.steps_done - ahead) if outcome is None else outcome.steps_done,
        "steps_total": model.steps_total if outcome is None else outcome.steps_total,
        "checks": [_check(each) for each in checks[:200]],
        "faults": [_without_none(structs.asdict(each)) for each in reversed(model.faults.values())],
        "log": list(reversed(shown)),
    }


def _steps_until(all_steps: Iterable[StepSeen], time: float) -> tuple[list[Any], int]:
    """Return the steps in their state at an instant, and the number of steps that end only later.

    The run is ahead of the clock that is shown: the wait of a step has already ended, but the pace still
    holds back what comes next.
    """
    shown: list[Any] = []
    ahead = 0
    for step in all_steps:
        is_over = step.end is None or step.end <= time
        ahead += not is_over
        if step.begin <= time:
            shown.append(step if is_over else structs.replace(step, status="running", end=None))
    return shown, ahead


def _step(step: Any) -> State:
    found = {"text": step.text, "status": step.status, "place": step.place}
    end = None if step.end is None else round(step.end, 6)
    return _without_none({**found, "begin": round(step.begin, 6), "end": end})


def _check(check: Any) -> State:
    found: State = {"name": check.name, "status": check.status, "at": check.at}
    more = {"expected": check.expected[:TEXT] or None, "saw": check.saw[:TEXT] or None}
    return _without_none({**found, **more})


def _without_none(state: State) -> State:
    return {name: value for name, value in state.items() if value is not None}


# ---- one run, in views that a node has, too


def network_state(board: RunsBoard, run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the state of the view `network`."""
    return network_of(run.head, model, board.pace.speed)


def series_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the state of the view `series`."""
    return {"series": {name: kept.state() for name, kept in model.series.items()}}


def crashes_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the state of the view `crashes`.

    A log has no more about a crash than a row shows, so no report can be shown whole.
    """
    rows = {str(number): row for number, row in model.crashes}
    return {"total": model.crash_count, "order": list(rows), "rows": rows}


def letters_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the state of the view `dead letters`."""
    rows = {str(number): row for number, row in model.letters}
    return {"total": model.letter_count, "order": list(rows), "rows": rows}


def agent_state(_board: RunsBoard, run: WatchedRun, model: RunModel, arguments: AgentArguments) -> State:
    """Return the state of the view `agent`: what the log contains about one place."""
    place = model.tree.at(arguments.path)
    if place is None:
        return {"kind": "gone", "path": arguments.path}
    state = {**model.tree.row_of(place), "path": place.path}
    if not place.is_agent:
        return state
    if run.head.nodes is not None:
        state["node"] = run.head.node_of(place.path)
    records = [record for record in reversed(model.records) if record.agent == place.path]
    state["records"] = [record.shown() for record in records[:SHOWN_RECORDS]]
    state["crashes"] = [row for _, row in model.crashes if row["agent"] == place.path][:3]
    return state


# ---- which views there are

Make: TypeAlias = "Callable[[RunsBoard, WatchedRun, RunModel, Any], View]"


@attrs.frozen
class RunsViewKind:
    """A kind of view: its arguments besides the run, and the function that makes it.

    The function gets the board, the id of the run and the arguments.
    """

    arguments: type[Any]
    make: Callable[[RunsBoard, str | None, Any], View]


def _of_board(state: Callable[[RunsBoard, str | None], State]) -> RunsViewKind:
    return RunsViewKind(NoArguments, lambda board, id, _: BoardView(board, id, state))


def _of_run(arguments: type[Any], make: Make) -> RunsViewKind:
    return RunsViewKind(arguments, lambda board, id, given: RunView(board, id, make, given))


KINDS: Final = {
    "runs": _of_board(runs_state),
    "run": _of_board(run_state),
    "network": _of_run(NoArguments, partial(MadeView, network_state)),
    "series": _of_run(NoArguments, partial(MadeView, series_state)),
    "tree": _of_run(TreeArguments, lambda _board, _run, model, given: TreeView(model.tree, given)),
    "find": _of_run(FindArguments, lambda _board, _run, model, given: FindView(model.tree, given)),
    "top": _of_run(TopArguments, lambda _board, _run, model, given: MadeView(top_state, model.tree, given)),
    "flow": _of_run(FlowArguments, lambda _board, _run, model, given: FlowView(model, _seen, given)),
    "agent": _of_run(AgentArguments, partial(MadeView, agent_state)),
    "crashes": _of_run(CrashesArguments, partial(MadeView, crashes_state)),
    "dead letters": _of_run(NoArguments, partial(MadeView, letters_state)),
}


def _seen(_path: str) -> bool:
    return True
