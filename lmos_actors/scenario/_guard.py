"""A limit of real time on one run: virtual time never comes to a handler that loops for ever."""

from __future__ import annotations

import _thread
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

GRACE = 3.0
"""Seconds that a run has, once told to end, before the process ends."""

TIME_LIMIT = 124


class Guard:
    """`with Guard(60.0, say) as guard:` around a run in the main thread.

    Past the limit the run gets a KeyboardInterrupt, later another, and `fired` is set. If that does not end
    it, `say` is called with where it hangs, and the process ends with 124.
    """

    def __init__(self, seconds: float, say: Callable[[str], None]) -> None:
        self.fired = False
        self.where = ""
        self._seconds = seconds
        self._say = say
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._lock = threading.Lock()

    def __enter__(self) -> Guard:
        threading.Thread(target=self._watch, name="time limit", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._over.set()

    def _watch(self) -> None:
        if self._over.wait(self._seconds):
            return
        with self._lock:
            if self._over.is_set():
                return
            self.fired = True
            self.where = self._place()
        # as Ctrl-C: the first stops in order, the second gives nobody more time
        for _ in range(2):
            with self._lock:
                if self._over.is_set():
                    return
                _thread.interrupt_main()
            if self._over.wait(GRACE / 2):
                return
        self._say(self._place())
        os._exit(TIME_LIMIT)

    def _place(self) -> str:
        return place_of(sys._current_frames().get(self._main))  # pyright: ignore[reportPrivateUsage]


def place_of(frame: FrameType | None) -> str:
    """Name the innermost place that is neither ours, nor trio's, nor the standard library's."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if (
            package not in ("lmos_actors", "trio", "outcome", "attr")
            and package not in sys.stdlib_module_names
        ):
            return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "the runtime itself"
