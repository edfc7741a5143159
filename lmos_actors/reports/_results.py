"""Results of scenario runs, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from ._messages import clean, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.simulation import Difference

Ended: TypeAlias = Literal["passed", "failed", "could not run", "time limit"]


@attrs.frozen
class Failure:
    """One failed expectation. `place` is its location in the file, "" if it has none."""

    place: str
    what: str
    expected: str
    saw: str


@attrs.frozen(kw_only=True)
class CheckResult:
    """Result of one check. `at` is the virtual instant that decided it, None for the end of the run."""

    name: str
    kind: str
    ok: bool
    expected: str
    saw: str
    place: str = ""
    at: float | None = None


@attrs.frozen(kw_only=True)
class StepResult:
    """Result of one step; `ok` is None if it was not reached or did not end. Times are virtual seconds."""

    place: str
    what: str
    ok: bool | None
    begin: float | None = None
    end: float | None = None


@attrs.frozen(kw_only=True)
class SeriesResult:
    """A measured series: a value for each virtual instant, None where it could not be computed."""

    name: str
    agg: str
    times: tuple[float, ...]
    values: tuple[float | None, ...]


@attrs.frozen(kw_only=True)
class NodeRestart:
    """The restart of one node of a network; its agents were down until `end` (None: they did not restart).

    `agents` are paths. The path of a supervisor stands for everything below it.
    """

    node: str
    agents: tuple[str, ...]
    end: float | None


@attrs.frozen(kw_only=True)
class FaultResult:
    """A fault, the paths of the agents affected, and the time for which it was in force.

    If `end` is None, the fault lasted until the end of the run. For a partition, `sides` has the nodes of
    each side; with `one_way`, messages from the first side do not reach the others. For a restart of nodes of
    a network, `restarted` has the agents that were down.
    """

    id: str
    kind: str
    targets: tuple[str, ...]
    begin: float
    end: float | None
    sides: tuple[tuple[str, ...], ...] = ()
    one_way: bool = False
    restarted: tuple[NodeRestart, ...] = ()


@attrs.frozen(kw_only=True)
class RunResult:
    """One run of one cell. `virtual` and `real` are seconds; `digest` is the hash of the records.

    If `real_time` is true, the run's world keeps real time, and `virtual` is the time that the story took in
    it. `values` has the values of the matrix or the sweep. `metrics` has the numbers available to `compare`
    checks, by name. `last` has the last messages, as lines of the log. `log` may hold fewer lines than the
    number `logged`. `again` and `replay` are commands that repeat the run; "" if there is no such command.
    """

    label: str
    values: dict[str, Any]
    seed: int
    trial: int
    ended: Ended
    steps: int
    steps_done: int
    checks: int
    checks_passed: int
    failures: tuple[Failure, ...]
    virtual: float
    real: float
    digest: str
    tree: tuple[str, ...] = ()
    step_results: tuple[StepResult, ...] = ()
    judged: tuple[CheckResult, ...] = ()
    series: tuple[SeriesResult, ...] = ()
    faults: tuple[FaultResult, ...] = ()
    metrics: dict[str, float | None] = attrs.Factory(dict[str, float | None])
    last: tuple[str, ...] = attrs.field(default=(), repr=False)
    log: tuple[str, ...] = attrs.field(default=(), repr=False)
    logged: int = 0
    again: str = ""
    replay: str = ""
    real_time: bool = False

    @property
    def ok(self) -> bool:
        """True if the run passed."""
        return self.ended == "passed"


@attrs.frozen(kw_only=True)
class Missing:
    """A requested run without a result; `begun` is true if it was under way when everything ended."""

    label: str
    values: dict[str, Any]
    seed: int
    trial: int
    begun: bool = False


@attrs.frozen
class Cut:
    """The reason why requested runs have no result.

    `why` is `interrupted`, `time limit` (a run hung, and the process ended with it), or `fail-fast`. `code`
    is the exit code for this reason (0: it sets none). `signal` is the name of the signal, if any.
    """

    why: Literal["interrupted", "time limit", "fail-fast"]
    code: int = 0
    signal: str = ""


@attrs.frozen
class Repeated:
    """Result of running a cell again in another process; if both fields are None, the logs are equal."""

    label: str
    difference: Difference | None = None
    problem: str | None = None


@attrs.define
class FileResult:
    """Result of one file."""

    file: str
    name: str
    pass_rate: float
    trials: int
    cells: int
    runs: list[RunResult] = attrs.Factory(list[RunResult])
    repeated: list[Repeated] = attrs.Factory(list[Repeated])
    compared: list[CheckResult] = attrs.Factory(list[CheckResult])
    """Results of the checks that compare several cells."""
    seeds: int = 0
    """Number of different seeds, 0 if not known."""
    seconds: float = 0.0
    """Duration in real time."""
    missing: list[Missing] = attrs.Factory(list[Missing])
    """The requested runs without a result."""
    cut: Cut | None = None
    """The reason for ending the file early, None if it was not."""
    notes: tuple[str, ...] = ()
    """Parts that were checked but not carried out, such as a deployment in a world without processes."""

    @property
    def asked(self) -> int:
        """Number of requested runs."""
        return len(self.runs) + len(self.missing)

    @property
    def passed(self) -> int:
        """Number of runs that passed."""
        return sum(run.ok for run in self.runs)

    def exit_code(self) -> int:
        """Return the exit code of this file alone."""
        codes = {self.verdict(trials) for trials in self.by_label().values()}
        if not all(check.ok for check in self.compared):
            codes.add(1)
        if any(again.problem for again in self.repeated):
            codes.add(3)
        if any(again.difference for again in self.repeated):
            codes.add(4)
        if self.cut is not None:
            codes.add(self.cut.code)
        return worst(codes)

    def by_label(self) -> dict[str, list[RunResult]]:
        """Return each cell's runs, which are its trials, by the cell's label."""
        found: dict[str, list[RunResult]] = {}
        for run in self.runs:
            found.setdefault(run.label, []).append(run)
        return found

    def verdict(self, trials: Sequence[RunResult]) -> int:
        """Return the exit code of a cell from its trials: 0 if enough of them passed.

        It is 3 if a trial could not run. Otherwise, if too few passed, it is 124 if a trial exceeded the time
        limit, 5 (flaky) if some passed, and 1 if none did.
        """
        ended = {run.ended for run in trials}
        if "could not run" in ended:
            return 3
        passed = sum(run.ok for run in trials)
        if passed and passed >= self.pass_rate * len(trials) - 1e-9:
            return 0
        if "time limit" in ended:
            return 124
        return 5 if passed else 1


PRECEDENCE = (143, 130, 2, 3, 124, 4, 1, 5, 0)
"""Exit codes; the first one that occurs decides."""


def worst(codes: set[int]) -> int:
    """Return the exit code that takes precedence over the others in a set; 0 if the set is empty."""
    return next((code for code in PRECEDENCE if code in codes), 0)


def cut_of(results: Sequence[FileResult]) -> Cut | None:
    """Return the most severe reason why a file was ended early; None if no file was."""
    cuts = [result.cut for result in results if result.cut is not None]
    return next((cut for code in PRECEDENCE for cut in cuts if cut.code == code), None)


def cut_data(results: Sequence[FileResult]) -> dict[str, Any] | None:
    """Return the reason why runs are missing, as plain data; None if no file was ended early.

    The data has the reason, the signal, the number of runs with a result, and the number requested.
    """
    cut = cut_of(results)
    if cut is None:
        return None
    runs, asked = sum(len(result.runs) for result in results), sum(result.asked for result in results)
    return {"why": cut.why, "signal": cut.signal or None, "runs": runs, "of": asked}


def as_data(result: FileResult) -> dict[str, Any]:
    """Return a file's result as plain data, for `--json`. Every key is always present."""
    again: list[dict[str, Any]] = [
        {
            "label": clean(again.label),
            "equal": again.difference is None and again.problem is None,
            "difference": str(again.difference) if again.difference else None,
            "problem": again.problem,
        }
        for again in result.repeated
    ]
    return {
        "file": clean(result.file),
        "name": clean(result.name),
        "cells": result.cells,
        "seeds": result.seeds,
        "trials": result.trials,
        "pass_rate": result.pass_rate,
        "passed": result.passed,
        "seconds": result.seconds,
        "runs": [run_data(run) for run in result.runs],
        "missing": [clean(attrs.asdict(run)) for run in result.missing],
        "cut": cut_data([result]),
        "notes": [clean(note) for note in result.notes],
        "compared": [clean(attrs.asdict(check)) for check in result.compared],
        "determinism": again,
        "exit_code": result.exit_code(),
    }


def run_data(run: RunResult) -> dict[str, Any]:
    """Return a run as plain data; a passed run has no tree and no last messages."""
    data: dict[str, Any] = attrs.asdict(run, filter=lambda attribute, _: attribute.name not in _LINES)
    data["tree"] = [] if run.ok else list(run.tree)
    data["messages"] = [] if run.ok else [record.as_data() for record in records(run.last)]
    return {name: clean(value) for name, value in data.items()}


_LINES = ("log", "last", "tree")
