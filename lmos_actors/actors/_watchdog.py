"""The watchdog thread: it names a `def` turn that was slow, and limits the time between checkpoints.

A turn runs from start to end in one step, so one that blocks stops the whole node. The thread is awake while
turns run, and otherwise sleeps without a time limit, so that an idle node costs nothing. At every tick it
uses up the rest of the budget, so that ten milliseconds of turns are followed by a checkpoint, however few
turns ran. Code that blocks is named while it still blocks, by `_loop_watch.py`. Real time only: a simulated
world has no threads.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import uncollected
from lmos_actors.errors import SlowTurnWarning

from ._runtime import title_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ._runtime import Runtime

TICK: Final = 0.01  # seconds: the longest between two checkpoints
SHOWN: Final = 20  # calls of its stack that are shown at most
QUIET: Final = 100  # ticks without a turn before the thread sleeps

_HERE: Final = os.path.dirname(__file__) + os.sep


class Watchdog:
    """The watchdog thread of one node and its observations; a turn of `slow` seconds is named."""

    def __init__(self, rt: Runtime, report: Callable[[str], None] | None = None, slow: float = 0.1) -> None:
        self._rt = rt
        self._slow = slow
        self._report = report or self._warn
        self._awake = threading.Event()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._ident = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self.armed = False

    def wake(self) -> None:
        """Wake the thread, as turns are about to run; called from the node's own thread."""
        if not self.armed:
            self.armed = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="lmos watchdog", daemon=True)
                self._thread.start()
            self._awake.set()

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._awake.set()

    def _watch(self) -> None:
        while not self._end.is_set():
            self._awake.wait()
            self._awake.clear()
            self._while_awake()

    def _while_awake(self) -> None:
        turns = self._rt.turns
        seen: Any = None
        ticks = quiet = 0
        slow = max(1, round(self._slow / TICK))
        while not self._end.wait(TICK):
            slot, current = turns.slot, turns.current
            began = turns.budget != 0
            turns.budget = 0
            turns.leave = True  # the batch in hand ends too
            if slot is None or began or current is not seen:
                seen, ticks = current, 0
            else:
                ticks += 1
                if ticks == slow:
                    self._tell(slot, current)
            quiet = 0 if began or slot is not None else quiet + 1
            if quiet > QUIET:
                self.armed = False
                return

    def _tell(self, slot: Any, current: Any) -> None:
        text = self._text(slot, current, f"has held up its node for {self._slow:g} s")
        try:
            self._token.run_sync_soon(self._report, text)
        except trio.RunFinishedError:
            self._report(text)

    def _text(self, slot: Any, current: Any, what: str) -> str:
        with uncollected():
            frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] # documented by CPython
            frame = frames.get(self._ident)
            calls = () if frame is None else calls_in(frame)
        stack = "".join(traceback.format_list(calls))
        return f"the turn {title_of(current)!r} of agent {slot.path!r} {what}:\n{stack}"

    def _warn(self, text: str) -> None:
        try:
            warnings.warn(text, SlowTurnWarning, stacklevel=2)
        except SlowTurnWarning as exc:  # where warnings are errors, it is one of the node
            if self._rt.fatal is not None:
                self._rt.fatal(exc)


def calls_in(frame: FrameType) -> traceback.StackSummary:
    """Return the calls from the handler inwards, without the runtime's calls that led to the handler."""
    calls = traceback.extract_stack(frame, limit=SHOWN)
    ours = [place for place, call in enumerate(calls) if call.filename.startswith(_HERE)]
    shown = calls[ours[-1] + 1 :] if ours else calls
    return traceback.StackSummary.from_list(shown or calls)
