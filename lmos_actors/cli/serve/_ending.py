"""The end of a process that serves: by a signal, or because its launcher has gone, however that came."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import attrs
import trio

if TYPE_CHECKING:
    from lmos_actors.node import Node

HARD_END: Final = 5.0
"""Seconds that a process without a launcher has beyond its time to drain."""


@attrs.frozen
class Ending:
    """How a process that serves ends: with time for what runs, and when its launcher has gone.

    `timeout` are the seconds in which open requests may end, None for as long as they take, `spread` those
    over which connections are closed. With `launched` standard input is a pipe whose other end the launcher
    has.
    """

    timeout: float | None = None
    spread: float = 0.0
    launched: bool = False

    @property
    def limit(self) -> float:
        """Seconds from the begin of the end to the hard end, once the launcher has gone."""
        return (self.timeout or 0.0) + self.spread + HARD_END

    async def drained(self, node: Node) -> None:
        """Wait until requests over the network are answered; past the limit stop everything at once."""
        if self.timeout is None:
            return
        with trio.move_on_after(self.timeout + self.spread) as scope:
            await node.drain(spread=self.spread)
        if scope.cancelled_caught:
            node.force_stop()

    async def wait_left_alone(self) -> None:
        """Wait until the launcher has gone; for ever, where there is none."""
        if not self.launched:
            await trio.sleep_forever()
        stdin = sys.stdin.fileno()
        os.set_blocking(stdin, False)
        while True:
            await trio.lowlevel.wait_readable(stdin)
            try:
                if not os.read(stdin, 4096):
                    return
            except BlockingIOError:
                continue
            except OSError:
                return


SIGNALS_ALONE: Final = Ending()
"""The end by a signal, as long as the agents take for it."""
