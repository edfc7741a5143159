"""Where tasks and threads stand, as text: the user's own calls, without those of the runtime and trio."""

from __future__ import annotations

import contextlib
import os
import traceback
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

CALLS: Final = 20  # innermost calls that are shown of one stack
TASKS: Final = 8  # child tasks that are shown of one task

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TRIO: Final = os.path.dirname(trio.__file__) + os.sep
_HIDDEN: Final = (_PACKAGE, _TRIO, contextlib.__file__)


def task_stack(task: trio.lowlevel.Task) -> Iterator[str]:
    """Show where a task waits, and below it where its child tasks do."""
    yield from _calls(task.iter_await_frames())
    children = [child for nursery in task.child_nurseries for child in in_order(nursery.child_tasks)]
    for child in children[:TASKS]:
        yield f"task {child.name!r}"
        yield from ("  " + line for line in task_stack(child))
    if len(children) > TASKS:
        yield f"... and {len(children) - TASKS} more tasks"


def in_order(tasks: Iterable[trio.lowlevel.Task]) -> list[trio.lowlevel.Task]:
    """Give tasks by name, as the order of a set is chance."""
    return sorted(tasks, key=lambda task: task.name)


def thread_stack(frame: FrameType) -> list[str]:
    """Show what user code a thread is in; nothing when the runtime or trio waits."""
    calls = dropwhile(lambda call: _is_in(call, _PACKAGE), traceback.walk_stack(frame))
    own = list(takewhile(lambda call: not _is_in(call, *_HIDDEN), calls))
    return list(_calls(reversed(own)))


def _is_in(call: tuple[FrameType, int], *places: str) -> bool:
    return call[0].f_code.co_filename.startswith(places)


def _calls(calls: Iterable[tuple[FrameType, int]]) -> Iterator[str]:
    own = [call for call in calls if not _is_in(call, *_HIDDEN)]
    for entry in traceback.StackSummary.extract(iter(own[-CALLS:])).format():
        yield from entry.rstrip("\n").splitlines()
