"""SIGUSR1 asks a process for the dumps of all its nodes, on standard error.

A plain signal handler: it runs between two instructions of the main thread, so also while a turn that never
ends holds up the node. Only where there is such a signal and nobody else has a handler for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SIGNAL: Final[int | None] = getattr(signal, "SIGUSR1", None)


class Dumps:
    """The open nodes of this process that live in real time, and the handler that dumps them."""

    def __init__(self) -> None:
        self._shown: dict[Any, Callable[[FrameType | None], str]] = {}
        self._mine: dict[Any, None] = {}  # what the main thread opened, which alone may set handlers

    def node_opened(self, node: object, show: Callable[[FrameType | None], str]) -> None:
        """Have a node dumped; `show` gives its dump and never raises."""
        self._shown[node] = show
        self.claim(node)

    def node_ended(self, node: object) -> None:
        """Have it dumped no more."""
        self._shown.pop(node, None)
        self.release(node)

    def claim(self, owner: object) -> None:
        """Have the handler there from now on, for what the main thread opens; in others nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._mine[owner] = None
        if SIGNAL is not None and signal.getsignal(SIGNAL) is signal.SIG_DFL:
            signal.signal(SIGNAL, self._asked)

    def release(self, owner: object) -> None:
        """Need the handler no more; the last one that the main thread opened takes it away."""
        self._mine.pop(owner, None)
        here = threading.current_thread() is threading.main_thread()
        if SIGNAL is not None and here and not self._mine and signal.getsignal(SIGNAL) == self._asked:
            signal.signal(SIGNAL, signal.SIG_DFL)

    def _asked(self, _: int, frame: FrameType | None) -> None:
        for show in tuple(self._shown.values()):
            _write(show(frame) + "\n")


def _write(text: str) -> None:
    """Write to standard error past its buffer, in which the interrupted code may be writing."""
    try:
        data = text.encode("utf-8", "backslashreplace")
        place = sys.stderr.fileno()
        while data:
            data = data[os.write(place, data) :]
    except (OSError, ValueError, AttributeError):  # closed, or no file: then there is nobody to tell
        return


dumps: Final = Dumps()
