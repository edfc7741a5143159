"""`run` and `validate`: files read and checked, cells run one after the other, progress shown."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import ExitStack, suppress
from functools import partial
from json import dumps
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import attrs

from lmos_actors._errors import ConfigError
from lmos_actors.files import mapped
from lmos_actors.reports import FileResult, worst
from lmos_actors.scenario import SecondProcess, run_cell

from ._load import load_files
from ._show import Show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lmos_actors.reports import RunResult
    from lmos_actors.scenario import Cell, Resolved

MOST_WORDS = 100
"""How long `-k` may be."""

_WORD = re.compile(r"\s*(\(|\)|\band\b|\bor\b|\bnot\b|[^\s()]+)")


@attrs.frozen(kw_only=True)
class Options:
    """What `run` was given."""

    settings: dict[str, str]
    seeds: Sequence[int] | None
    trials: int | None
    only: str | None
    fail_fast: bool
    determinism: Literal["all", "first", "off"]
    log: Path | None
    time_limit: float
    json: bool


def read_files(files: Sequence[str], settings: Mapping[str, str]) -> int:
    """Check files and say so. Gives the exit code."""
    found, code = load_files(files, settings)
    for file, resolved in found:
        runs = len(resolved.cells)
        print(f"{file}: {resolved.name}, {runs} run{'s' * (runs != 1)}, ok")
    return code


def run_files(files: Sequence[str], options: Options) -> int:
    """Run files, show how it goes, and give the exit code. Nothing runs while a file is wrong."""
    chosen = selection(options.only)
    show = Show(json=options.json)  # before agents' modules, which may hide what it imports
    found, code = load_files(files, options.settings, options.seeds, options.time_limit)
    if code:
        return code
    if not any(chosen(cell.label) for _, resolved in found for cell in resolved.cells):
        raise ConfigError(f'no run has the words "{options.only}"', "-k")
    with ExitStack() as stack:
        running = _Running(files, options, chosen, show, stack)
        for file, resolved in found:
            running.file(file, resolved)
            if options.fail_fast and running.code():
                break
        running.end()
        return running.code()


class _Running:
    """One call of `run`: what has come of it so far, what is shown, what is written."""

    def __init__(
        self,
        files: Sequence[str],
        options: Options,
        chosen: Callable[[str], bool],
        show: Show,
        stack: ExitStack,
    ) -> None:
        self.options = options
        self._files = files
        self.chosen = chosen
        self.results: list[FileResult] = []
        self._stack = stack
        self._logs: dict[str, Any] = {}
        self._began = perf_counter()
        self._show = show
        stack.callback(show.close)
        if options.log is not None:
            self._log(str(options.log))

    def code(self) -> int:
        return worst({result.exit_code() for result in self.results})

    def file(self, file: str, resolved: Resolved) -> None:
        scenario, options = resolved.cells[0].scenario, self.options
        cells = [(n, cell) for n, cell in enumerate(resolved.cells) if self.chosen(cell.label)]
        if not cells:
            return
        for _, cell in cells:  # what cannot be written is to be known before anything runs
            if cell.scenario.report.log is not None:
                self._log(cell.scenario.report.log)
        trials = options.trials or scenario.trials.count
        result = FileResult(file, resolved.name, scenario.trials.pass_rate, trials, len(cells))
        self.results.append(result)
        self._show.begin(result, max(len(cell.label) for _, cell in cells))
        twice = _to_repeat(cells, options.determinism)
        with ExitStack() as stack:
            second: SecondProcess | None = None
            if twice:
                second = SecondProcess(file, options.settings, options.seeds, twice, options.time_limit)
                stack.enter_context(second)
            for number, cell in cells:
                first = self._trials(resolved, cell, result)
                if second is not None and number in twice and first.ended in ("passed", "failed"):
                    result.repeated.append(second.compare(number, first))
                if options.fail_fast and result.exit_code():
                    break
        self._show.end_file(result)

    def _trials(self, resolved: Resolved, cell: Cell, result: FileResult) -> RunResult:
        first: RunResult | None = None
        for trial in range(1, result.trials + 1):
            run = run_cell(
                resolved,
                cell,
                trial,
                real_limit=self.options.time_limit,
                progress=self._show.progress(cell.label, trial),
                last_words=partial(_last_words, result.file, cell.label),
            )
            first = first or run
            # the log of a run is long, and only that of the first is looked at again
            result.runs.append(attrs.evolve(run, log=()))
            for path in filter(None, (self.options.log, cell.scenario.report.log)):
                self._write(str(path), run.log)
            self._show.run(run, result, self._again(result.file, run))
            if self.options.fail_fast and not run.ok:
                break
        assert first is not None
        return first

    def _again(self, file: str, run: RunResult) -> str:
        words = ["lmos-actors", "run", file, "--seed", str(run.seed)]
        for key, value in (self.options.settings | run.values).items():
            shown = mapped(value).get("name", value)
            words += ["--set", f"{key}={shown if isinstance(shown, str) else dumps(shown)}"]
        return shlex.join(words)

    def _log(self, path: str) -> Any:
        if path not in self._logs:
            if any(_same_file(path, file) for file in self._files):
                raise ConfigError("is a scenario file, the log would be written over it", path)
            try:
                opened = open(path, "w", encoding="utf-8", errors="surrogatepass", opener=_opened)  # noqa: SIM115 - left with the stack
            except (OSError, ValueError) as error:
                raise _unwritten(path, error) from None
            self._stack.callback(_closed, opened)
            self._logs[path] = opened
        return self._logs[path]

    def _write(self, path: str, lines: Sequence[str]) -> None:
        log = self._log(path)
        try:
            log.write("".join(line + "\n" for line in lines))
            log.flush()
        except OSError as error:
            raise _unwritten(path, error) from None

    def end(self) -> None:
        self._show.end(self.results, perf_counter() - self._began, self.code())


def _opened(path: str, flags: int) -> int:
    # a pipe that nobody reads is an error, and nothing to wait for
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _closed(opened: Any) -> None:
    # what could not be written has been told
    with suppress(OSError):
        opened.close()


def _unwritten(path: str, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else error
    return ConfigError(f"cannot be written: {reason}", ascii(path)[1:-1])


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _to_repeat(cells: list[tuple[int, Cell]], which: str) -> list[int]:
    """Choose the cells to run twice: those of the first seed of each combination, all, or none."""
    if which == "off":
        return []
    first = cells[0][1].seed
    return [number for number, cell in cells if which == "all" or cell.seed == first]


def _last_words(file: str, label: str, why: str, where: str) -> None:
    """Say why the process ends: a run that nothing else can end."""
    print(f"{file} {label}: {why}, and it cannot be ended: it hangs at {where}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


# ---- -k


def selection(expression: str | None) -> Callable[[str], bool]:
    """Compile `-k`: words, `and`, `or`, `not`, parentheses. Raises ConfigError."""
    if expression is None:
        return lambda label: True
    tokens = _WORD.findall(expression)
    if len(tokens) > MOST_WORDS:
        raise ConfigError(f"has more than {MOST_WORDS} words", "-k")
    found, rest = _either(tokens)
    if rest:
        raise ConfigError(f'cannot be read at "{rest[0]}"', "-k")
    return found


def _either(tokens: list[str]) -> tuple[Callable[[str], bool], list[str]]:
    left, rest = _both(tokens)
    if rest[:1] != ["or"]:
        return left, rest
    right, rest = _either(rest[1:])
    return lambda label: left(label) or right(label), rest


def _both(tokens: list[str]) -> tuple[Callable[[str], bool], list[str]]:
    left, rest = _single(tokens)
    if rest[:1] != ["and"]:
        return left, rest
    right, rest = _both(rest[1:])
    return lambda label: left(label) and right(label), rest


def _single(tokens: list[str]) -> tuple[Callable[[str], bool], list[str]]:
    word, rest = (tokens[0], tokens[1:]) if tokens else ("", [])
    if word == "not":
        inner, rest = _single(rest)
        return lambda label: not inner(label), rest
    if word == "(":
        inner, rest = _either(rest)
        if rest[:1] != [")"]:
            raise ConfigError('")" is missing', "-k")
        return inner, rest[1:]
    if word in ("", "and", "or", ")"):
        raise ConfigError(
            f'a word is missing{f""" before "{word}" """.rstrip() if word else " at the end"}', "-k"
        )
    return lambda label: word in label, rest
