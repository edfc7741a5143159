"""Reading of message logs.

A file holds the runs of one call, one after the other. Each begins with a head and ends with a line that has
the number of records, and the SHA-256 of the head and of the records. Older logs, and logs saved by the page
of a node, have one SHA-256 of all lines instead. If the call ended before all of its runs, the last line of
the file gives the reason and the missing runs. Files are read line by line.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors.files import FileError, Mistake, is_mapping, mapped
from lmos_actors.simulation import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_LINE: Final = 1 << 24
"""Maximum number of bytes in one line."""

_CUT: Final = b'{"cut":'
_DECODER: Final = msgspec.json.Decoder()

CUT_SHORT: Final = "the log was cut short: its last line is missing"
CHANGED: Final = "the log was changed after it was written: its SHA-256 does not fit"


@attrs.frozen
class LogLine:
    """One line of a log file: its number, counted from 1, its text without the line end, and its content."""

    number: int
    text: str
    data: dict[str, Any]

    @property
    def sort(self) -> str:
        """The sort of the line: `head`, `record`, `end` or `cut`; "" for any other line."""
        marks = {"n": "record", "schema": "head", "end": "end", "cut": "cut"}
        return next((sort for mark, sort in marks.items() if mark in self.data), "")


LONGEST: Final = 1e15
"""Longest time in a log, in seconds; an integer may be too large for a float."""


def _is_sound(data: dict[str, Any]) -> bool:
    """Return whether the standard members of a head or a record have the right types."""
    if "n" not in data:
        return type(mapped(data.get("run")).get("seed", 0)) is int
    time = data.get("t", 0)
    timed = type(data["n"]) is int and type(time) in (int, float) and -LONGEST < time < LONGEST
    return timed and type(data.get("kind", "")) is str


class LoggedRun:
    """One run of a log file. Its lines can be read once, before the next run."""

    def __init__(self, file: LogFile, head: LogLine) -> None:
        self._file = file
        self.head = head
        self.records = 0
        """The number of records read so far."""
        self.problem: str | None = None
        """Why the run as a whole is invalid, if it is; known once its lines have been read."""
        self._head, self._records, self._all = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self._over = False
        self._lines = self._read()

    @property
    def run(self) -> dict[str, Any]:
        """The data in the head for repeating the run; empty if the head has none."""
        return mapped(self.head.data.get("run"))

    @property
    def place(self) -> str:
        """The file and line where the run begins: `messages.jsonl:1`."""
        return f"{self._file.name}:{self.head.number}"

    def __iter__(self) -> Iterator[LogLine]:
        """Yield the head, records and end that are still unread. Raises FileError for an invalid line."""
        return self._lines

    def _read(self) -> Iterator[LogLine]:
        line: LogLine | None = self.head
        while line is not None and not self._over:
            if line.sort == "end":
                self._judge(line)
                self._over = True
            else:
                text = line.text.encode("utf-8", "surrogatepass") + b"\n"
                self._all.update(text)
                (self._records if line.sort == "record" else self._head).update(text)
                self.records += line.sort == "record"
            yield line
            line = None if self._over else self._file.next_of_run()
        if not self._over:
            self._over = True
            self.problem = CUT_SHORT

    def _judge(self, end: LogLine) -> None:
        said: dict[str, Any] = {"end": self.records, "sha256": self._all.hexdigest()}
        if "head" in end.data:
            said |= {"head": self._head.hexdigest(), "sha256": self._records.hexdigest()}
        if any(end.data.get(name) != value for name, value in said.items()):
            self.problem = CHANGED

    def skip(self) -> None:
        """Read and discard the remaining lines."""
        for _ in self._lines:
            pass


class LogFile:
    """An open log file: `with LogFile(path) as log`, then `log.runs()`.

    `name` is its name in messages. Raises FileError, with the place, if the file does not exist, cannot be
    read, or is not a message log.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.name = str(path) if name is None else name
        self._number = 0
        self._ahead: LogLine | None = None
        try:
            if not stat.S_ISREG(Path(path).stat().st_mode):
                raise self._wrong("is not a regular file", 0)
            self._stream = Path(path).open("rb")  # noqa: SIM115 - left with the block
        except FileNotFoundError:
            raise self._wrong("no such file", 0) from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise self._wrong(f"cannot be read: {reason or type(error).__name__}", 0) from None

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def cut(self) -> str | None:
        """The reason, in the file's last line, why there are fewer runs than requested.

        It is None if the last line gives no reason. The end of the file is read for this, without affecting
        the position at which runs are read.
        """
        here = self._stream.tell()
        try:
            size = self._stream.seek(0, os.SEEK_END)
            self._stream.seek(max(0, size - LONGEST_LINE))
            last = self._stream.read(LONGEST_LINE).rstrip(b"\n").rpartition(b"\n")[2]
        finally:
            self._stream.seek(here)
        if not last.startswith(_CUT):
            return None
        try:
            said = mapped(mapped(_DECODER.decode(last)).get("cut"))
        except (msgspec.DecodeError, RecursionError):
            return None
        signal = f" by {said['signal']}" if said.get("signal") else ""
        runs = f"{said.get('runs')} of {said.get('of')} runs"
        return f"what wrote it ended early, {said.get('why')}{signal}: {runs}"

    def _wrong(self, message: str, line: int | None = None) -> FileError:
        number = self._number if line is None else line
        return FileError([Mistake(self.name, number, min(number, 1), message, "unreadable")])

    def _no_line(self) -> str:
        return "is not a message log" if self._number == 1 else "is not a line of a message log"

    def runs(self) -> Iterator[LoggedRun]:
        """Yield the runs one after the other; lines of a run that were not read are skipped."""
        while (head := self._next()) is not None:
            if head.sort == "cut":
                continue
            if head.sort != "head":
                raise self._wrong("is not the first line of a run", head.number)
            if head.data["schema"] != SCHEMA:
                raise self._wrong(f"is of the schema {head.data['schema']!r}, expected {SCHEMA!r}")
            run = LoggedRun(self, head)
            yield run
            run.skip()
        if self._number == 0:
            raise self._wrong("is empty", 0)

    def next_of_run(self) -> LogLine | None:
        """Return the next line of the run that is being read; None if the run is over.

        The run is over if another one begins or the file ends.
        """
        line = self._next()
        if line is not None and line.sort in ("head", "cut"):
            self._ahead = line
            return None
        if line is not None and not line.sort:
            raise self._wrong("is not a line of a message log")
        return line

    def _next(self) -> LogLine | None:
        ahead, self._ahead = self._ahead, None
        return self._read() if ahead is None else ahead

    def _read(self) -> LogLine | None:
        try:
            raw = self._stream.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise self._wrong(f"cannot be read: {error.strerror}") from None
        if not raw:
            return None
        self._number += 1
        if len(raw) > LONGEST_LINE:
            raise self._wrong(f"has more than {LONGEST_LINE} bytes")
        whole = raw.endswith(b"\n")
        try:
            data: Any = _DECODER.decode(raw)
            text = raw.decode("utf-8", "surrogatepass").rstrip("\n")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not whole and self._number > 1:  # the writer of the log was stopped in the middle of a line
                return None
            raise self._wrong(self._no_line()) from None
        if not is_mapping(data) or not _is_sound(data):
            raise self._wrong(self._no_line())
        return LogLine(self._number, text, data)
