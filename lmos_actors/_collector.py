"""Threshold of the process's garbage collector, raised while any node is open."""

from __future__ import annotations

import gc
import threading
from typing import Final

GC_THRESHOLD: Final = 10_000
"""Allocations between collections while a node is open, if the process has a lower one. Agents are
made by the ten thousand, and the collector would scan all of them again and again."""

MIDDLE: Final = 1
"""Collections of the youngest generation before one that includes the middle one. With a larger number, one
collection would take a tenth of a second, in which the node answers nobody; the total would be the same."""

OLDEST: Final = 250
"""Collections of the middle generation before one of everything."""


class Collector:
    """The garbage collector's threshold, and the number of open nodes for which it is raised."""

    def __init__(self) -> None:
        self._nodes = 0
        self._threshold = gc.get_threshold()
        self._lock = threading.Lock()  # there may be nodes in several threads
        self._is_ours = False
        self._is_settled = False  # gc.get_freeze_count() does not tell: 3.12 starts with some frozen

    def take_process(self) -> None:
        """Raise the threshold from now on.

        Only for the command, which owns its process and imports many modules.
        """
        self._is_ours = True
        _raise(gc.get_threshold())

    def settle(self) -> None:
        """Exclude all objects that exist now, such as modules, from collection, even at exit.

        Does nothing before `take_process` has been called, or when called again.
        """
        if self._is_ours and not self._is_settled:
            self._is_settled = True
            gc.freeze()

    def node_opened(self) -> None:
        """Raise the threshold if this is the first node."""
        with self._lock:
            self._nodes += 1
            if self._nodes == 1:
                self._threshold = gc.get_threshold()
                if 0 < self._threshold[0] < GC_THRESHOLD:
                    _raise(self._threshold)

    def node_ended(self) -> None:
        """Restore the threshold if this was the last node and the program has set none meanwhile."""
        with self._lock:
            self._nodes -= 1
            if not self._nodes and gc.get_threshold()[0] == GC_THRESHOLD:
                gc.set_threshold(*self._threshold)


def _raise(usual: tuple[int, int, int]) -> None:
    """Raise the thresholds, so that collections are rarer and each one covers few objects."""
    if usual[2]:
        gc.set_threshold(GC_THRESHOLD, MIDDLE, OLDEST)
    else:  # the first releases of 3.14 collect the old in parts, and the second number is how many
        gc.set_threshold(GC_THRESHOLD, *usual[1:])


collector: Final = Collector()
