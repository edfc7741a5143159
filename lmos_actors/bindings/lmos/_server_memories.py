"""Memories of answers, shared by the connections of one peer.

A peer that repeats a request on a new connection, because the old one broke before the answer, must get the
remembered answer instead of a second run. So the memory belongs to the peer, named by the `LMOS-Peer` header
and its principal, and outlives its connections, within bounds on number and size.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from lmos_actors.protocol.lmos import AnswerBound, AnswerMemory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from lmos_actors.protocol.lmos import SessionOptions

PEER_HEADER: Final = b"lmos-peer"
"""The header by which a client marks connections that belong together: an unguessable value."""

_Name: TypeAlias = tuple[str | None, bytes]
_UNGUESSABLE: Final = re.compile(rb"[0-9A-Za-z_-]{32,128}")


@attrs.define
class _Kept:
    memory: AnswerMemory
    connections: int = 0


class AnswerMemories:
    """The memories of a server's peers. A peer without a secret name has one for each connection.

    Among the peers without a connection, the memories of at most `remembered_peers` are kept; the least
    recently used is forgotten first. `remembered_bytes` bounds their memories, and also all memories plus the
    runs that can be queried.
    """

    __slots__ = ("_most", "_most_bytes", "_named", "_seconds", "_unused", "bound")

    def __init__(self, options: SessionOptions) -> None:
        self._most = options.remembered_peers
        self._most_bytes = options.remembered_bytes
        self._seconds = options.repeat_seconds
        self.bound = AnswerBound(self._most_bytes)
        self._named: dict[_Name, _Kept] = {}
        self._unused: OrderedDict[_Name, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._named)

    @contextmanager
    def of(
        self, headers: Iterable[tuple[bytes, bytes]], principal: str | None = None
    ) -> Generator[AnswerMemory]:
        """Yield the memory of a connection with these headers, for as long as the connection lasts.

        Answers to one principal are not shared with another, whatever `LMOS-Peer` a client sends.
        """
        marks = [value for name, value in headers if name.lower() == PEER_HEADER]
        if len(marks) != 1 or not _UNGUESSABLE.fullmatch(marks[0]):  # others could guess it
            memory = self._memory()
            try:
                yield memory
            finally:
                memory.close()
            return
        name = (principal, marks[0])
        kept = self._named.get(name)
        if kept is None:
            kept = self._named[name] = _Kept(self._memory())
        kept.connections += 1
        self._unused.pop(name, None)
        try:
            yield kept.memory
        finally:
            kept.connections -= 1
            if not kept.connections:
                self._unused[name] = None
                self._tidy(trio.current_time())

    def _memory(self) -> AnswerMemory:
        return AnswerMemory(seconds=self._seconds, bound=self.bound)

    def _tidy(self, now: float) -> None:
        """Forget the oldest memories, two at most, if there are too many or they are empty.

        If they hold too many bytes, forget as many as necessary.
        """
        held = sum(self._named[name].memory.bytes for name in self._unused)
        count = 0
        while self._unused and (count < 2 or held > self._most_bytes):
            name = next(iter(self._unused))
            memory = self._named[name].memory
            held -= memory.bytes
            memory.expire(now)
            if self._fits(held + memory.bytes) and (len(memory) or memory.running):
                return
            count += 1
            memory.close()  # sessions that ended refer to it until cycles are collected
            del self._named[name], self._unused[name]

    def _fits(self, held: int) -> bool:
        return len(self._unused) <= self._most and held <= self._most_bytes
