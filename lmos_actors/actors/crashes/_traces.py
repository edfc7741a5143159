"""The trace of an exception in the user's code, within bounds: where it was raised, and its causes."""

from __future__ import annotations

import linecache
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import LIBRARIES
from lmos_actors.errors import group_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

FRAMES: Final = 20
CAUSES: Final = 8
NOTES: Final = 4

_OURS: Final = tuple(
    os.path.join(path, "") for path in (Path(__file__).parents[2], Path(trio.__file__).parent)
)


def is_ours(file: str) -> bool:
    """Return whether a source file belongs to this package or to trio."""
    return file.startswith(_OURS)


def _calls(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and function of the calls outside the runtime, the outermost first."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_ours(code.co_filename):
            yield code.co_filename, traceback.tb_lineno or 0, code.co_name
        traceback = traceback.tb_next


def place_of(error: BaseException) -> str:
    """Name the innermost line of the user's code, "" if there is none; for a group, its first member's."""
    own = last = ""
    for file, line, name in _calls(error):
        last = f"{file}:{line} in {name}"
        if not file.startswith(LIBRARIES):
            own = last
    group = group_of(error)
    for member in group.exceptions[:CAUSES] if group is not None else ():
        place = place_of(member)
        if place:
            return place
    return own or last


def definition_of(fn: Any) -> str:
    """Return the line where a function is defined as text, or "" if the function is not the user's."""
    code = getattr(getattr(fn, "__wrapped__", fn), "__code__", None)
    if code is None or is_ours(code.co_filename):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


def calls_of(error: BaseException) -> list[str]:
    """Return the calls that led to an exception, one line each; only the first and last of very many."""
    first: list[tuple[str, int, str]] = []
    last: deque[tuple[str, int, str]] = deque(maxlen=FRAMES - FRAMES // 4)
    count = 0
    for call in _calls(error):
        count += 1
        if len(first) < FRAMES // 4:
            first.append(call)
        else:
            last.append(call)
    left_out = count - len(first) - len(last)
    gap = [f"… {left_out} calls left out"] if left_out else []
    return [*map(_line, first), *gap, *map(_line, last)]


def _line(call: tuple[str, int, str]) -> str:
    file, line, name = call
    source = linecache.getline(file, line).strip()
    return f"{file}:{line} in {name}" + (f": {source}" if source else "")


def notes_of(error: BaseException) -> list[str]:
    """Return the notes that were added to an exception."""
    notes: Any = error.__dict__.get("__notes__")  # its class may have a `__getattr__` that raises
    if not isinstance(notes, list):
        return []
    return [note for note in notes[:NOTES] if type(note) is str]  # pyright: ignore


def causes_of(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return the exceptions that led to another, nearest first: causes, contexts, members of groups."""
    found: list[tuple[str, BaseException]] = []
    seen = {id(error)}
    waiting = deque([error])
    while waiting and len(found) < CAUSES:
        for how, cause in _next_causes(waiting.popleft()):
            if id(cause) not in seen and len(found) < CAUSES:
                seen.add(id(cause))
                found.append((how, cause))
                waiting.append(cause)
    return found


def _next_causes(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    if error.__cause__ is not None:
        yield "caused by", error.__cause__
    elif error.__context__ is not None and not error.__suppress_context__:
        yield "raised while handling", error.__context__
    group = group_of(error)
    if group is not None:
        for member in group.exceptions[:CAUSES]:
            yield "in the group:", member
