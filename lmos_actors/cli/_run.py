"""`run` and `validate`: files read and checked, cells run one after the other, progress shown."""

from __future__ import annotations

import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from lmos_actors._errors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.scenario import (
    FileResult,
    SecondProcess,
    as_data,
    load_scenario,
    report,
    run_cell,
    worst,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmos_actors.scenario import Cell, Resolved, RunResult

WRONG, COULD_NOT_RUN = 2, 3
_WORD = re.compile(r"\s*(\(|\)|\band\b|\bor\b|\bnot\b|[^\s()]+)")


@attrs.frozen(kw_only=True)
class Options:
    """What `run` was given."""

    settings: Mapping[str, str]
    seeds: Sequence[int] | None
    trials: int | None
    only: str | None
    fail_fast: bool
    determinism: Literal["all", "first", "off"]
    log: Path | None
    time_limit: float
    json: bool


def complain(error: ConfigError) -> int:
    """Print what is wrong with a file, and give the exit code."""
    mistakes = error.mistakes if isinstance(error, FileError) else ()
    for text in [str(mistake) for mistake in mistakes] or [str(error)]:
        print(text, file=sys.stderr)
    only_imports = bool(mistakes) and all(mistake.kind == "import" for mistake in mistakes)
    return COULD_NOT_RUN if only_imports else WRONG


def _load(
    files: Sequence[str], settings: Mapping[str, str], seeds: Sequence[int] | None
) -> tuple[list[tuple[str, Resolved]], int]:
    """Read all files; print what is wrong, and warnings. Gives the exit code too."""
    found: list[tuple[str, Resolved]] = []
    codes: set[int] = set()
    for file in files:
        try:
            resolved = load_scenario(file, settings=settings, seeds=seeds)
        except ConfigError as error:
            codes.add(complain(error))
            continue
        for note in resolved.notes:
            print(f"{note.file}:{note.line}:{note.column}: note: {note.message}", file=sys.stderr)
        found.append((file, resolved))
    return found, worst(codes)


def read_files(files: Sequence[str], settings: Mapping[str, str]) -> int:
    """Check files and say so. Gives the exit code."""
    found, code = _load(files, settings, None)
    for file, resolved in found:
        print(f"{file}: {resolved.name}, {len(resolved.cells)} runs, ok")
    return code


def run_files(files: Sequence[str], options: Options) -> int:
    """Run files, show how it goes, and give the exit code. Nothing runs while a file is wrong."""
    chosen = selection(options.only)
    found, code = _load(files, options.settings, options.seeds)
    if code:
        return code
    began = time.perf_counter()
    with ExitStack() as stack:
        log = _open_log(options.log, stack) if options.log is not None else None
        show = Show(options, stack)
        results: list[FileResult] = []
        for file, resolved in found:
            results.append(_run_file(file, resolved, options, chosen, show, log))
            if options.fail_fast and results[-1].exit_code():
                break
        code = worst({result.exit_code() for result in results})
        if not any(result.runs for result in results):
            raise ConfigError(f'no run has the words "{options.only}"', "-k")
        show.end(results, time.perf_counter() - began, code)
    return code


def _open_log(path: Path, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(path.open("w", encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", str(path)) from None


def _run_file(
    file: str,
    resolved: Resolved,
    options: Options,
    chosen: Callable[[str], bool],
    show: Show,
    log: Any,
) -> FileResult:
    scenario = resolved.cells[0].scenario
    trials = options.trials or scenario.trials.count
    cells = [(n, cell) for n, cell in enumerate(resolved.cells) if chosen(cell.label)]
    result = FileResult(file, resolved.name, scenario.trials.pass_rate, trials, len(cells))
    show.begin(result, [cell.label for _, cell in cells])
    twice = _to_repeat(cells, options.determinism)
    with ExitStack() as stack:
        second: SecondProcess | None = None
        if twice:
            second = SecondProcess(file, options.settings, options.seeds, twice, options.time_limit)
            stack.enter_context(second)
        for number, cell in cells:
            firsts = _run_trials(resolved, cell, trials, options, show, result, log)
            if second is not None and number in twice and firsts.ended in ("passed", "failed"):
                result.repeated.append(second.compare(number, firsts))
            if options.fail_fast and result.exit_code():
                break
    show.end_file(result)
    return result


def _to_repeat(cells: list[tuple[int, Cell]], which: str) -> list[int]:
    """Choose the cells to run twice: those of the first seed of each combination, all, or none."""
    if which == "off" or not cells:
        return []
    first = cells[0][1].seed
    return [number for number, cell in cells if which == "all" or cell.seed == first]


def _run_trials(
    resolved: Resolved,
    cell: Cell,
    trials: int,
    options: Options,
    show: Show,
    result: FileResult,
    log: Any,
) -> RunResult:
    runs: list[RunResult] = []
    for trial in range(1, trials + 1):
        run = run_cell(
            resolved,
            cell,
            trial,
            real_limit=options.time_limit,
            progress=show.progress(cell, trial),
            last_words=lambda where: _last_words(where, options),
        )
        runs.append(run)
        result.runs.append(run)
        for target in (log, _own_log(cell)):
            if target is not None:
                target.write("".join(line + "\n" for line in run.log))
        show.run(run, resolved, result)
        if options.fail_fast and not run.ok:
            break
    return runs[0]
