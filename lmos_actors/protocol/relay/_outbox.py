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
"""Waiting bytes are accounted for in steps of this size: `wake` is called at each step."""


_Waiting: TypeAlias = "list[bytes | None]"
"""A frame that waits; None once it has been dropped."""


class Outbox:
    """The frames for one agent. `soft` and `hard` limit their bytes; `gap` makes the report of a loss."""

    __slots__ = (
        "_broadcasts", "_frames", "_gap", "_hard", "_lost", "_soft", "_wake", "dropped", "is_too_full",
        "taken", "waiting_bytes",
    )  # fmt: skip

    def __init__(self, soft: int, hard: int, gap: Callable[[int], bytes], wake: Callable[[], object]) -> None:
        self.waiting_bytes = 0
        self.dropped = 0
        """Broadcasts that were dropped."""
        self.taken = 0
        """Frames that were taken."""
        self.is_too_full = False
        """Whether more bytes wait than are allowed, so that the connection must be closed."""
        self._soft, self._hard = soft, hard
        self._gap = gap
        self._wake = wake
        self._lost = 0  # since the last report
        self._frames: deque[_Waiting] = deque()
        self._broadcasts: deque[_Waiting] = deque()

    def put(self, data: bytes, *, is_broadcast: bool = False) -> None:
        """Add a frame; make room by dropping the oldest broadcasts."""
        if self.is_too_full:
            self.dropped += is_broadcast
            return
        is_first, before = not self._frames, self.waiting_bytes
        waiting: _Waiting = [data]
        self._frames.append(waiting)
        self.waiting_bytes += len(data)
        if is_broadcast:
            self._broadcasts.append(waiting)
        while self.waiting_bytes > self._soft and self._broadcasts:
            self._drop(self._broadcasts.popleft())
        self.is_too_full = self.waiting_bytes > self._hard
        if is_first or self.waiting_bytes // STEP != before // STEP:
            self._wake()

    def _drop(self, waiting: _Waiting) -> None:
        data = waiting[0]
        assert data is not None
        self.waiting_bytes -= len(data)
        waiting[0] = None
        self.dropped += 1
        self._lost += 1

    def frames(self, room: int) -> list[bytes]:
        """Remove and return waiting frames, oldest first, until they have `room` bytes or more."""
        taken: list[bytes] = []
        if self._lost:
            taken.append(self._gap(self._lost))
            room -= len(taken[0])
            self._lost = 0
        while self._frames and room > 0:
            waiting = self._frames.popleft()
            if self._broadcasts and self._broadcasts[0] is waiting:
                self._broadcasts.popleft()
            data = waiting[0]
            if data is None:
                continue
            self.waiting_bytes -= len(data)
            room -= len(data)
            taken.append(data)
        self.taken += len(taken)
        return taken
