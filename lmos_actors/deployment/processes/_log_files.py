"""The output of processes, kept in rotated files and passed to followers.

Each process has separate files. The reader of its output waits until a line is written and passed on. So a
flood of lines slows down the process that prints it, but neither the launcher nor the other processes.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import attrs
import trio

from ._recent_lines import RecentLines

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

MOST_LINE: Final = 1 << 14
"""Maximum bytes of a line; the rest of a longer one becomes a line of its own."""

MOST_FILE: Final = 4 << 20
"""Bytes after which a file is rotated."""

KEPT: Final = 3
"""Files kept for one process, including the one that is written to."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

WAITING: Final = 1 << 20
"""Maximum characters of lines that wait for a follower; then lines are left out, and counted."""


@attrs.frozen
class LogLine:
    """One line of a process.

    `left_out` is the number of lines before it that were left out because the follower was too slow.
    """

    process: str
    text: str
    left_out: int = 0
    time: str = ""
    """The instant at which it was read, such as `2030-01-01T00:00:00.000Z`; "" if it is not known."""


class LogFiles:
    """The logs of all processes of a launcher, in one folder.

    Lines that cannot be written are lost and counted; the first time, `warn` is called with the reason. Once
    writing is possible again, the file of a process gets a line with the number of its missing lines.
    """

    def __init__(
        self,
        folder: Path,
        warn: Callable[[str], None] = lambda text: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.folder = folder
        self.lost = 0
        """The number of lines of all processes that could not be written."""
        self.why_lost = ""
        """Why the last lost line could not be written."""
        self.recent = RecentLines()
        self._warn = warn
        self._now = now
        self._lost_of: dict[str, int] = {}  # since it could be written last
        self._sizes: dict[str, int] = {}
        self._followers: dict[Follower, None] = {}
        self._locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)

    def file(self, process: str, age: int = 0) -> Path:
        """Return the path of a process's file; `age` 1 is the rotated file before it."""
        name = process.replace("/", "-")
        return self.folder / (f"{name}.log" if not age else f"{name}.{age}.log")

    async def write(self, process: str, lines: list[str]) -> None:
        """Write lines to the file of a process, and pass them to followers.

        If the disk is full, only these lines are lost.
        """
        self.recent.add(process, lines)
        at = f"{self._now():%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
        data = "".join(f"{at} {line}\n" for line in lines).encode("utf-8", "backslashreplace")
        async with self._locks[process]:  # its standard output and its errors come from two tasks
            before = self._lost_of.get(process, 0)
            gap = f"{at} … {before} lines are missing here: {self.why_lost}\n".encode() if before else b""
            try:
                await trio.to_thread.run_sync(self._append, process, gap + data)
            except OSError as error:
                self._lost_of[process] = before + len(lines)
                self._lose(len(lines), f"{error.filename or self.file(process)}: {error.strerror}")
            else:
                self._lost_of.pop(process, None)
            followers = [each for each in self._followers if process not in each.later]
        for follower in followers:
            await follower.put(process, lines, at)

    def _lose(self, count: int, why: str) -> None:
        is_first = not self.lost
        self.lost += count
        self.why_lost = why
        if is_first:
            self._warn(
                f"{why}: lines of processes are lost until it can be written: make room, or allow writing;"
                " `status` counts them, `logs --follow` has those that come"
            )

    def close(self) -> None:
        """Close the followers; each can still take its waiting lines."""
        for follower in tuple(self._followers):
            follower.close()

    def _append(self, process: str, data: bytes) -> None:
        file = self.file(process)
        size = self._sizes.get(process)
        if size is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            size = file.stat().st_size if file.exists() else 0
        if size + len(data) > MOST_FILE and size:
            for age in range(KEPT - 1, 0, -1):
                with suppress(FileNotFoundError):
                    os.replace(self.file(process, age - 1), self.file(process, age))
            size = 0
        with file.open("ab") as out:
            out.write(data)
        self._sizes[process] = size + len(data)

    @contextmanager
    def follow(self, patience: float = 0.0, later: Iterable[str] = ()) -> Generator[Follower]:
        """Return a context manager for a follower of all lines from now on.

        Processes wait up to `patience` seconds for a follower that is behind; then lines are left out and
        counted. The lines of processes in `later` are passed on once `last_before` has returned the earlier
        lines.
        """
        follower = Follower(patience, later)
        self._followers[follower] = None
        try:
            yield follower
        finally:
            del self._followers[follower]

    async def last_before(self, follower: Follower, process: str, count: int) -> list[LogLine]:
        """Return the last lines of a process, and pass all later lines to the follower, without repeats."""
        async with self._locks[process]:
            found = await trio.to_thread.run_sync(self.last, process, count)
            follower.later.discard(process)
        return found

    def last(self, process: str, count: int) -> list[LogLine]:
        """Return the last lines of a process. Blocks on the disk."""
        found: list[str] = []
        for age in range(KEPT):
            with suppress(OSError):
                text = self.file(process, age).read_bytes().decode("utf-8", "replace")
                found = [*text.removesuffix("\n").split("\n"), *found]
            if len(found) >= count:
                break
        return [_line_of(process, line) for line in found[-count:]] if count > 0 else []


