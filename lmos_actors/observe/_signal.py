"""The handler of SIGUSR1, which writes the dumps of all open nodes to standard error.

It is a plain signal handler: it runs between two instructions of the main thread, so it works even while a
turn that never ends blocks the node. It is installed only if the platform has the signal and the program
has no handler of its own for it.
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


class DumpSignal:
    """The open nodes of this process that run in real time, and the handler that dumps them."""

    def __init__(self) -> None:
        self._shown: dict[Any, Callable[[FrameType | None], str]] = {}
        self._mine: dict[Any, None] = {}  # opened by the main thread: only it may set handlers

    def node_opened(self, node: object, show: Callable[[FrameType | None], str]) -> None:
        """Add a node to the dumped ones; `show` returns its dump and never raises."""
        self._shown[node] = show
        self.claim(node)

    def node_ended(self, node: object) -> None:
        """Remove a node from the dumped ones."""
        self._shown.pop(node, None)
        self.release(node)

    def claim(self, owner: object) -> None:
        """Install the handler on behalf of `owner`. Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._mine[owner] = None
        if SIGNAL is not None and signal.getsignal(SIGNAL) is signal.SIG_DFL:
            signal.signal(SIGNAL, self._asked)

    def release(self, owner: object) -> None:
        """Drop the claim of `owner`; the last claim of the main thread removes the handler."""
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
    except (OSError, ValueError, AttributeError):  # closed, or no file: there is nowhere to write
        return


dump_signal: Final = DumpSignal()
