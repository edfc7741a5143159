"""The positions in the bytes of a WebSocket at which a frame ends, and the recorder may send a Close."""

from __future__ import annotations

from typing import Final

_MORE: Final = {126: 2, 127: 8}
"""Bytes that the length takes behind the first two bytes of a frame, by the value in those."""


class FrameEdges:
    """A tracker of where the frames of one direction end, which it computes from their heads alone."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0
        self.is_closed = False
        """Whether a whole Close has gone by."""

    @property
    def is_between(self) -> bool:
        """Whether every frame that has begun has also ended."""
        return not self._left and not self._head

    def feed(self, data: bytes, *, rest_only: bool = False) -> int:
        """Read bytes and return how many were used.

        By default these are all; with `rest_only` only the rest of a frame that has already begun.
        """
        place, size = 0, len(data)
        while place < size and not self.is_closed and not (rest_only and self.is_between):
            if not self._left:
                wanted = self._missing()
                self._head += data[place : place + wanted]
                place += wanted
                if self._missing():
                    continue
                self._left = self._payload()
            taken = min(self._left, size - place)
            self._left -= taken
            place += taken
            if not self._left:
                self.is_closed = self._head[0] & 0x0F == 8  # a Close
                self._head.clear()
        return place if rest_only else size

    def _missing(self) -> int:
        """Return the number of missing bytes of the head, according to the bytes that are already there."""
        head = self._head
        if len(head) < 2:
            return 2 - len(head)
        mask = 4 if head[1] & 0x80 else 0
        return 2 + _MORE.get(head[1] & 0x7F, 0) + mask - len(head)

    def _payload(self) -> int:
        size = self._head[1] & 0x7F
        return int.from_bytes(self._head[2 : 2 + _MORE[size]], "big") if size in _MORE else size
