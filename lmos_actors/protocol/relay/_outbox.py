"""The outbox of an agent on a relay: bounded, with the least possible loss if the agent does not read.

Direct messages and the relay's answers are kept. The oldest broadcasts are dropped, and a frame in front of
the next ones reports how many. Beyond a second limit the connection must be closed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


STEP: Final = 32 << 10
"""Waiting bytes are accounted for in steps of this size."""


_Waiting: TypeAlias = "list[bytes | None]"
"""A frame that waits; None once it has been dropped."""


class Outbox:
    """The frames for one agent. `soft` and `hard` limit their bytes; `gap` makes the report of a loss.

    `wake` is called when the first frame waits, `charge` with each change of the waiting bytes by steps, and
    `spill` when frames are taken while more bytes wait than are allowed.
    """

    __slots__ = (
        "_broadcasts", "_charge", "_few", "_frames", "_gap", "_hard", "_lost", "_soft",
        "_spill", "_wake", "dropped", "is_too_full", "waiting_bytes",
    )  # fmt: skip

    def __init__(
        self,
        soft: int,
        hard: int,
        gap: Callable[[int], bytes],
        wake: Callable[[], object],
        charge: Callable[[int], object],
        spill: Callable[[], object],
    ) -> None:
        self.waiting_bytes = 0
        self.dropped = 0
        """Broadcasts that were dropped."""
        self.is_too_full = False
        """Whether more bytes wait than are allowed, so that the connection must be closed."""
        self._soft, self._hard = soft, hard
        self._few = min(soft, hard, STEP - 1)  # so many bytes are neither bounded nor charged
        self._gap = gap
        self._wake = wake
        self._charge = charge
        self._spill = spill
        self._lost = 0  # since the last report
        self._frames: deque[_Waiting] = deque()
        self._broadcasts: deque[_Waiting] = deque()

    def put(self, data: bytes, *, is_broadcast: bool = False) -> None:
        """Add a frame; make room by dropping the oldest broadcasts."""
        if self.is_too_full:
            self.dropped += is_broadcast
            return
        frames, before = self._frames, self.waiting_bytes
        waiting: _Waiting = [data]
        frames.append(waiting)
        if is_broadcast:
            self._broadcasts.append(waiting)
        self.waiting_bytes = before + len(data)
        if self.waiting_bytes > self._few:
            self._keep_bounds(before)
        if len(frames) == 1:
            self._wake()

    def _keep_bounds(self, before: int) -> None:
        while self.waiting_bytes > self._soft and self._broadcasts:
            self._drop(self._broadcasts.popleft())
        self.is_too_full = self.waiting_bytes > self._hard
        self._charge_steps(before)

    def _charge_steps(self, before: int) -> None:
        more = self.waiting_bytes // STEP - before // STEP
        if more:
            self._charge(more * STEP)

    def _drop(self, waiting: _Waiting) -> None:
        data = waiting[0]
        assert data is not None
        self.waiting_bytes -= len(data)
        waiting[0] = None
        self.dropped += 1
        self._lost += 1

    def frames(self, room: int) -> list[bytes]:
        """Remove and return waiting frames, oldest first, until they have `room` bytes or more."""
        if self.is_too_full:
            self._spill()
        taken: list[bytes] = []
        if self._lost:
            taken.append(self._gap(self._lost))
            room -= len(taken[0])
            self._lost = 0
        frames, broadcasts = self._frames, self._broadcasts
        before = left = self.waiting_bytes
        while frames and room > 0:
            waiting = frames.popleft()
            if broadcasts and broadcasts[0] is waiting:
                broadcasts.popleft()
            data = waiting[0]
            if data is not None:
                taken.append(data)
                left -= len(data)
                room -= len(data)
        self.waiting_bytes = left
        if before >= STEP:
            self._charge_steps(before)
        return taken
