"""The log of a run, in order, as JSON lines: how it is stored, written, digested and compared."""

from __future__ import annotations

import hashlib
from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import msgspec
import trio

from lmos_actors._core import PLAIN_JSON, PLAIN_LINES, encode_plain

from ._surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SCHEMA = "lmos-actors/trace/v1"

_OWN = frozenset({"n", "t", "kind", "agent"})
_SIMPLE = frozenset({type(None), bool, int, float, str})
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)


class _Line(msgspec.Struct, gc=False):
    """A line of one of the most frequent kinds. It is encoded later, so its contents must be immutable."""

    n: int
    t: msgspec.Raw
    kind: str
    agent: str


class _Delivered(_Line, gc=False):
    affordance: str
    id: int


class _Answered(_Line, gc=False):
    affordance: str
    id: int
    value: object


class _Sent(_Line, gc=False):
    affordance: str
    from_: str = msgspec.field(name="from")
    id: int
    input: object
    trace: int
    verb: str


class Writer(Protocol):
    """The target of a log: a text file opened for writing, or any object with the same `write`."""

    def write(self, text: str, /) -> object:
        """Write some whole lines."""
        ...


class TraceLog:
    """An instrument that keeps every record of one run in order, as one line of JSON each.

    The first line states what a repetition depends on: seed, CPython and C library, package versions. Then
    `{"n": number, "t": seconds, "kind": ..., "agent": ..., ...}`, the record's fields sorted by name. Values
    that JSON cannot represent are written as their `repr` without memory addresses. `end` writes a last line,
    `{"end": number of records, "head": SHA-256 of the first line, "sha256": of the records}`: a log without
    this line was cut short.

    `to` receives every line, some time before the run ends; `keep` bounds how many of the last lines are held
    in memory (None: all of them). `run` goes into the first line: how to repeat the run.
    """

    def __init__(
        self, to: Writer | None = None, *, keep: int | None = None, run: Mapping[str, object] | None = None
    ) -> None:
        self._to = to
        self._run = run
        self._keep = keep
        self._kept: deque[tuple[bytes, int]] = deque()  # lines in one piece each, and how many
        self._held = 0
        self._waiting: list[_Line | msgspec.Raw] = []
        self._hash = hashlib.sha256()
        self._head_sum = ""
        self._head_size = 0  # bytes of the first line, until it is passed on
        self._n = 0
        self._at = -1.0
        self._t = msgspec.Raw()
        self._now: Callable[[], float] | None = None

    def begin(self, *, seed: int | None, now: Callable[[], float]) -> None:
        """Write the first line; `now` returns the instant of each record from here on.

        `simulate` does this. Raises RuntimeError if the log has begun: it holds one run.
        """
        if self._now is not None:
            raise RuntimeError("a trace log holds one run only")
        self._now = now
        head: dict[str, object] = {"schema": SCHEMA, "seed": seed, **surroundings()}
        if self._run is not None:
            head["run"] = dict(self._run)
        line = msgspec.json.encode(head, enc_hook=str)
        self._head_sum, self._head_size = hashlib.sha256(line + b"\n").hexdigest(), len(line) + 1
        self._waiting.append(msgspec.Raw(line))

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Write one record. If the log has not begun, begin it without a seed, in trio's time."""
        if self._now is None:
            self.begin(seed=None, now=trio.current_time)
            assert self._now is not None
        now = self._now()
        if now != self._at:
            self._at = now
            self._t = msgspec.Raw(b"%.6f" % now)
        self._n = n = self._n + 1
        line: _Line | msgspec.Raw | None = None
        try:  # the three kinds of which there are most are written later, many at a time
            if kind == "delivered":
                if len(fields) == 2:
                    line = _Delivered(n, self._t, kind, agent, fields["affordance"], fields["id"])
            elif kind == "answered":
                if len(fields) == 3:
                    value = fields["value"]
                    if type(value) not in _SIMPLE:  # it can change
                        value = msgspec.Raw(PLAIN_JSON(value))
                    line = _Answered(n, self._t, kind, agent, fields["affordance"], fields["id"], value)
            elif kind == "sent" and len(fields) == 6:
                line = _Sent(
                    n,
                    self._t,
                    kind,
                    agent,
                    fields["affordance"],
                    fields["from"],
                    fields["id"],
                    msgspec.Raw(PLAIN_JSON(fields["input"])),
                    fields["trace"],
                    fields["verb"],
                )
        except (KeyError, *_UNENCODABLE):  # other fields, or one with a value that JSON cannot say
            pass
        waiting = self._waiting
        waiting.append(_written(n, self._t, kind, agent, fields) if line is None else line)
        if len(waiting) >= 256:
            self.flush()

    def end(self) -> None:
        """Write the last line, unless the log has not begun. No record may follow."""
        if self._now is not None:
            said = (self._n, self._head_sum.encode(), self.digest().encode())
            line = b'{"end":%d,"head":"%b","sha256":"%b"}\n' % said
            self._hold(line, 1)
            if self._to is not None:
                self._to.write(line.decode())

    def flush(self) -> None:
        """Pass the recorded lines on to `to` and to the digest. Raises what `to.write` raises."""
        lines, self._waiting = self._waiting, []
        if not lines:
            return
        try:
            text = PLAIN_LINES(lines)
        except _UNENCODABLE:
            text = PLAIN_LINES([_rewritten(line) for line in lines])
        head, self._head_size = self._head_size, 0
        self._hash.update(memoryview(text)[head:])
        self._hold(text, len(lines))
        if self._to is not None:
            self._to.write(text.decode())

    def _hold(self, text: bytes, count: int) -> None:
        kept = self._kept
        kept.append((text, count))
        self._held += count
        while self._keep is not None and kept and self._held - kept[0][1] >= self._keep:
            self._held -= kept.popleft()[1]

    def digest(self) -> str:
        """Return the SHA-256 of all records so far, as hexadecimal text.

        The first and the last line do not count: equal runs have one digest on every Python.
        """
        self.flush()
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """Return the stored lines, the oldest first, without line ends."""
        self.flush()
        lines = [line for text, _ in self._kept for line in text.decode().split("\n")[:-1]]
        return lines if self._keep is None else lines[max(0, len(lines) - self._keep) :]

    def __len__(self) -> int:
        """Return the number of records so far, the first line not counted."""
        return self._n


