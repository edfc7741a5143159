"""Lines in bytes that come in pieces, as JSON-RPC has them over the streams of a process."""

from __future__ import annotations


class LineBuffer:
    """Bytes that have come and are in no complete line yet. Each of them is searched once."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._searched = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def feed(self, piece: bytes | bytearray) -> None:
        """Add a piece."""
        self._bytes += piece

    def next_line(self) -> bytes | None:
        """Take the first line out, and return it without its end; None while there is no complete one."""
        end = self._bytes.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._bytes)
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        self._searched = 0
        return line

    def beginning(self, size: int) -> bytes:
        """Return the first bytes, so many at most."""
        return bytes(self._bytes[:size])

    def drop(self, kept: int = 0) -> int:
        """Drop all but the last bytes, of which there is no end of a line; return their number."""
        dropped = max(0, len(self._bytes) - kept)
        del self._bytes[:dropped]
        self._searched = len(self._bytes)
        return dropped
