"""The ordered story of a run, as JSON lines: kept, written, digested, compared."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections import deque
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec
import trio

from lmos_actors._instrument import encode_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmos_actors._instrument import Kind

SCHEMA = "lmos-actors/trace/v1"

_PACKAGES = ("attrs", "cattrs", "lmos-actors", "msgspec", "outcome", "trio", "trio-websocket", "wsproto")
_OWN = frozenset({"n", "t", "kind", "agent"})
_BATCH = 256


class Writer(Protocol):
    """Where a log may be written: a text file opened for writing, or anything like it."""

    def write(self, text: str, /) -> object:
        """Write some whole lines."""
        ...


class TraceLog:
    """An instrument that keeps every record of one run in order, as one line of JSON each.

    The first line tells what a repetition depends on: seed, CPython and C library, package versions. Then
    `{"n": number, "t": seconds, "kind": ..., "agent": ..., ...}`, the record's fields sorted by name.
    Values that JSON cannot say are written as their `repr` without memory addresses. `end` writes a last
    line, `{"end": number of records, "sha256": of all lines before}`: a log without it was cut short.

    `to` receives every line, some time before the run ends; `keep` bounds how many of the last lines are
    held in memory (None: all of them). `run` is what the first line tells of how to repeat the run.
    """

    def __init__(
        self, to: Writer | None = None, *, keep: int | None = None, run: Mapping[str, object] | None = None
    ) -> None:
        self._to = to
        self._run = run
        self._kept: deque[bytes] = deque(maxlen=keep)
        self._waiting: list[bytes] = []
        self._hash = hashlib.sha256()
        self._n = 0
        self._now: Callable[[], float] | None = None

    def begin(self, *, seed: int | None, now: Callable[[], float]) -> None:
        """Write the first line; `now` gives the instant of each record from here on.

        `simulate` does this. Raises RuntimeError if the log has begun: it holds one run.
        """
        if self._now is not None:
            raise RuntimeError("a trace log holds one run only")
        self._now = now
        head: dict[str, object] = {"schema": SCHEMA, "seed": seed, **surroundings()}
        if self._run is not None:
            head["run"] = dict(self._run)
        self._waiting.append(msgspec.json.encode(head, enc_hook=str) + b"\n")

    def record(self, kind: Kind, agent: str, fields: dict[str, object]) -> None:
        """Take one record. A log that has not begun begins, without a seed, in trio's time."""
        if self._now is None:
            self.begin(seed=None, now=trio.current_time)
            assert self._now is not None
        if not _OWN.isdisjoint(fields):
            fields = {f"{name}_" if name in _OWN else name: value for name, value in fields.items()}
        self._n += 1
        name = encode_plain({"agent": agent})
        body = encode_plain(fields)
        self._waiting.append(
            b'{"n":%d,"t":%.6f,"kind":"%b",%b%b%b\n'
            % (self._n, self._now(), kind.encode(), name[1:-1], b"," if fields else b"", body[1:])
        )
        if len(self._waiting) >= _BATCH:
            self.flush()

    def end(self) -> None:
        """Write the last line; a log that has not begun has none. Nothing may be recorded after it."""
        if self._now is not None:
            line = b'{"end":%d,"sha256":"%b"}\n' % (self._n, self.digest().encode())
            self._kept.append(line)
            if self._to is not None:
                self._to.write(line.decode())

    def flush(self) -> None:
        """Pass on what was recorded to `to` and to the digest. Raises what `to.write` raises."""
        lines, self._waiting = self._waiting, []
        text = b"".join(lines)
        self._hash.update(text)
        self._kept.extend(lines)
        if self._to is not None and text:
            self._to.write(text.decode())

    def digest(self) -> str:
        """Give the SHA-256 of all lines so far, as hexadecimal text; of those before the one of `end`."""
        self.flush()
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """Give the lines kept, the oldest first, without line ends."""
        self.flush()
        return [line[:-1].decode() for line in self._kept]

    def __len__(self) -> int:
        """Give the number of records so far, the first line not counted."""
        return self._n


@attrs.frozen
class Difference:
    """The first line in which two logs differ, counted from 1; None stands for a log that has ended."""

    line: int
    first: str | None
    second: str | None

    def __str__(self) -> str:
        end = "(the log has ended)"
        return f"line {self.line}:\n  {self.first or end}\n  {self.second or end}"


def first_difference(a: TraceLog | Iterable[str], b: TraceLog | Iterable[str]) -> Difference | None:
    """Compare two logs, or their lines. None means that they are equal.

    Of logs with `keep` only the lines kept are compared.
    """
    for number, (first, second) in enumerate(zip_longest(_lines(a), _lines(b)), start=1):
        if first != second:
            return Difference(number, first, second)
    return None


def _lines(log: TraceLog | Iterable[str]) -> Iterable[str]:
    return log.lines() if isinstance(log, TraceLog) else (line.rstrip("\n") for line in log)


@cache
def surroundings() -> dict[str, object]:
    """Tell what a repetition depends on beside the seed: Python, C library, packages."""
    python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    packages = {package: _version(package) for package in _PACKAGES}
    return {"python": python, "libc": " ".join(platform.libc_ver()), "packages": packages}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
