"""Loading of scenario files: reading, checking, and printing their mistakes."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lmos_actors._collector import collector
from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.reports import worst
from lmos_actors.scenario import REAL_LIMIT, Guard, load_scenario, refusing_exit, restoring_directory

from ._display import mistakes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lmos_actors.files import Note
    from lmos_actors.scenario import RemoteAccess, Resolved

T = TypeVar("T")
Wrong: TypeAlias = list[dict[str, Any]]
"""Mistakes as plain data, for `--json`."""

WRONG, COULD_NOT_RUN, TIME_LIMIT = 2, 3, 124


def load_files(
    files: Sequence[str],
    settings: Mapping[str, str],
    seeds: Sequence[int] | None = None,
    real_limit: float = REAL_LIMIT,
    wrong: Wrong | None = None,
    *,
    access: RemoteAccess | None = None,
) -> tuple[list[tuple[str, Resolved]], int]:
    """Read all files, importing what they name; print mistakes and warnings. Returns the exit code too.

    Mistakes go into `wrong` too, if that is given. With `access` files are read to be run: the credentials
    for remote agents must exist.
    """
    found: list[tuple[str, Resolved]] = []
    codes: set[int] = set()
    for file in files:
        load = partial(load_scenario, file, settings=settings, seeds=seeds, access=access)
        loaded = importing(file, load, real_limit, wrong)
        if isinstance(loaded, int):
            codes.add(loaded)
            continue
        print_notes(loaded.notes)
        found.append((file, loaded))
    collector.settle()
    return found, worst(codes)


def print_notes(notes: Iterable[Note]) -> None:
    """Print the warnings about a file."""
    for note in notes:
        print(f"{note.file}:{note.line}:{note.column}: note: {note.message}", file=sys.stderr)


def importing(
    what: str, load: Callable[[], T], real_limit: float = REAL_LIMIT, wrong: Wrong | None = None
) -> T | int:
    """Call a function that runs code of a user's modules, which may hang.

    If it fails or takes longer than `real_limit` seconds, print that, and return the exit code.
    """
    guard = Guard(real_limit, lambda why, where: print(_hangs(what, why, where), file=sys.stderr, flush=True))
    try:
        with (
            redirect_stdout(sys.stderr),
            restoring_directory(),
            refusing_exit(),
            guard,
            guard.handling_interrupts(),
        ):
            loaded = load()
        if not guard.interrupted:
            return loaded
        raise KeyboardInterrupt
    except ConfigError as error:
        return complain(error, wrong)
    except KeyboardInterrupt:
        if not guard.fired:
            raise
    text = _hangs(what, "time limit", guard.where)
    print(text, file=sys.stderr)
    if wrong is not None:
        wrong += mistakes_of(ConfigError(text, what))
    return TIME_LIMIT


def _hangs(file: str, why: str, where: str) -> str:
    return f"{file}: {why}, importing its agents hangs at {where}"


def complain(error: ConfigError, wrong: Wrong | None = None) -> int:
    """Print the mistakes in a file or a target, and return the exit code."""
    if wrong is not None:
        wrong += mistakes_of(error)
    mistakes = error.mistakes if isinstance(error, FileError) else ()
    for text in [str(mistake) for mistake in mistakes] or [str(error)]:
        print(text, file=sys.stderr)
    in_their_code = [mistake.kind == "import" for mistake in mistakes] or [error.__cause__ is not None]
    return COULD_NOT_RUN if all(in_their_code) else WRONG
