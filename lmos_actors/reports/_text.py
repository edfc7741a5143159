"""Results as plain text, the same on a terminal and in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors._core import printable

from ._messages import message_text, records, shorten
from ._results import cut_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._results import CheckResult, FileResult, Missing, Repeated, RunResult

BAR = 10
"""Width of a progress bar."""

SOME_MESSAGES = 8
"""Number of last messages shown for a failed run."""

MOST_FAILURES = 10
LONGEST = 2_000
"""Most characters shown of an expectation or observation."""

SEEDS_NAMED = 5

_LABELS = {"passed": "ok", "failed": "FAILED", "could not run": "could not run", "time limit": "TIME LIMIT"}


def bar(done: float, total: float) -> str:
    """Return a progress bar: `#######...`."""
    full = BAR if done >= total else int(done * BAR / total)
    return "#" * full + "." * (BAR - full)


def count(number: int, what: str) -> str:
    """Return a number with its noun: `1 run`, `2 runs`."""
    return f"{number} {what}{'s' * (number != 1)}"


def combination(run: RunResult | Missing) -> str:
    """Return the label of a run without its seed: `city=Berlin world=memory`."""
    return run.label.removesuffix(f"seed={run.seed}").rstrip()


def head(result: FileResult) -> str:
    """Return the heading of a file's runs: its name, its path, and the number of runs."""
    runs = result.cells * result.trials
    size = count(runs, "run")
    if runs > 1 and result.seeds and result.cells % result.seeds == 0:
        size = f"{count(result.cells // result.seeds, 'cell')} x {count(result.seeds, 'seed')}"
        size += f" x {result.trials} trials" if result.trials > 1 else ""
    return f"{result.name}  {result.file}  {size}"


def run_line(run: RunResult, width: int, trials: int) -> str:
    """Return the line of one run; `width` is the width of the widest label."""
    trial = f"  trial {run.trial}" if trials > 1 else ""
    done = bar(run.steps_done, run.steps) + (f" {run.steps_done}/{run.steps} steps" if run.steps else "")
    checks = f"{run.checks_passed}/{run.checks} checks"
    times = f"{run.real:.2f} s" + ("" if run.real_time else f" (virtual {run.virtual:.6g} s)")
    return f" {run.label:{width}}{trial}  {done}  {checks}  {verdict(run)}  {times}"


def verdict(run: RunResult) -> str:
    """Return the outcome of a run in the words that the report uses."""
    return _LABELS[run.ended]


def folded_line(runs: Sequence[RunResult], width: int) -> str:
    """Return one line for the runs of one combination, all its seeds and trials."""
    passed = sum(run.ok for run in runs)
    verdict = "ok" if passed == len(runs) else f"{len(runs) - passed} FAILED"
    seeds = seeds_text(dict.fromkeys(run.seed for run in runs))
    label = f"{combination(runs[0])} {seeds}".strip()
    real = sum(run.real for run in runs)
    return f" {label:{width}}  {bar(passed, len(runs))} {passed}/{len(runs)} runs  {verdict}  {real:.2f} s"


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds as text: `seed=7`, `seeds=1..500`, `seeds=1,7,42`."""
    found = list(seeds)
    if len(found) == 1:
        return f"seed={found[0]}"
    if found == list(range(found[0], found[0] + len(found))):
        return f"seeds={found[0]}..{found[-1]}"
    more = f" and {len(found) - SEEDS_NAMED} more" if len(found) > SEEDS_NAMED else ""
    return f"seeds={','.join(map(str, found[:SEEDS_NAMED]))}{more}"


def failure_lines(run: RunResult, messages: int = SOME_MESSAGES) -> list[str]:
    """Return the failures of a run, its state at the end, and the command to repeat it.

    `messages` is the number of last messages to include.
    """
    lines: list[str] = []
    for failure in run.failures[:MOST_FAILURES]:
        lines += _under("   ", f"{failure.place + ': ' if failure.place else ''}{failure.what}")
        lines += _under("     expected ", failure.expected)
        lines += _under("     saw      ", failure.saw)
    if len(run.failures) > MOST_FAILURES:
        lines.append(f"   and {len(run.failures) - MOST_FAILURES} more")
    lines += [f"   {printable(row)}" for row in run.tree]
    shown = [message_text(record) for record in records(run.last[-messages:])] if messages else []
    lines += ["   last messages:", *(f"     {text}" for text in shown)] if shown else []
    lines += [f"   again:  {run.again}"] if run.again else []
    return [*lines, f"   replay: {run.replay}"] if run.replay else lines


def _under(head: str, text: str) -> list[str]:
    """Return the lines of a text, the first after `head` and the others indented to the same column."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… and {len(text) - LONGEST} characters more"
    first, *rest = text.splitlines() or [""]
    return [head + printable(first), *(" " * len(head) + printable(line) for line in rest)]


