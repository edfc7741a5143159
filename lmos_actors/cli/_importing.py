"""Calls of functions that run code of users' modules; mistakes in their files are printed."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.scenario import REAL_LIMIT, Guard, refusing_exit, restoring_directory

from ._exit_codes import COULD_NOT_RUN, TIME_LIMIT, USAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmos_actors.actors import Agent
    from lmos_actors.files import Note

T = TypeVar("T")


def print_notes(notes: Iterable[Note]) -> None:
    """Print the warnings about a file."""
    for note in notes:
        print(f"{note.file}:{note.line}:{note.column}: note: {note.message}", file=sys.stderr)


def importing(
    what: str,
    load: Callable[[], T],
    real_limit: float = REAL_LIMIT,
    notice: Callable[[ConfigError], None] | None = None,
) -> T | int:
    """Call a function that runs code of a user's modules, which may hang.

    If it fails or takes longer than `real_limit` seconds, print the problem, also pass it to `notice`, and
    return the exit code.
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
        if notice is not None:
            notice(error)
        return complain(error)
    except KeyboardInterrupt:
        if not guard.fired:
            raise
    text = _hangs(what, "time limit", guard.where)
    print(text, file=sys.stderr)
    if notice is not None:
        notice(ConfigError(text, what))
    return TIME_LIMIT


def _hangs(file: str, why: str, where: str) -> str:
    return f"{file}: {why}, importing its agents hangs at {where}"


def complain(error: ConfigError) -> int:
    """Print the mistakes in a file or a target, and return the exit code."""
    mistakes = error.mistakes if isinstance(error, FileError) else ()
    for text in [str(mistake) for mistake in mistakes] or [str(error)]:
        print(text, file=sys.stderr)
    in_their_code = [mistake.kind == "import" for mistake in mistakes] or [error.__cause__ is not None]
    return COULD_NOT_RUN if all(in_their_code) else USAGE


def agent_class(target: str) -> type[Agent] | int:
    """Import an agent class; a path is relative to this folder. Returns the exit code if that fails."""
    from lmos_actors.system import accepts, import_target

    target, root = from_here(target)
    return importing(target, partial(import_target, target, root, accepts))


def from_here(target: str) -> tuple[str, Path]:
    """Return a target with its path relative to its project, not to this folder, and the project root."""
    from lmos_actors.system.model import project_root

    place, _, name = target.rpartition(":")
    file = Path(place).resolve()
    root = project_root(file)
    return (f"{file.relative_to(root).as_posix()}:{name}" if place.endswith(".py") else target), root
