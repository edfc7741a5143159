"""Splitting a stream of bytes into lines: sans I/O, and bounded."""

from __future__ import annotations


class LineReader:
    """An incremental reader of lines.

    `waiting` is the number of bytes of a line that has not ended yet. Once a line exceeds the limit,
    `is_beyond` is set and nothing more is read, as the boundaries of later lines are unknown.
    """

    def __init__(self, longest: int) -> None:
        self.waiting = 0
        self.is_beyond = False
        self._longest = longest
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Add some bytes, and return the lines that end in them, without line ends."""
        lines = data.split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts, self.waiting = [], 0
        rest = lines.pop()
        self._parts.append(rest)
        self.waiting += len(rest)
        for number, line in enumerate(lines):
            if len(line) > self._longest:
                self._stop()
                return lines[:number]
        if self.waiting > self._longest:
            self._stop()
        return lines

    def _stop(self) -> None:
        self.is_beyond = True
        self._parts, self.waiting = [], 0

    def rest(self) -> bytes:
        """Return the bytes after the last line end: the last line, if it has no end."""
        found, self._parts, self.waiting = b"".join(self._parts), [], 0
        return found
