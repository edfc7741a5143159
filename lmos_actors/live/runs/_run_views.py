"""The views of runs. Those that a node has too have the same states: what looks at one looks at both."""

from __future__ import annotations

from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct, structs

from .._flow import SHOWN, SHOWN_EDGES, VALUE, FlowArguments, is_below, whole_values
from .._messages import Refused
from .._tree_view import FindArguments, TopArguments, TreeArguments
from ._network_view import network_of
from ._run_log import OWN, fields_of
from ._run_tree import Place, row_of, top_rows, tree_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .._merge_patch import State
    from ._board import RunsBoard, WatchedRun
    from ._run_log import LogRecord
    from ._run_model import RunModel, StepSeen

SHOWN_RUNS: Final = 300
SHOWN_LINES: Final = 20
SHOWN_RECORDS: Final = 50
STEP: Final = 10_000
"""Agents that are searched at once."""

TEXT: Final = 500

RunId = Annotated[str, Meta(max_length=64)]


class RunArguments(Struct, forbid_unknown_fields=True):
    """The run that is looked at, None for the one that is under way, or was last."""

    run: RunId | None = None


class RunTreeArguments(TreeArguments, forbid_unknown_fields=True, rename={"first": "from"}):
    """As of a node, of one run."""

    run: RunId | None = None


class RunFindArguments(FindArguments, forbid_unknown_fields=True, kw_only=True):
    """As of a node, of one run."""

    run: RunId | None = None


class RunTopArguments(TopArguments, forbid_unknown_fields=True):
    """As of a node, of one run."""

    run: RunId | None = None


class RunFlowArguments(FlowArguments, forbid_unknown_fields=True):
    """As of a node, of one run."""

    run: RunId | None = None


class RunCrashesArguments(Struct, forbid_unknown_fields=True):
    """As of a node, of one run. A log has no more of a crash than its row: nothing is shown whole."""

    open: Annotated[list[int], Meta(max_length=10)] = []
    run: RunId | None = None


class RunAgentArguments(Struct, forbid_unknown_fields=True):
    """One place of one run."""

    path: Annotated[str, Meta(max_length=4_096)]
    run: RunId | None = None


class BoardView:
    """A view that a function makes of the board, under its lock."""

    is_busy = False

    def __init__(self, board: RunsBoard, make: Callable[[RunsBoard, Any], State], arguments: Any) -> None:
        self._board = board
        self._make = make
        self._arguments = arguments

    def content(self) -> State:
        """Return the state now."""
        with self._board.lock:
            return self._make(self._board, self._arguments)


class RunView:
    """A view that a function makes of one run, under the lock of the board; `gone` where there is none."""

    is_busy = False

    def __init__(
        self, board: RunsBoard, make: Callable[[RunsBoard, WatchedRun, RunModel, Any], State], arguments: Any
    ) -> None:
        self._board = board
        self._make = make
        self._arguments = arguments

    def content(self) -> State:
        """Return the state now."""
        with self._board.lock:
            try:
                run = self._board.run(self._arguments.run)
            except Refused:
                return {"gone": True}
            if run.model is None:
                return {"gone": True, "id": run.head.id}
            return self._make(self._board, run, run.model, self._arguments)


# ---- runs


def runs_state(board: RunsBoard, _arguments: object) -> State:
    """Return all runs, of very many those around the present one."""
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


def run_state(board: RunsBoard, arguments: RunArguments) -> State:
    """Return one run: how far it has come, its steps, checks, faults and last lines."""
    try:
        run = board.run(arguments.run)
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
        "faults": [_without_none(_fault(each)) for each in reversed(model.faults.values())],
        "log": list(reversed(shown)),
    }


