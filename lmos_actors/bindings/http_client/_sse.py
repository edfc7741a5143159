"""An incremental parser of server-sent events (HTML, 9.2): sans I/O, and bounded."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import Final

import attrs

from ._stream import BadAnswer

LONGEST: Final = 4 << 20
"""Limit on the characters of one event, and of one line."""

LONGEST_ID: Final = 1_000


@attrs.frozen
class SentEvent:
    """One event: its name ("message" by default), and its data."""

    name: str
    data: str


class EventReader:
    """An incremental parser of server-sent events.

    `last_id` is the id of the last event that has one; `retry` the seconds to wait before connecting again,
    None if the server names none; `beats` counts comments, which servers send as heartbeats. An event, or a
    line, has at most `longest` characters.
    """

    def __init__(self, last_id: str = "", longest: int = LONGEST) -> None:
        self._longest = longest
        self.last_id = last_id
        self.retry: float | None = None
        self.beats = 0
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._begun = False
        self._rest: list[str] = []
        self._waiting = 0
        self._ended_in_cr = False
        self._name = ""
        self._data: list[str] = []
        self._size = 0
        self._id = last_id

    def feed(self, data: bytes) -> list[SentEvent]:
        """Return the events that the new bytes complete. Raises BadAnswer if one is too long."""
        text = self._decode(data)
        if not self._begun and text:
            self._begun, text = True, text.removeprefix("\ufeff")
        if self._ended_in_cr and text:
            self._ended_in_cr, text = False, text.removeprefix("\n")
        if not text:
            return []
        self._ended_in_cr = text.endswith("\r")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if len(lines) > 1:
            lines[0] = "".join((*self._rest, lines[0]))
            self._rest, self._waiting = [], 0
        rest = lines.pop()
        self._rest.append(rest)
        self._waiting += len(rest)
        if self._waiting > self._longest:
            raise BadAnswer(f"a line of more than {self._longest} characters")
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: str) -> SentEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not field:
            self.beats += 1
        elif field == "data":
            self._add(value)
        elif field == "event":
            self._name = value[:LONGEST_ID]
        elif field == "id" and (value.isprintable() or not value) and len(value) <= LONGEST_ID:
            self._id = value
        elif field == "retry" and value.isascii() and value.isdigit() and len(value) < 10:
            self.retry = int(value) / 1000
        return None

    def _add(self, value: str) -> None:
        self._size += len(value) + 1
        if self._size > self._longest:
            raise BadAnswer(f"an event of more than {self._longest} characters")
        self._data.append(value)

    def _dispatch(self) -> SentEvent | None:
        self.last_id = self._id
        name, lines = self._name or "message", self._data
        self._name, self._data, self._size = "", [], 0
        return SentEvent(name, "\n".join(lines)) if lines else None
