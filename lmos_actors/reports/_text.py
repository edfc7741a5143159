"""Results as plain text, the same on a terminal and in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._results import FileResult, Repeated, RunResult

BAR = 10
"""How many marks the bar of a run has."""

_LABELS = {"passed": "ok", "failed": "FAILED", "could not run": "could not run", "time limit": "TIME LIMIT"}


def bar(done: int, total: int) -> str:
    """Draw how far a run is: `#######...`."""
    full = BAR if done >= total else done * BAR // total
    return "#" * full + "." * (BAR - full)


def head(result: FileResult) -> str:
    """Give the line above a file's runs."""
    runs = result.cells * result.trials
    return f"{result.name}  {result.file}  {runs} run{'s' * (runs != 1)}"


def run_line(run: RunResult, width: int, trials: int) -> str:
    """Give the line of one run; `width` is that of the widest label."""
    trial = f"  trial {run.trial}" if trials > 1 else ""
    done = f"{bar(run.steps_done, run.steps)} {run.steps_done}/{run.steps} steps"
    checks = f"{run.checks_passed}/{run.checks} checks"
    times = f"{run.real:.2f} s (virtual {run.virtual:.6g} s)"
    return f" {run.label:{width}}{trial}  {done}  {checks}  {_LABELS[run.ended]}  {times}"


def failure_lines(run: RunResult, again: str) -> list[str]:
    """Say what was not as it should be in one run, how things stood, and how to see it `again`."""
    lines: list[str] = []
    for failure in run.failures:
        lines.append(f"   {failure.place + ': ' if failure.place else ''}{failure.what}")
        lines.append(f"     expected {failure.expected}")
        lines.append(f"     saw      {failure.saw}")
    lines += [f"   {row}" for row in run.tree]
    return [*lines, f"   again:  {again}"]


def repeated_lines(repeated: Sequence[Repeated]) -> list[str]:
    """Say whether the runs that were repeated in another process gave the same logs."""
    lines: list[str] = []
    for again in repeated:
        if again.problem:
            lines.append(f" {again.label}  could not be repeated: {again.problem}")
        elif again.difference:
            lines.append(f" {again.label}  NOT DETERMINISTIC: another process gave another log, from here on")
            lines += [f"   {line}" for line in str(again.difference).splitlines()]
    equal = sum(not again.problem and not again.difference for again in repeated)
    if equal:
        lines.append(f" same log in a second process: {equal} of {len(repeated)}")
    return lines


def summary(results: Sequence[FileResult], seconds: float) -> str:
    """Give the last line of all."""
    runs = sum(len(result.runs) for result in results)
    passed = sum(result.passed for result in results)
    files = f" of {len(results)} files" if len(results) > 1 else ""
    return f"{passed}/{runs} runs{files} passed in {seconds:.1f} s"
