"""The loop watch: a thread that watches the trio loop and names code that blocks it.

All nodes of a process run in one thread, and each task runs alone between two awaits. Code that blocks there
(`time.sleep` in an `async def`, a library's own wait, a loop over a million rows) stops them all, and nothing
in the loop can report that. Hence a thread:

- While nothing happens the thread sleeps, and an idle process costs nothing. A hook of trio wakes it when the
  loop begins to work, and is then removed: a loop that works pays for no hook.
- Awake, the thread asks the loop five times a second for a sign that it goes on. Once the loop has been
  idle for a while, the thread has the hook put back, and sleeps.
- If the loop misses three of these signs and is found in the same call of the same code, that code blocks it.
  A loop that has much to do is in other code each time; it is slow, but no code blocks it.
- The frames of the loop's thread are inspected only if the sign is missing: in CPython 3.11 such an
  inspection is not safe if a garbage collection happens during it (`uncollected`).
- The warning is issued at once, from the thread, as the code may never end. It names the agent and the line.
  The agent is the first `self` in the calls that is an agent.

One watch serves all nodes of a process. Real time only: a simulated world has no threads. Shorter `def` turns
are named by `_watchdog.py`, after they have ended.
"""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import suppress
from traceback import format_list
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import uncollected
from lmos_actors.errors import AgentUnavailable, SlowTurnWarning

from ._agent import Agent
from ._watchdog import calls_in
from .slot._slot import Slot

if TYPE_CHECKING:
    from types import FrameType

LOOK: Final = 0.2
"""Seconds between two looks at a loop that works."""

LOOKS: Final = 3
"""Looks that find the loop in the same call before that call is named."""

QUIET: Final = 5
"""Looks in a row that find it waiting before the thread sleeps."""

_RUN: Final[trio.lowlevel.RunVar[LoopWatch | None]] = trio.lowlevel.RunVar("lmos loop watch", None)


class LoopWatch(trio.abc.Instrument):
    """The thread that watches the loop for all nodes of one trio run."""

    def __init__(self) -> None:
        self._nodes = 0
        self._ident = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._beats = 0
        self._was_idle = False  # nothing else was to be done at the last beat
        self._is_hooked = False
        self._said: dict[Any, Any] = {}
        self._awake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @staticmethod
    def join() -> LoopWatch:
        """Return the watch of this trio run, for one more node. The node calls `leave` when it ends."""
        found = _RUN.get()
        if found is None:
            found = LoopWatch()
            _RUN.set(found)
            found._hook()
        found._nodes += 1
        return found

    def leave(self) -> None:
        """Count one node less; when the last node leaves, end the thread."""
        self._nodes -= 1
        if not self._nodes:
            _RUN.set(None)
            self._over.set()
            self._unhook()
            self._awake.set()

    # ---- in the loop

    def after_io_wait(self, timeout: float) -> None:
        """Wake the thread, as the loop begins to work."""
        self._unhook()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="lmos loop watch", daemon=True)
            self._thread.start()
        self._awake.set()

    def _hook(self) -> None:
        if not (self._is_hooked or self._over.is_set()):
            self._is_hooked = True
            trio.lowlevel.add_instrument(self)

    def _unhook(self) -> None:
        if self._is_hooked:
            self._is_hooked = False
            trio.lowlevel.remove_instrument(self)

    def _beat(self) -> None:
        self._beats += 1
        self._was_idle = not trio.lowlevel.current_statistics().tasks_runnable

    # ---- the thread

    def _watch(self) -> None:
        with suppress(trio.RunFinishedError):
            while not self._over.is_set():
                self._while_awake()
                self._awake.clear()  # it is set by the hook alone, which is not there yet
                self._token.run_sync_soon(self._hook)
                # code that began in the very step that has put the hook back would not wake the thread
                if not self._awake.wait(LOOK) and self._is_hooked and _step_of(self._ident) is None:
                    self._awake.wait()

    def _while_awake(self) -> None:
        held: FrameType | None = None
        looks = quiet = 0
        while quiet < QUIET and not self._over.is_set():
            beats = self._beats
            self._token.run_sync_soon(self._beat, idempotent=True)
            self._over.wait(LOOK)
            if self._beats != beats:
                held, looks = None, 0
                quiet = quiet + 1 if self._was_idle else 0
                continue
            frame = _step_of(self._ident)
            looks = 0 if frame is None else looks + 1 if frame is held else 1
            held, quiet = frame, 0
            if looks == LOOKS:
                _say(self._ident, self._said)


def _step_of(ident: int) -> FrameType | None:
    """Return the outermost frame of the running task, which no other task shares; None if no task runs."""
    found = None
    with uncollected():
        frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage] # documented by CPython
        while frame is not None:
            if frame.f_code.co_name == "unrolled_run":  # trio's loop, while it runs tasks
                return found
            found, frame = frame, frame.f_back
    return None


def _say(ident: int, said: dict[Any, Any]) -> None:
    """Warn from this thread, as the loop's is held up. Python's default filter shows one warning per line."""
    with uncollected():
        innermost = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage] # documented by CPython
        if innermost is None:
            return
        agent = _agent_in(innermost)
        if agent is None and _imports(innermost):  # as a command does while it starts
            return
        who, calls = "the code of no agent" if agent is None else f"agent {agent!r}", calls_in(innermost)
    text = f"{who} holds up its node, for {LOOK * LOOKS:g} s so far:\n{''.join(format_list(calls))}"
    place = calls[-1].filename, calls[-1].lineno or 0
    try:
        warnings.warn_explicit(text, SlowTurnWarning, *place, registry=said)
    except SlowTurnWarning:  # an error, but the thread it belongs to is held up
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"{text}\n")


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _agent_in(frame: FrameType | None) -> str | None:
    """Return the path of the agent whose code was called first, or None if no agent's code was called."""
    found = None
    while frame is not None:
        code = frame.f_code
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        slot = frame.f_locals.get("slot")  # in calls of ours, for functions that are not an agent's own
        if isinstance(first, Agent):
            with suppress(AgentUnavailable):  # its constructor, which has no place yet
                found = first.path
        elif isinstance(slot, Slot):
            found = slot.path
        frame = frame.f_back
    return found
