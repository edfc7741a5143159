"""Results as the plain data that the page draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ._html_series import bands, points_each, thinned
from ._results import cut_data
from ._text import combination, cut_line, missing_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._html_logs import Kept
    from ._results import FileResult, Missing, RunResult

MOST_STEPS = 50_000
"""Most steps on a page, over all runs; passed runs lose theirs first."""

_OWN = frozenset(
    {"steps", "steps_done", "step_results", "series", "log", "last", "logged", "values", "checks_passed"}
)


def page_data(results: Sequence[FileResult], title: str, kept: dict[int, Kept]) -> dict[str, Any]:
    """Return all data of the page except the logs; `kept` has the logs by run, numbered across all files."""
    whole = [(index, run) for index, result in enumerate(results) for run in result.runs]
    most = points_each(len(series.times) for _, run in whole for series in run.series)
    with_steps = _with_steps([run for _, run in whole])
    runs = [
        {"file": index, **run_data(run, most, kept.get(number), with_steps=number in with_steps)}
        for number, (index, run) in enumerate(whole)
    ]
    cut = cut_data(results)
    cut_text = (
        {**cut, "text": cut_line(results), "lines": missing_lines(results)} if cut is not None else None
    )
    return {
        "title": title,
        "cut": cut_text,
        "files": [_file(result, most) for result in results],
        "runs": runs,
    }


def run_data(run: RunResult, most: int, kept: Kept | None, *, with_steps: bool) -> dict[str, Any]:
    """Return one run as plain data, with at most `most` points of each series."""
    plain = attrs.asdict(run, filter=lambda attribute, _: attribute.name not in _OWN)
    return {
        **plain,
        "combination": combination(run),
        "steps": [run.steps_done, run.steps],
        "checks": [run.checks_passed, run.checks],
        "step_results": [attrs.astuple(step) for step in run.step_results] if with_steps else None,
        "series": [thinned(series, most) for series in run.series],
        "log": {"records": kept.records, "whole": kept.whole} if kept is not None else None,
        "last": list(run.last) if kept is None and not run.ok else [],
    }


def _file(result: FileResult, most: int) -> dict[str, Any]:
    return {
        "file": result.file,
        "name": result.name,
        "pass_rate": result.pass_rate,
        "trials": result.trials,
        "passed": result.passed,
        "exit_code": result.exit_code(),
        "repeated": [
            {
                "label": again.label,
                "ok": not again.problem and not again.difference,
                "text": again.problem or (str(again.difference) if again.difference else ""),
            }
            for again in result.repeated
        ],
        "compared": [attrs.asdict(check) for check in result.compared],
        "asked": result.asked,
        "cut": cut_line([result]),
        "notes": list(result.notes),
        "missing": [_missing(run) for run in result.missing],
        "bands": bands([(combination(run), run) for run in result.runs], most),
    }


def _missing(run: Missing) -> dict[str, Any]:
    """Return a run without a result as plain data, with its values only as part of its label."""
    names = ("label", "seed", "trial", "begun")
    return {"combination": combination(run), **{name: getattr(run, name) for name in names}}


def _with_steps(runs: Sequence[RunResult]) -> frozenset[int]:
    """Return the numbers of the runs whose steps are on the page."""
    left, chosen = MOST_STEPS, list[int]()
    for number in sorted(range(len(runs)), key=lambda number: runs[number].ok):
        left -= len(runs[number].step_results)
        if left < 0:
            break
        chosen.append(number)
    return frozenset(chosen)
