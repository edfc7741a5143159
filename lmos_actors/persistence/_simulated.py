"""A simulated disk, and a process's store on it: commits take time, and unsynced data may be lost.

The store stands in for `SqliteStore` as the simulated network does for the machine's network. Both stores
behave alike at a crash, at a loss of power and on a full disk, but here the seed decides what happens, in
virtual time. A table of tests (`tests/persistence/test_simulated.py`) checks both for the same outcome.

- A commit is appended to a **log**, as one frame with its length, a checksum and the number of its writer.
  With "power" the log is synced, including all earlier commits. A log of `CHECKPOINT` bytes is synced and
  moved into the records below it, as SQLite does.
- **The process ends** (`SimulatedDisk.crash`): its store is closed from then on. Chance decides whether the
  commit that is under way is in the log.
- **The power fails** ("lost"): at least the last unsynced frame is gone; chance decides how many more are.
  Frames are lost from the end, because the log is read up to the first incomplete frame.
- **A torn write** ("torn"): only a part of the last unsynced frame is there. Opening the store finds that its
  checksum is wrong, and drops it.
- **The disk is full**: commits fail with `StoreFull` and write nothing; reads still work.

A **shared** disk is the disk of a server, which several processes use at once. A process may be cut off from
the disk: its calls fail, and it cannot find out whether the commit under way has been written.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from zlib import crc32

import msgspec
import trio

from lmos_actors.errors import StoreFailed, StoreFenced, StoreFull, StoreInUse

from ._memory import Records
from ._store import Check, Delete, DeleteRange, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors._core import RandomStream

    from ._store import Batch, Conflict, Durability, Write

WritesAtCrash: TypeAlias = Literal["kept", "lost", "torn"]
"""The fate of commits that were not synced: all survive; the last are gone; the last is cut."""

CHECKPOINT: Final = 4 << 20
"""The size in bytes from which on the log is synced and moved into the records."""

HEAD: Final = struct.Struct(">IIQ")
"""The header of a frame: length, checksum, number of its writer."""


class SimulatedDisk:
    """The disk of a simulated machine, with the file of one store. It outlives the processes that open it.

    `seconds` returns how long the next commit takes, in virtual time. With `shared` several processes may
    have the store open at once.
    """

    def __init__(
        self, random: RandomStream, seconds: Callable[[], float] = float, *, shared: bool = False
    ) -> None:
        self.shared = shared
        self.seconds = seconds
        self.factor = 1.0
        """The factor by which commits take longer."""
        self.full = False
        self.records = Records()
        """The records below the log."""
        self.live = Records()
        """The records with all commits applied, while the store is open."""
        self.log = bytearray()
        self.synced = 0
        """Bytes of the log that survive a loss of power."""
        self.writer = 0
        """Number of the newest writer."""
        self.users: list[SimulatedStore] = []
        """The stores that are open, at most one unless the disk is shared."""
        self._random = random

    def crash(self, writes: WritesAtCrash = "kept") -> None:
        """End all processes that have the store open. With "lost" or "torn" the power fails, too."""
        for user in tuple(self.users):
            user.die(lands=writes == "torn" or self.toss())
        unsynced = [end for end in _ends(self.log) if end > self.synced]
        if writes == "kept" or not unsynced:
            return
        starts = [self.synced, *unsynced[:-1]]
        if writes == "lost":
            del self.log[starts[self._random.randrange(len(starts))] :]
        else:
            del self.log[self._random.randrange(starts[-1] + 1, unsynced[-1]) :]
        self.synced = len(self.log)

    def crash_of(self, owners: Callable[[Write], bool], writes: WritesAtCrash = "kept") -> None:
        """Simulate a crash for some owners only, as `crash` does for all; the store stays open for the
        others.

        No write of another owner is affected, as if these owners had a separate disk.
        """
        lands = writes == "torn" or self.toss()
        ended = [user.end_of(owners, lands=lands and writes == "kept") for user in self.users]
        under_way = any(ended)
        if writes == "kept":
            return
        frames = [(end, list(frame)) for end, frame in _frames(self.log)]
        unsynced = [
            place
            for place, (end, frame) in enumerate(frames)
            if end > self.synced and any(map(owners, frame))
        ]
        if under_way and lands:
            unsynced.append(len(frames))  # the last one, of which nothing is in the log
        if not unsynced:
            return
        first = self._random.randrange(len(unsynced)) if writes == "lost" else -1
        synced, self.synced = self.synced, 0
        self.log, self.records = bytearray(), self.records.copy()
        for place, (end, frame) in enumerate(frames):
            if place < unsynced[first] or end <= synced:
                self.records.commit([[write for write in frame if owners(write)]])
            others = [write for write in frame if not owners(write)]
            self.log += _frame(self.writer, others) if others else b""
            if end <= synced:
                self.synced = len(self.log)
        self.live, _ = self.read()

    def toss(self) -> bool:
        """Return at random whether a commit is written."""
        return self._random.random() < 0.5

    def recover(self) -> Records:
        """Return the disk's content, drop everything after the last whole frame, and sync the log."""
        found, whole = self.read()
        del self.log[whole:]
        self.synced = whole
        return found

    def read(self) -> tuple[Records, int]:
        """Return the disk's content, and the position in the log at which the last whole frame ends."""
        found, whole = self.records.copy(), 0
        for end, writes in _frames(self.log):
            found.commit([writes])
            whole = end
        return found, whole

    def checkpoint(self, records: Records) -> None:
        """Sync all commits: store a copy of `records`, which contain them, and empty the log."""
        self.records = records.copy()
        self.log.clear()
        self.synced = 0