class Follower:
    """A reader of all lines as they arrive; up to `WAITING` characters wait to be taken."""

    def __init__(self, patience: float, later: Iterable[str] = ()) -> None:
        self.patience = patience
        self.later = set(later)
        """The processes whose lines it does not get yet."""
        self._lines: list[LogLine] = []
        self._size = 0
        self._left_out = 0
        self._is_closed = False
        self._there = trio.Event()
        self._room = trio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no more lines fit."""
        return self._size >= WAITING

    async def put(self, process: str, lines: list[str], time: str = "") -> None:
        """Add lines. If the follower is full, wait for up to `patience` seconds, then leave lines out."""
        is_patient = self.patience > 0
        for line in lines:
            if self.is_full and is_patient:
                with trio.move_on_after(self.patience) as scope:
                    await self._room.wait()
                is_patient = not scope.cancelled_caught
            self.take(process, line, time)

    def take(self, process: str, text: str, time: str = "") -> None:
        """Add one line, or leave it out if it does not fit."""
        if self.is_full:
            self._left_out += 1
            return
        self._lines.append(LogLine(process, text, self._left_out, time))
        self._size += len(process) + len(text)
        self._left_out = 0
        self._there.set()

    async def lines(self) -> list[LogLine]:
        """Wait for the first line, and return all waiting lines; return an empty list at the end."""
        await self._there.wait()
        if not self._is_closed:
            self._there = trio.Event()
        found, self._lines, self._size = self._lines, [], 0
        self._room.set()
        self._room = trio.Event()
        return found

    def close(self) -> None:
        """Close the follower: `lines` returns the waiting lines, and then only empty lists."""
        self._is_closed = True
        self._there.set()


def _line_of(process: str, written: str) -> LogLine:
    """Parse a line of a file; lines written by older versions have no time."""
    time, _, text = written.partition(" ")
    return LogLine(process, text, time=time) if _TIME.fullmatch(time) else LogLine(process, written)


class LineSplitter:
    """A splitter of output into lines; an incomplete line is kept, up to the maximum length."""

    def __init__(self) -> None:
        self._rest = b""

    def lines(self, piece: bytes) -> Iterator[str]:
        """Yield the lines that a piece of output completes."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            for start in range(0, max(len(line), 1), MOST_LINE):
                yield _text(line[start : start + MOST_LINE])
        while len(self._rest) > MOST_LINE:
            yield _text(self._rest[:MOST_LINE])
            self._rest = self._rest[MOST_LINE:]

    def rest(self) -> Iterator[str]:
        """Yield the incomplete line at the end."""
        if self._rest:
            yield _text(self._rest)
            self._rest = b""


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace").rstrip("\r")