def _steps_until(all_steps: Iterable[StepSeen], time: float) -> tuple[list[Any], int]:
    """Return the steps as they stand at an instant, and how many of them end only after it.

    The run is ahead of the clock that is shown: a wait has ended for it, and the pace holds what comes next.
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


def _fault(fault: Any) -> State:
    return {
        "id": fault.id,
        "what": fault.what,
        "targets": fault.targets,
        "at": fault.at,
        "healed": fault.healed,
    }


def _without_none(state: State) -> State:
    return {name: value for name, value in state.items() if value is not None}


# ---- one run, as of a node


def tree_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, arguments: RunTreeArguments) -> State:
    """Return the view `tree`."""
    return tree_rows(model.tree, model.time, arguments.open, arguments.first, arguments.rows, arguments.at)


def top_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, arguments: RunTopArguments) -> State:
    """Return the view `top`."""
    return top_rows(model.tree, model.time, arguments.by, arguments.rows)


class FindInRunView:
    """The agents of a run that match a text, found step by step."""

    def __init__(self, board: RunsBoard, arguments: RunFindArguments) -> None:
        self._text = arguments.text.casefold()
        self._most = arguments.rows
        self._model: RunModel | None = None
        self._found: list[Place] = []
        self._searched = 0
        self._view = RunView(board, self._state, arguments)
        self.is_busy = True
        """Whether there is more to be searched."""

    def content(self) -> State:
        """Search on, and return the rows of the matches."""
        return self._view.content()

    def _state(self, _board: RunsBoard, _run: WatchedRun, model: RunModel, _arguments: object) -> State:
        if model is not self._model:  # another run is under way
            self._model, self._found, self._searched = model, [], 0
        some = model.tree.order[self._searched : self._searched + STEP]
        self._searched += len(some)
        self._found += filter(self._matches, some) if len(self._found) < self._most else ()
        is_whole = self._searched >= len(model.tree.order)
        self.is_busy = not is_whole and len(self._found) < self._most
        rows = {place.path: row_of(place) for place in self._found[: self._most]}
        complete = is_whole and len(self._found) < self._most
        return {"order": list(rows), "rows": rows, "searched": self._searched, "complete": complete}

    def _matches(self, place: Place) -> bool:
        return self._text in place.path.casefold() or self._text in place.cls.casefold()


def flow_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, arguments: RunFlowArguments) -> State:
    """Return the view `flow`."""
    paths, affordance = frozenset(arguments.paths), arguments.affordance
    records: dict[str, State] = {}
    for record in reversed(model.records):
        if len(records) >= arguments.records:
            break
        known = model.traces.get(record.id) if record.id is not None else None
        trace = record.trace if known is None else known[1]
        if arguments.trace is not None and trace != arguments.trace:
            continue
        if affordance is not None and record.affordance != affordance:
            continue
        if is_below(record.agent, paths):
            records[str(record.n)] = shown_record(record, trace)
    edges = (
        each
        for each in model.edges.items()
        if is_below(each[0][1], paths) and affordance in (None, each[0][2])
    )
    most = nlargest(SHOWN_EDGES, edges, key=lambda each: each[1].sent)
    return {
        "records": dict(reversed(records.items())),
        "edges": {
            " > ".join(edge): {
                "from": edge[0],
                "to": edge[1],
                "affordance": edge[2],
                "sent": count.sent,
                "failed": count.failed,
            }
            for edge, count in most
        },
        "recorded": model.recorded,
        "left_out": 0,
    }


def shown_record(record: LogRecord, trace: int | None = None) -> State:
    """Return a record as the view `flow` has it: values as text, and no longer than they may be."""
    shown: State = {"n": record.n, "t": record.t, "kind": record.kind, "agent": record.agent}
    fields = fields_of(record.line)
    whole = {} if record.is_shortened else whole_values(fields)
    for name, value in fields.items():
        if name in OWN or name in whole or value is None:
            continue
        is_plain = isinstance(value, int | float) or (isinstance(value, str) and len(value) <= VALUE)
        shown[name] = value if is_plain and name not in SHOWN else _text(value)
    shown |= whole
    return shown if trace is None else {**shown, "trace": trace}


def _text(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= VALUE else f"{text[: VALUE - 1]}…"


def crashes_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the view `crashes`."""
    rows = {str(number): row for number, row in model.crashes}
    return {"total": model.crash_count, "order": list(rows), "rows": rows}


def letters_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the view `dead letters`."""
    rows = {str(number): row for number, row in model.letters}
    return {"total": model.letter_count, "order": list(rows), "rows": rows}


def agent_state(_board: RunsBoard, run: WatchedRun, model: RunModel, arguments: RunAgentArguments) -> State:
    """Return the view `agent`: what the log says of one place."""
    place = model.tree.at(arguments.path)
    if place is None:
        return {"kind": "gone", "path": arguments.path}
    state = {**row_of(place), "path": place.path}
    if not place.is_agent:
        return state
    if run.head.nodes is not None:
        state["node"] = run.head.node_of(place.path)
    records = [record for record in reversed(model.records) if record.agent == place.path]
    state["records"] = [shown_record(record) for record in records[:SHOWN_RECORDS]]
    state["crashes"] = [row for _, row in model.crashes if row["agent"] == place.path][:3]
    return state


# ---- network and series


def network_state(board: RunsBoard, run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the view `network`."""
    return network_of(run.head, model, board.pace.speed)


def series_state(_board: RunsBoard, _run: WatchedRun, model: RunModel, _arguments: object) -> State:
    """Return the view `series`."""
    return {"series": {name: kept.state() for name, kept in model.series.items()}}
