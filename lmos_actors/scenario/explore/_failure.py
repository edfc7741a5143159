"""The failure of a run: a name that equal failures share, and a readable sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmos_actors.reports import CheckResult, Failure, RunResult

_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_FAULTS: Final = ("fault ", "inject ")
_NOTHING_TO_JUDGE: Final = ("it was never looked at", "it cannot be computed", "no message", "nothing")
_TIMELY: Final = ("eventually", "converges")
"""The kinds of checks that are met at an instant, which may come too late."""
_LONGEST: Final = 300


def is_void(run: RunResult) -> bool:
    """Return whether a fault found no target, so that the run does not count."""
    return any(failure.what.startswith(_FAULTS) for failure in run.failures)


def failures_of(run: RunResult) -> tuple[str, ...]:
    """Return the names of all failures in a run, in order; an empty tuple if it passed.

    Two failures have the same name if the same check, step or agent fails in the same way, even at other
    instants, in another one of many agents, or with other numbers.
    """
    judged = {f"{check.kind} {check.name}": check for check in run.judged}
    judged |= {check.name: check for check in run.judged}
    return tuple(dict.fromkeys(_name(failure, judged) for failure in run.failures))


def _name(failure: Failure, judged: dict[str, CheckResult]) -> str:
    check = judged.get(failure.what.removeprefix("check "))
    if failure.what.startswith("check ") and check is not None:
        return f"{failure.what}: {_way(check)}"
    first = failure.saw.split(":")[0].split(" at ")[0]
    return f"{_NUMBER.sub('#', failure.what)}: {_NUMBER.sub('#', first)}"


def _way(check: CheckResult) -> str:
    if check.saw.startswith(_NOTHING_TO_JUDGE):
        return "nothing to judge"
    if check.at is None:
        return "not met"
    return "too late" if check.kind in _TIMELY else "broken"


def sentence_of(run: RunResult, failure: str) -> str:
    """Return a sentence that describes a failure of a run, and the faults injected in that run."""
    judged = {f"{check.kind} {check.name}": check for check in run.judged}
    judged |= {check.name: check for check in run.judged}
    found = next((each for each in run.failures if _name(each, judged) == failure), None)
    if found is None:
        return failure
    faults = [
        f"{step.what.partition(' ')[2]} at {step.begin:g} s"
        for step in run.step_results
        if step.what.startswith(_FAULTS) and step.begin is not None
    ]
    by = (
        f"with {len(faults)} fault{'s' * (len(faults) != 1)} ({'; '.join(faults)})"
        if faults
        else "without a fault"
    )
    saw = found.saw if len(found.saw) <= _LONGEST else found.saw[: _LONGEST - 3] + "..."
    return f"{found.what} fails {by}: expected {found.expected}, saw {saw}"