def first_failure(run: RunResult) -> str:
    """Return the first failure as one line."""
    if not run.failures:
        return run.ended
    first = run.failures[0]
    what = f"{first.what}: expected {first.expected}, saw {first.saw}"
    return shorten(f"{first.place}: {what}" if first.place else what)


def check_lines(run: RunResult) -> list[str]:
    """Return a line for each check, with the expected and the observed value."""
    return [f"   {_check(check)}" for check in run.judged]


def _check(check: CheckResult) -> str:
    verdict = "ok    " if check.ok else "FAILED"
    what = f"check {check.name}: expected {check.expected}, saw {check.saw}"
    return f"{verdict} {shorten(what, LONGEST)}"


def note_lines(result: FileResult) -> list[str]:
    """Return a line for each note on something that was checked but not carried out."""
    return [f" note: {printable(note)}" for note in result.notes]


def compared_lines(compared: Sequence[CheckResult]) -> list[str]:
    """Return the lines of the checks that compare several cells."""
    lines: list[str] = []
    for check in compared:
        lines.append(f" {check.place + ': ' if check.place and not check.ok else ''}{_check(check)}")
    return lines


def repeated_lines(repeated: Sequence[Repeated]) -> list[str]:
    """Return lines that report whether runs repeated in another process gave the same logs."""
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


def trial_lines(result: FileResult) -> list[str]:
    """Return the verdicts on cells in which only some trials passed."""
    lines: list[str] = []
    for label, trials in result.by_label().items():
        passed = sum(run.ok for run in trials)
        if 0 < passed < len(trials):
            enough = "enough" if result.verdict(trials) == 0 else "NOT ENOUGH"
            needed = f"pass_rate {result.pass_rate:g}"
            lines.append(f" {label}  {passed} of {len(trials)} trials passed, {enough} for {needed}")
    more = len(lines) - MOST_FAILURES
    return [*lines[:MOST_FAILURES], f" and {more} cells more"] if more > 0 else lines


def file_line(result: FileResult) -> str:
    """Return the line that follows the runs of a file with several runs: passed, not run, and duration."""
    runs, left = len(result.runs), result.cells * result.trials - len(result.runs)
    seconds = f"  {result.seconds:.1f} s" if result.seconds else ""
    return f" {result.passed}/{runs} runs passed" + (f", {left} not run" if left else "") + seconds


def cut_line(results: Sequence[FileResult]) -> str:
    """Return a line with the reason why files were ended early, and the number of runs with a result.

    The line is "" if no file was ended early.
    """
    cut = cut_of(results)
    if cut is None:
        return ""
    why = {"fail-fast": "ended at the first failure (--fail-fast)"}.get(cut.why, cut.why)
    signal = f" ({cut.signal})" if cut.signal else ""
    runs, asked = sum(len(result.runs) for result in results), sum(result.asked for result in results)
    code = f", exit code {cut.code}" if cut.code else ""
    return f"{why}{signal}, {runs} of {count(asked, 'run')}{code}"


def missing_lines(results: Sequence[FileResult], most: int | None = None) -> list[str]:
    """Return lines that name the runs without a result, one line per combination.

    `most` is the largest number of such lines. If there are more, a final line gives the number left out.
    """
    lines: list[str] = []
    for result in results:
        groups: dict[str, list[Missing]] = {}
        for run in result.missing:
            if run.begun:
                trial = f" trial {run.trial}" if result.trials > 1 else ""
                lines.append(f"{result.name} {run.label}{trial}: begun, not ended")
            else:
                groups.setdefault(combination(run), []).append(run)
        for label, runs in groups.items():
            seeds = seeds_text(dict.fromkeys(run.seed for run in runs))
            trials = f", {count(len(runs), 'run')}" if result.trials > 1 else ""
            name = " ".join(word for word in (result.name, label, seeds) if word)
            lines.append(f"{name}{trials}: did not run")
    more = 0 if most is None else len(lines) - most
    return lines if more <= 0 else [*lines[:most], f"and {count(more, 'line')} more"]


def summary(results: Sequence[FileResult], seconds: float) -> str:
    """Return the last line of the report: the number of passed runs in all files, and the time taken."""
    runs = sum(len(result.runs) for result in results)
    passed = sum(result.passed for result in results)
    files = f" of {len(results)} files" if len(results) > 1 else ""
    beside = {
        "comparison": sum(not check.ok for result in results for check in result.compared),
        "repetition": sum(
            bool(again.difference or again.problem) for result in results for again in result.repeated
        ),
    }
    failed = "".join(
        f", {count} {what}{'s' if count > 1 else ''} FAILED" for what, count in beside.items() if count
    )
    if (cut := cut_of(results)) is not None and cut.code:
        return f"{cut_line(results)}{files}: {passed} passed in {seconds:.1f} s{failed}"
    return f"{passed}/{runs} runs{files} passed in {seconds:.1f} s{failed}"
