"""Recording by `run --update-recordings`: real agents run in place of replays, and logs are rewritten."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError, mapped
from lmos_actors.reports import failure_lines, run_line, worst
from lmos_actors.scenario import REAL_LIMIT
from lmos_actors.scenario.format import load_scenario, selection
from lmos_actors.scenario.judge import LogFile
from lmos_actors.scenario.run import live_replays, recordings_of, run_cell

from .._importing import importing
from .._signals import signals
from .._written_files import refuse_foreign, replace_file, unwritten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lmos_actors.scenario.format import Cell, Resolved

    from ..options._run import RunOptions


REAL_TIME: Final = "websocket"
"""The world in which agents run in real time."""


def record_files(files: Sequence[str], options: RunOptions) -> int:
    """Run the chosen cells of files once each, and write the logs of their replays. Returns the exit code.

    The logs of a file are written only if all chosen cells of the file have passed; a log keeps the runs of
    other cells. After an interruption, nothing is written for the file, and a message is printed.
    """
    with signals.in_order():
        return _record_files(files, options)


def _record_files(files: Sequence[str], options: RunOptions) -> int:
    chosen = selection(options.only, options.labels or ())
    found: list[tuple[str, Resolved]] = []
    codes: list[int] = []
    for file in files:
        read = partial(
            load_scenario, settings=options.settings, seeds=options.seed_list, access=options.access
        )
        load = partial(_load, read, file, dict(options.settings))
        loaded = importing(file, load, options.time_limit or REAL_LIMIT)
        if isinstance(loaded, int):
            codes.append(loaded)
        else:
            found.append((file, loaded))
    if codes:
        return worst(set(codes))
    chosen.check(found)
    for file, resolved in found:
        cells = [cell for cell in resolved.cells if chosen.fits(cell)]
        try:
            codes.append(_record(file, resolved, cells, options))
        except KeyboardInterrupt:
            print(f"{file}: nothing is recorded, as not every run has ended", file=sys.stderr)
            raise
    return worst(set(codes))


def _load(read: Callable[..., Resolved], file: str, settings: dict[str, str]) -> Resolved:
    """Read a file whose replays are to be recorded, in real time if one of its models calls a provider.

    Raises ConfigError if the world would have to be changed to real time, but is a key of the file's matrix.
    """
    resolved = read(file, recording=True, settings=settings)
    data = mapped(resolved.document.data)
    axes = mapped(data.get("matrix") or data.get("sweep"))
    live = next((name for cell in resolved.cells for name in live_replays(cell)), None)
    if live is not None:
        if "world" in axes:
            raise ConfigError(f"world is a key of the matrix: --set world={REAL_TIME} records {live}", file)
        print(f"{file}: recorded in real time, as {live} asks a provider (world: {REAL_TIME})")
        settings = {**settings, "world": REAL_TIME}
        resolved = read(file, recording=True, settings=settings)
    if "world" in settings and "world" not in axes:
        resolved = attrs.evolve(resolved, cells=tuple(map(_without_world, resolved.cells)))
    return resolved


def _without_world(cell: Cell) -> Cell:
    """Return a cell whose label does not contain the changed world; its recording is found by the label."""
    return attrs.evolve(cell, values={key: value for key, value in cell.values.items() if key != "world"})


def _record(file: str, resolved: Resolved, cells: Sequence[Cell], options: RunOptions) -> int:
    logs: dict[Path, dict[str, tuple[str, ...]]] = {}
    if not any(recordings_of(resolved, cell) for cell in cells):
        raise ConfigError("has no agent from: replay, there is nothing to record", file)
    if not options.force:
        for cell in cells:
            for path in recordings_of(resolved, cell):
                refuse_foreign(str(path))
    failed = False
    for cell in cells:
        limit = options.time_limit
        run = run_cell(resolved, cell, 1, real_limit=limit, on_stuck=_last_words, hide_secrets=True)
        print(run_line(run, max(len(cell.label) for cell in cells), 1))
        for line in [] if run.ok else failure_lines(run):
            print(line)
        failed = failed or not run.ok
        for path in recordings_of(resolved, cell):
            logs.setdefault(path, {})[cell.label] = run.log
    if failed:
        print(f"{file}: nothing is recorded, as not every run passed", file=sys.stderr)
        return 1
    with signals.held():
        for path, runs in logs.items():
            _write(path, _others(path, runs) | runs)
            print(f"recorded {len(runs)} run{'s' * (len(runs) != 1)}: {path}")
    return 0


def _last_words(why: str, where: str) -> None:
    print(f"{why}, and the run cannot be ended: {where}", file=sys.stderr, flush=True)


def _others(path: Path, runs: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the runs in a log that are not being recorded again."""
    found: dict[str, tuple[str, ...]] = {}
    with suppress(FileError), LogFile(path) as file:
        for run in file.runs():
            label = str(run.run.get("label", ""))
            lines = tuple(line.text for line in run)
            if label not in runs and run.problem is None:
                found[label] = lines
    return found


def _write(path: Path, runs: dict[str, tuple[str, ...]]) -> None:
    """Replace the whole content of a log, or leave the old one. Raises ConfigError, OSError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(str(path), error) from None
    replace_file(str(path), "".join(line + "\n" for lines in runs.values() for line in lines))