class SimulatedStore:
    """The store of one process on a simulated disk; see `Store`."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.name = "simulated:"
        self.is_shared = disk.shared
        self.is_cut_off = False
        """Whether the process is cut off from the disk."""
        self._disk = disk
        self._is_open = False
        self._writer = 0
        self._under_way: tuple[list[Batch], Durability] | None = None

    @property
    def sign(self) -> str:
        """The name under which others can ask whether this writer is connected; see `AttendedStore`."""
        return str(self._writer)

    def when_unattended(self, tell: Callable[[], object]) -> None:
        """Do nothing: this writer never loses its `sign`; see `AttendedStore`."""

    async def is_there(self, sign: str) -> bool:
        """Return whether a process has the store open, even if it is cut off; see `AttendedStore`."""
        await trio.lowlevel.checkpoint()
        return any(user.sign == sign for user in self._disk.users)

    def open(self) -> None:
        """Open the store with the disk's content. Raise StoreInUse if it is already open and not shared."""
        disk = self._disk
        self._check_reached()
        if disk.users and not disk.shared:
            raise StoreInUse(self.name, "it is open already")
        if not disk.users:
            disk.live = disk.recover()
        disk.users.append(self)
        self._is_open = True
        disk.writer += 1
        self._writer = disk.writer

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Store`."""
        return self._opened().get(space, keys)

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        return self._opened().scan(space, start, stop, limit)

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches at once; see `Store`."""
        records, disk = self._opened(), self._disk
        if self._writer != disk.writer and not disk.shared:
            raise StoreFenced(self.name, "another writer has opened it since")
        if disk.full:
            raise StoreFull(self.name, "database or disk is full")
        conflicts = records.commit(batches)
        kept = [batch for batch, conflict in zip(batches, conflicts, strict=True) if conflict is None]
        disk.log += _frame(self._writer, [write for batch in kept for write in batch])
        if durability == "power":
            disk.synced = len(disk.log)
        if len(disk.log) >= CHECKPOINT:
            disk.checkpoint(records)
        return conflicts

    async def commit_in_time(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches after the time that the disk takes for a commit; see `Store`.

        If the process ends or is cut off meanwhile, the batches may or may not be in the log. If the call is
        cancelled, they are not written.
        """
        disk, whole = self._disk, list(batches)
        self._check_reached()
        self._under_way = whole, durability
        try:
            await trio.sleep(disk.factor * disk.seconds())
        finally:
            self._under_way = None
        if self.is_cut_off and self._is_open and not disk.full and disk.toss():
            self.is_cut_off = False
            try:
                self.commit(whole, durability)
            finally:
                self.is_cut_off = True
        return self.commit(whole, durability)

    def die(self, *, lands: bool) -> None:
        """Close the store as its process ends. With `lands`, write the commit under way without a sync."""
        under_way, works = self._under_way, self._is_open and not self.is_cut_off and not self._disk.full
        if under_way is not None and lands and works:
            self.commit(under_way[0], "process")
        self._leave()

    def end_of(self, owners: Callable[[Write], bool], *, lands: bool) -> bool:
        """Return whether the commit under way has batches of some owners; drop them unless `lands` is set."""
        batches = [] if self._under_way is None else self._under_way[0]
        found = [place for place, batch in enumerate(batches) if any(map(owners, batch))]
        if not lands:
            for place in found:
                batches[place] = ()
        return bool(found)

    def close(self) -> None:
        """Close the store, and sync its commits; does nothing if it is closed."""
        if self._is_open:
            self._leave()
            if not self._disk.users:
                self._disk.checkpoint(self._disk.live)

    def _leave(self) -> None:
        self._is_open = False
        if self in self._disk.users:
            self._disk.users.remove(self)

    def _opened(self) -> Records:
        if not self._is_open:
            raise StoreFailed(self.name, "it is closed", "open it first")
        self._check_reached()
        return self._disk.live

    def _check_reached(self) -> None:
        if self.is_cut_off:
            raise StoreFailed(self.name, "it cannot be reached", "look at the network")


# --- the log


def _frame(writer: int, writes: Sequence[Write]) -> bytes:
    """Return the frame of a commit."""
    body = msgspec.msgpack.encode([_plain(write) for write in writes if not isinstance(write, Check)])
    number = writer.to_bytes(8, "big")
    return HEAD.pack(len(body), crc32(body, crc32(number)), writer) + body


def _frames(log: bytes | bytearray) -> Iterator[tuple[int, list[Write]]]:
    """Yield the end and the writes of each frame, up to the first frame that is not whole."""
    start = 0
    for end in _ends(log):
        body = bytes(log[start + HEAD.size : end])
        _, total, writer = HEAD.unpack_from(log, start)
        if end > len(log) or crc32(body, crc32(writer.to_bytes(8, "big"))) != total:
            return
        yield end, [_write(plain) for plain in msgspec.msgpack.decode(body)]
        start = end


def _ends(log: bytes | bytearray) -> Iterator[int]:
    """Yield the position at which each frame ends. A torn frame ends past the end of the log."""
    end = 0
    while end + HEAD.size <= len(log):
        end += HEAD.size + HEAD.unpack_from(log, end)[0]
        yield end


def _plain(write: Put | Delete | DeleteRange) -> tuple[Any, ...]:
    if isinstance(write, Put):
        return "put", write.space, write.key, write.value
    if isinstance(write, Delete):
        return "delete", write.space, write.key
    return "delete range", write.space, write.start, write.stop


def _write(plain: list[Any]) -> Write:
    kinds: dict[str, Callable[..., Write]] = {"put": Put, "delete": Delete, "delete range": DeleteRange}
    kind, *arguments = plain
    return kinds[kind](*arguments)