def _written(n: int, t: msgspec.Raw, kind: str, agent: str, fields: dict[str, Any]) -> msgspec.Raw:
    """Return the encoded line of a record of any kind."""
    if not _OWN.isdisjoint(fields):
        fields = {f"{name}_" if name in _OWN else name: value for name, value in fields.items()}
    name = encode_plain({"agent": agent})[1:-1]
    body = encode_plain(fields)[1:]
    comma = b"," if fields else b""
    return msgspec.Raw(b'{"n":%d,"t":%b,"kind":"%b",%b%b%b' % (n, bytes(t), kind.encode(), name, comma, body))


def _rewritten(line: _Line | msgspec.Raw) -> msgspec.Raw:
    """Encode a line whose first encoding failed, because JSON cannot represent a text or number in it."""
    if isinstance(line, msgspec.Raw):
        return line
    fields = {name.rstrip("_"): getattr(line, name) for name in line.__struct_fields__ if name not in _OWN}
    return _written(line.n, line.t, line.kind, line.agent, fields)


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

    If a log has `keep`, only the lines that it kept are compared.
    """
    for number, (first, second) in enumerate(zip_longest(_lines(a), _lines(b)), start=1):
        if first != second:
            return Difference(number, first, second)
    return None


def _lines(log: TraceLog | Iterable[str]) -> Iterable[str]:
    return log.lines() if isinstance(log, TraceLog) else (line.rstrip("\n") for line in log)
