"""Decoder of the server-sent events of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BOM: Final = b"\xef\xbb\xbf"


class EventDecoder:
    """A decoder of the events in one answer; it keeps only the bytes of the incomplete event.

    It follows the standard of WHATWG: lines end with LF, CR LF or CR, a BOM may come first, comments and
    unknown fields are ignored. Unlike in the standard, the end of the answer ends an event, too. A body that
    is JSON instead of a stream of events counts as one event, at its end.
    """

    __slots__ = ("_data", "_head", "_is_json", "_name", "_rest", "_saw_cr", "name")

    def __init__(self) -> None:
        self.name = b""  # of the last event
        self._name = b""
        self._head: bytes | None = b""  # until it says what the body is
        self._is_json = False
        self._saw_cr = False  # at the end of a piece, where an LF may follow
        self._rest: list[bytes] = []  # of a line that has not ended, or of a body of JSON
        self._data: list[bytes] = []  # of an event that has not ended

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return the data of each event that ends in the given bytes."""
        if self._head is not None:
            piece = self._begun(self._head + piece)
        if self._is_json:
            self._rest.append(piece)
            return
        if self._saw_cr or b"\r" in piece:
            if self._saw_cr and piece.startswith(b"\n"):
                piece = piece[1:]
            self._saw_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
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
            elif not line:
                self.name, self._name = self._name, b""
                if self._data:
                    data, self._data = self._data, []
                    if joined := data[0] if len(data) == 1 else b"\n".join(data):
                        yield joined
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
            elif line.startswith((b"{", b"error: {")):  # of servers that write their failures in this way
                self._data.append(line.removeprefix(b"error: "))

    def end(self) -> Iterator[bytes]:
        """Return the event that ends with the answer, if there is one."""
        if self._is_json:
            yield b"".join(self._rest)
        else:
            yield from self.feed(b"\n\n")

    def _begun(self, head: bytes) -> bytes:
        """Collect the first bytes of the body; return the bytes that can be decoded now."""
        if BOM.startswith(head):  # it may be complete with the next byte
            self._head = head
            return b""
        head = head.removeprefix(BOM)
        first = head.lstrip()
        self._head = None if first else head
        self._is_json = first[:1] in (b"{", b"[")
        return head if first else b""
