"""Server-sent events of an answer: bytes in, events out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class EventDecoder:
    """The events in the bytes of one answer, of which it keeps no more than the one that is incomplete.

    Of an event its name is of no use here, as the data of all formats says what it is.
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended
        self._data: list[bytes] = []  # of an event that has not ended

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take bytes, and return the data of each event that ends in them."""
        lines = piece.split(b"\n")
        if self._rest:
            if len(lines) == 1:
                self._rest.append(piece)
                return
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest.clear()
        if last := lines.pop():
            self._rest.append(last)
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif (not line or line == b"\r") and self._data:
                data, self._data = self._data, []
                yield data[0] if len(data) == 1 else b"\n".join(data)

    def end(self) -> Iterator[bytes]:
        """Return the event that the end of the answer ends."""
        yield from self.feed(b"\n\n")
