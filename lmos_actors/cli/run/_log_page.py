"""The HTML page of a message log, like the page of `run --html`, but with messages only and no checks."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmos_actors.errors import ConfigError
from lmos_actors.files import mapped
from lmos_actors.reports import FileResult, RunResult, html_page
from lmos_actors.scenario.judge import LogFile

from .._written_files import opened_file
from ._report_files import MOST_KEPT

if TYPE_CHECKING:
    from lmos_actors.scenario.judge import LoggedRun


def write_log_page(log: str, out: str, number: int | None, *, force: bool) -> int:
    """Write the page of all runs in a log, or of one of them; return the exit code.

    Raises ConfigError, FileError; OSError, which names the file.
    """
    with suppress(OSError):  # what is not there yet
        if os.path.samefile(log, out):
            raise ConfigError("is the log itself: name another file", out)
    notes = [f"made of the messages in {log}: nothing was run or checked for this page"]
    runs: list[RunResult] = []
    with LogFile(log) as file:
        for index, run in enumerate(file.runs(), start=1):
            if number in (None, index):
                runs.append(_result(run, index))
                notes += [] if run.problem is None else [f"run {index}: {run.problem}"]
        notes += [] if file.cut is None else [file.cut]
    if not runs:
        raise ConfigError(f"has no run number {number}" if number is not None else "holds no run", log)
    result = FileResult(
        file=log, name=Path(log).name, pass_rate=1.0, trials=1, cells=len(runs), runs=runs, notes=tuple(notes)
    )
    opened_file(out, force=force).write(html_page([result], title=Path(log).name, is_log=True))
    print(f"wrote {out}: {sum(run.logged for run in runs)} records")
    return 0


def _result(run: LoggedRun, index: int) -> RunResult:
    """Return a run in the form that the page shows. A run without a recorded end counts as passed."""
    kept: deque[str] = deque(maxlen=MOST_KEPT)
    at, said = 0.0, run.run
    for line in run:
        if line.sort == "record":
            at = max(at, float(line.data.get("t", 0.0)))
            kept.append(line.text)
    values: Any = mapped(said.get("values"))
    return RunResult(
        label=str(said.get("label") or f"run {index}"),
        values=dict(values),
        seed=int(said.get("seed") or 0),
        trial=int(said.get("trial") or 1),
        ended="passed",
        steps=0,
        steps_done=0,
        checks=0,
        checks_passed=0,
        failures=(),
        virtual=at,
        real=0.0,
        digest="",
        last=tuple(kept)[-20:],
        log=tuple(kept),
        logged=run.records,
        real_time="watched" in said or "recorded" in said,
    )
