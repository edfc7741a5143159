"""Waiting tasks: lists whose tasks are all woken at once, and waits for an agent to be ready.

`ref.ready()` may wait for as long as a directory or a peer cannot be reached, so it must not be silent: each
wait is kept here with a text that describes what it waits for. That text appears in the log after a second,
in the waiting graph, and in the error when the wait is given up.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

from lmos_actors.errors import group_of

if TYPE_CHECKING:
    from types import TracebackType

    from lmos_actors._core import Timer, Timers

SILENT: Final = 1.0
"""Seconds that a `ready()` waits before the log names what it waits for."""

LINES: Final = 10
"""The most lines of the log that are written at one time."""


@enable_ki_protection
async def park_among(waiting: list[trio.lowlevel.Task], call: Any = None) -> None:
    """Wait in a list until the task is rescheduled; a cancelled task leaves the list.

    `call` is the near call that the task waits for, if any.
    """
    me = current_task()
    waiting.append(me)
    if call is not None:
        note_wait(me, call)

    def abort(_: object) -> Abort:
        if me in waiting:
            waiting.remove(me)
        return Abort.SUCCEEDED

    await wait_task_rescheduled(abort)


def note_wait(task: trio.lowlevel.Task, call: Any) -> None:
    """Record the near call that a task, about to park, is going to wait for; see `_circles.py`."""
    task.custom_sleep_data = call  # trio empties it when it wakes the task
    rt = call.slot.rt
    if rt.full_slots or rt.is_in_line:
        rt.circles.look_again(call)


def wake_all(timers: Timers, waiting: list[trio.lowlevel.Task]) -> None:
    """Wake all tasks of a list (see `park_among`), and empty it."""
    if waiting:
        woken = waiting[:]
        waiting.clear()
        timers.woke = True
        for task in woken:
            reschedule(task)


class Awaited(Protocol):
    """The link of a ref, as seen by `ready()`."""

    @property
    def path(self) -> str:
        """The path of the agent, or the query for it."""
        ...

    def unready(self) -> str:
        """Return why the agent takes no messages now, or "" if it is known to take them. Never raises."""
        ...


class ReadyWait:
    """One `ref.ready()` that has not returned; the context manager around its wait."""

    __slots__ = ("_waits", "link", "since", "task")

    def __init__(self, waits: ReadyWaits, link: Awaited) -> None:
        self._waits = waits
        self.link = link
        self.since = trio.current_time()
        self.task = current_task()

    def __enter__(self) -> None:
        self._waits.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waits.remove(self)
        if error is not None and _is_cancel(error):  # by code that does not know what this was about
            error.add_note(f"while {self.link.path!r} was waited for: {self.link.unready()}")


class ReadyWaits:
    """All waits in one node for agents to be ready, near or far."""

    __slots__ = ("_log", "_timer", "_timers", "_unsaid", "open")

    def __init__(self, timers: Timers, *, log: bool) -> None:
        self.open: dict[ReadyWait, None] = {}
        self._unsaid: dict[ReadyWait, None] = {}
        self._timers = timers
        self._timer: Timer | None = None
        self._log = log

    def add(self, wait: ReadyWait) -> None:
        """Register a wait; if it lasts a second, the log shows what it waits for."""
        self.open[wait] = None
        if self._log:
            self._unsaid[wait] = None
            self._set_timer()

    def remove(self, wait: ReadyWait) -> None:
        """Forget a wait that is over.

        The timer stays: to cancel it and set it anew would cost more than all else, and most waits are short.
        """
        del self.open[wait]
        self._unsaid.pop(wait, None)

    def _set_timer(self) -> None:
        if self._timer is None and self._unsaid:
            first = next(iter(self._unsaid))
            self._timer = self._timers.call_at(first.since + SILENT, self._say)

    def _say(self) -> None:
        self._timer = None
        now = trio.current_time()
        due = [wait for wait in self._unsaid if wait.since + SILENT <= now]
        for wait in due:
            del self._unsaid[wait]
        texts = Counter(f"{wait.link.path!r}: {wait.link.unready()}" for wait in due)
        logger = logging.getLogger("lmos_actors")
        for text, times in list(texts.items())[:LINES]:
            tasks = "" if times == 1 else f" ({times} tasks)"
            logger.warning("ready() has waited %g s for %s%s", SILENT, text, tasks)
        if len(texts) > LINES:
            logger.warning("ready() has waited %g s for %d more agents", SILENT, len(texts) - LINES)
        self._set_timer()


def _is_cancel(error: BaseException) -> bool:
    group = group_of(error)
    return isinstance(error, trio.Cancelled) if group is None else group.split(trio.Cancelled)[1] is None
