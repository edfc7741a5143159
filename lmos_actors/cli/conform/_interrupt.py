"""The interrupt of a run of `conform`, after which its card is shown all the same."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


class Interrupt:
    """Ends a run in order at the first Ctrl-C or SIGTERM; the second is Python's own."""

    def __init__(self) -> None:
        self.name = ""
        """The name of the signal, "" if none has come."""

    async def watch(
        self, end: Callable[[], object], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Call `end` at a signal, which only the main thread gets."""
        if threading.current_thread() is not threading.main_thread():
            task_status.started()
            return
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            task_status.started()
            self.name = signal.Signals(await anext(received)).name
        end()
