"""The line of user code that runs now, as opposed to lines of libraries and of the runtime.

An error inside a library that user code called names the line of the call, as the user can change that line.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import FrameType

PACKAGE: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")

LIBRARIES: Final = (
    "<frozen ",
    *(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
"""Prefixes of the files of the standard library and of installed packages."""

ASYNCIO: Final = os.path.join(sysconfig.get_path("stdlib"), "asyncio", "")

WAY_OUT: Final = (
    "put a mock in the agent's place (`from: mock` in a scenario, `replace=` in a test), "
    "or fake what the agent calls"
)


@contextmanager
def uncollected() -> Generator[None]:
    """Disable garbage collection in a block, unless the block itself asks for one.

    Code that looks at the frames of another thread needs this. In CPython 3.11 each step from a frame to its
    caller creates an object, which may trigger a collection. While the collection destroys objects, the other
    thread may run and free its frames in the middle of the step. Then the process ends with a segmentation
    fault, or hangs (python/cpython issues 99110 and 106883).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_users(file: str) -> bool:
    """Return whether a source file belongs to the user: neither to this package nor to a library."""
    return not file.startswith((PACKAGE, *LIBRARIES))


def line_of_user() -> str:
    """Return the line of the user's code that runs now, as `file:line`.

    In a task that a library has started, return the line that waits for the library. If there is none, return
    the innermost line of a library.
    """
    calls = list(_calls(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage] # documented by CPython
    own = next((place for place in calls if is_users(place[0])), None)
    if own is None and trio.lowlevel.in_trio_task():
        own = _waiting_for(trio.lowlevel.current_task())
    if own is None:
        own = next((place for place in calls if not _is_basic(place[0])), None)
    return f"{own[0]}:{own[1]}" if own is not None else "an unknown place"


def line_of(task: trio.lowlevel.Task) -> tuple[str, int] | None:
    """Return the file and line at which a parked task waits: the user's line, else a library's, else None.

    If the task runs a function of this package, the user's line that waits for the task is returned.
    """
    calls = _awaits(task)[::-1]
    own = next((place for place in calls if is_users(place[0])), None) or _waiting_for(task)
    return own or next((place for place in calls if not _is_basic(place[0])), None)


def runs_asyncio() -> bool:
    """Return whether the code that runs now was called by asyncio."""
    return any(file.startswith(ASYNCIO) for file, _ in _calls(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]


def _is_basic(file: str) -> bool:
    if file.startswith((PACKAGE, os.path.dirname(trio.__file__), "<")):
        return True
    standard = os.path.join(sysconfig.get_path("stdlib"), "")
    return file.startswith(standard) and f"{os.sep}site-packages{os.sep}" not in file


def _calls(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    """Yield the file and line of each active call, the innermost first."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _waiting_for(task: trio.lowlevel.Task) -> tuple[str, int] | None:
    """Return the user's line that waits for a task, or None if the runtime has started the task."""
    while task.parent_nursery is not None:
        task = task.parent_nursery.parent_task
        frames = _awaits(task)
        own = [place for place in frames if is_users(place[0])]
        if own:
            return own[-1]
        if frames and frames[0][0].startswith(PACKAGE):
            return None
    return None


def _awaits(task: trio.lowlevel.Task) -> list[tuple[str, int]]:
    return [(frame.f_code.co_filename, line) for frame, line in task.iter_await_frames()]
