"""The end of a serving process: after a signal, or because its launcher has gone for any reason."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors._core import Adopted, adopt, end_below

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lmos_actors.node import Node


@attrs.frozen
class Ending:
    """The way in which a serving process ends: after a signal, and when its launcher has gone.

    `timeout`: the seconds that open requests have to end, or None for no limit; `spread`: the seconds over
    which connections are closed. With `launched`, standard input is a pipe from the launcher.
    """

    timeout: float | None = None
    spread: float = 0.0
    launched: bool = False

    @property
    def limit(self) -> float:
        """The seconds from the loss of the launcher to the forced end of this process."""
        return (self.timeout or 0.0) + self.spread + 5.0  # beyond the time to drain

    async def reap(self) -> None:
        """Reap ended orphans every minute, until cancelled; do nothing in a process without a launcher."""
        adopted = Adopted()
        while self.launched:
            await trio.sleep(60.0)
            adopted.reap()

    async def drained(self, node: Node) -> None:
        """Wait until network requests are answered; after the time limit, stop everything at once."""
        if self.timeout is None:
            return
        with trio.move_on_after(self.timeout + self.spread) as scope:
            await node.drain(spread=self.spread)
        if scope.cancelled_caught:
            node.force_stop()

    async def wait_left_alone(self, asked: Callable[[], None]) -> None:
        """Wait until the launcher has gone, or for ever if there is none.

        When the launcher writes to standard input, `asked` is called. The launcher does so to drain a process
        that no signal can reach.

        A thread waits instead of a task, because an endless turn would block a task. So the time limit starts
        whatever the agents do.
        """
        if not self.launched:
            await trio.sleep_forever()
        gone, token = trio.Event(), trio.lowlevel.current_trio_token()
        args = gone.set, asked, token
        watch = threading.Thread(target=self._watch, args=args, name="launcher", daemon=True)
        watch.start()
        await gone.wait()

    def _watch(
        self, gone: Callable[[], None], asked: Callable[[], None], token: trio.lowlevel.TrioToken
    ) -> None:
        with suppress(OSError, trio.RunFinishedError):
            os.set_blocking(0, True)  # a terminal, where this is tried by hand, may be as another has left it
            while os.read(0, 4096):
                token.run_sync_soon(asked)
        # The pipes to the launcher are broken, and writing would raise: later output is discarded.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nowhere, number)
        os.close(nowhere)
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(gone)
        time.sleep(self.limit + 1.0)  # what ends at the limit has a moment for it
        end_below(os.getpid())
        os._exit(137)  # the exit code of a killed process


@contextmanager
def ending_all() -> Generator[None]:
    """End all processes started in a block when it is left, so that none outlives this process."""
    adopt()
    try:
        yield
    finally:
        end_below(os.getpid())


SIGNALS_ALONE: Final = Ending()
"""The end after a signal, as long as the agents take for it."""
