"""A store in a Redis server, which any number of nodes on any number of machines share.

Each space is a hash of its values and a sorted set of its keys, because a hash has no order:

| key | type | content |
|---|---|---|
| `{PREFIX}:v:SPACE` | hash | key to value |
| `{PREFIX}:k:SPACE` | sorted set, all scores 0 | the keys, in the order of their bytes |
| `{PREFIX}:writers` | hash | number of a writer to `TOKEN OPENING COMMIT`, the newest of each |
| `{PREFIX}:seen` | sorted set | the writers, by the second in which each was last seen |
| `{PREFIX}:meta` | hash | `version`, `made` (when), `id`, `writers` (one or many), `writer` (last number) |

What this module guarantees:

- **A commit is one script.** The server runs it alone, as a whole or not at all. The script also checks the
  leases, so the server that has the state refuses an older epoch. Redis does not roll back a script that
  fails in the middle. So everything that can fail is checked before the first write, and a full server
  refuses that first write.
- **The server decides which writers may write.** If many may, each durable agent has its own keys, and each
  commit for it checks its lease. With `writers=one` an opening ends the earlier writers, as with a file. Data
  without a lease (sessions of chats, hubs, directories) is in a separate store of this kind, and another
  machine may continue to use it.
- **A late commit is refused.** A call that was cut off or cancelled may still be on its way while the next
  reading begins. Each commit therefore names its writer's opening and the number of the commit before it.
  After every failure the writer takes a new opening, and from then on the server refuses commits of the old
  one.
- **Every call detects a loss.** A server may be restarted without its last commits, or empty, or be replaced
  by a replica that had not received them yet. Such a server shows an older number for the last commit than it
  has confirmed. The call raises `StoreLost`, as does every later call of this object, and everything that
  runs on the lost state has to start again. At an opening nothing has been confirmed yet. The `id` in the URL
  then detects an emptied server, or another server at the address, because a new store has a new identifier.
- **An open writer is not forgotten**, because that would look like a loss. It marks itself as present every
  few minutes, even while it writes nothing. A killed writer is forgotten after a day, once there are very
  many writers.
- **A killed writer is noticed.** If many may write, each subscribes to its own channel, on which nothing is
  ever sent. A writer counts as connected while its channel has a subscriber. Users need rights for
  `{PREFIX}:here:*`; without them a killed writer is noticed only at the end of its lease.
- **No call is repeated, and a call is cancelled at once**: see `_redis_connections.py`.
- **A server that cannot keep a store is refused at the opening**: a server that evicts keys, a replica, or a
  server whose data does not survive its end, unless the URL permits this.

The durability depends on the settings of the server. With `appendfsync everysec` a commit survives the end of
this process. It also survives the end of the server, unless its disk is so slow that it holds back writes. A
power failure costs the last two seconds at most. With `appendfsync always` a commit survives a power failure,
too. Replicas receive commits after they are confirmed; with `replicas=N` a commit is confirmed only when N
replicas have it in memory.
"""

from __future__ import annotations

import copy
import os
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import trio

from lmos_actors.errors import (
    StoreDamaged,
    StoreFailed,
    StoreFenced,
    StoreForeign,
    StoreFull,
    StoreInaccessible,
    StoreLost,
)

from ._redis_address import RedisAddress
from ._redis_connections import RedisConnections, ends_of, plain, values_of
from ._redis_failures import NO_REDIS, REPLICA, UnknownScript
from ._redis_scripts import COMMIT, GET, JOIN, JOIN_AGAIN, SCAN, SEEN, VERSION, Script, check_version
from ._store import Delete, DeleteRange, Expected, Put

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    import coredis

    from ._store import Batch, Conflict, Durability, Write

MAX_WRITERS: Final = 10_000
"""Number of writers that the server always remembers. Beyond it, writers not seen for long are forgotten:
they have ended without closing their store."""

SEEN_SECONDS: Final = 600.0
"""Seconds between two signs of life of a writer."""

FORGET_SECONDS: Final = 86_400
"""Seconds after which a writer that was not seen may be forgotten."""

FIRST_VALUE: Final = 5
"""Index of the first value among the arguments of the commit script."""

ANEW: Final = (
    "restore it, or name the server that has it; to begin anew with what is there, leave out id= in the URL, "
    "and with a deployment say `up FILE --new-stores`"
)

NO_POWER: Final = (
    "it cannot keep a commit over a power failure with its present settings",
    "redis-cli config set appendfsync always, or a server from 7.2 on with appendonly yes",
)

# ---- the store


class RedisStore:
    """Store in a Redis server; see `AsyncStore`."""

    def __init__(self, url: str) -> None:
        """Prepare the store at a URL; see `RedisAddress`. Raise ConfigError."""
        self.address = RedisAddress.parse(url)
        self.name = self.address.name
        self.is_shared = not self.address.one_writer
        self.keeps_power = False
        self._server = RedisConnections(self.address)
        self._doubting, self._writing = trio.Lock(), trio.Lock()
        self._waits_for_disk = False
        self.id = ""
        """The identifier of the store, once it is open; it was drawn when the store was made."""
        self._token = ""
        self._is_attended = False
        self._tell_unattended: Callable[[], object] = lambda: None
        self._presence = trio.CancelScope()  # of the task that is subscribed
        self._writer = 0
        self._opening = 0
        self._commits = 0  # the last confirmed one
        self._is_in_doubt = False  # what became of the last commit is unknown, or it is under way
        self._is_committing = False
        self._lost: StoreLost | StoreFenced | None = None

    # ---- reading

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Store`."""
        self._check_open()
        return await values_of(keys, partial(self._read, GET, space))

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        first, last = ends_of(start, stop)
        rows = await self._read(SCAN, space, first, last, limit)
        found: list[tuple[str, bytes]] = []
        with self._server.understood():
            for key, value in zip(rows[::2], rows[1::2], strict=True):
                if key is None or value is None:
                    raise StoreDamaged(self.name, f"a record in {space!r} has a key and no value")
                found.append((key.decode(), value))
        return found

    async def _read(self, script: Script, space: str, *arguments: Any) -> list[bytes | None]:
        await self._end_doubt()
        writer = self._writer, self._token, self._commits
        answer = await self._run(script, *writer, space.encode(), *arguments)
        with self._server.understood():
            is_there, found = answer
            rows = list[bytes | None](found) if is_there else []
            lost = "" if is_there else found.decode()
        if not is_there:
            await self._lose(lost)
        return rows

    # ---- writing

    async def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches; see `AsyncStore`. Raise StoreFailed if the server cannot guarantee "power"."""
        self._check_open()
        values: list[bytes] = []
        packed = msgspec.msgpack.encode([[_packed(write, values) for write in batch] for batch in batches])
        if durability == "power" and not self.keeps_power:
            raise StoreFailed(self.name, *NO_POWER)
        async with self._writing:
            conflicts = await self._write(packed, values, durability)
        outcome: list[Conflict | None] = [None] * len(batches)
        with self._server.understood():
            number: int
            place: int
            for number, place in conflicts:
                write = batches[number - 1][place - 1]
                outcome[number - 1] = write.space, "" if isinstance(write, DeleteRange) else write.key
        return outcome

    async def _write(self, packed: bytes, values: list[bytes], durability: Durability) -> Any:
        """Run the commit script, and return the conflicts that it reports."""
        await self._end_doubt()
        before, after = self._entry(self._commits), self._entry(self._commits + 1)
        self._is_in_doubt = self._is_committing = True
        try:
            answer = await self._run(
                COMMIT, self._writer, before, after, packed, *values,
                replicas=self.address.replicas, disk=durability == "power" and self._waits_for_disk,
            )  # fmt: skip
        except StoreFull:  # it is the first write that is refused
            self._is_in_doubt = False
            raise
        finally:
            self._is_committing = False
        with self._server.understood():
            found = answer[0].decode()
            conflicts: Any = answer[1] if found == before else ()
        if found != before:
            await self._lose(found)
        self._commits += 1
        self._is_in_doubt = False
        return conflicts

    def _entry(self, commits: int) -> str:
        return f"{self._token} {self._opening} {commits}"

    async def _end_doubt(self) -> None:
        """After a failure, take a new opening, so that the server refuses the old one's commits.

        Raise StoreLost.
        """
        async with self._doubting:
            if not self._is_in_doubt or self._is_committing:
                return
            answer = await self._run(JOIN_AGAIN, self._writer, self._token, self._commits)
            with self._server.understood():
                opening, commits = (each.decode() for each in answer)
                if opening:
                    self._opening, self._commits, self._is_in_doubt = int(opening), int(commits), False
                    return
        await self._lose(commits)

    async def _lose(self, found: str) -> NoReturn:
        """Raise the error for a server whose entry for this writer is not as expected."""
        id = await self._answer(lambda client: client.hget(f"{self._server.prefix}:meta", "id"))
        if not found and self.address.one_writer and plain(id) == self.id:
            self._lost = StoreFenced(self.name, "another writer has opened it since")
            raise self._lost
        token, _, rest = found.partition(" ")
        if token == self._token:
            with self._server.understood():
                number = self._commits - int(rest.split()[1])
            why = (
                f"the last {number} commits of this program"
                if number > 1
                else "the last commit of this program"
            )
        else:
            why = "all commits of this program"
        self._lost = StoreLost(self.name, f"it has lost {why}, which it had confirmed")
        raise self._lost

    # ---- opening

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Keep the store open for a block; see `AsyncStore`. Closing takes a second at most."""
        async with self._server.opened() as nursery:
            self._lost = None
            try:
                await self._check_server()
                await self._join()
                nursery.start_soon(self._stay_known)
                await self._attend(nursery)
                yield
            finally:
                with trio.move_on_after(1, shield=True), suppress(StoreFailed, UnknownScript):
                    await self._answer(self._leave)
                self._presence.cancel("the store is being closed")

    # ---- who is connected; see `AttendedStore`

    @property
    def sign(self) -> str:
        """The name under which others ask whether this writer is connected, "" while it is not subscribed."""
        return self._token if self._is_attended else ""

    def when_unattended(self, tell: Callable[[], object]) -> None:
        """Set the function to call whenever this writer loses its `sign`."""
        self._tell_unattended = tell

    async def is_there(self, sign: str) -> bool:
        """Return whether a writer is connected. Raise StoreFailed."""
        channel = self._channel(sign)
        try:
            found = await self._answer(lambda client: client.pubsub_numsub(channel))
        except StoreInaccessible:  # its user has no right to ask
            return True
        with self._server.understood():
            return any(int(count) for count in dict[Any, Any](found).values())

    async def _attend(self, nursery: trio.Nursery) -> None:
        """Subscribe this writer to its channel, so that it counts as connected; wait for a second at most."""
        if not self.is_shared:
            return
        tried = trio.Event()

        def changed(attended: bool) -> None:
            was, self._is_attended = self._is_attended, attended
            tried.set()
            if was and not attended and not self._presence.cancel_called:
                self._tell_unattended()

        async def attend() -> None:
            with self._presence:
                await self._server.attend(self._channel(self._token), changed)

        # shielded: agents that drain after a cancel of the node still hold their leases
        self._presence = trio.CancelScope(shield=True)
        nursery.start_soon(attend)
        with trio.move_on_after(1):
            await tried.wait()

    def _channel(self, token: str) -> str:
        return f"{self._server.prefix}:here:{token}"

    async def _stay_known(self) -> None:
        while True:
            await trio.sleep(SEEN_SECONDS)
            with suppress(StoreFailed):  # it is time enough the next time
                await self._run(SEEN, self._writer)

    async def _leave(self, client: coredis.Redis[bytes]) -> None:
        await client.hdel(f"{self._server.prefix}:writers", [str(self._writer)])
        await client.zrem(f"{self._server.prefix}:seen", [str(self._writer)])

    async def _check_server(self) -> None:
        """Raise StoreFailed if the server cannot guarantee what a store needs."""
        answer = await self._answer(lambda client: client.info())
        with self._server.understood():
            found = dict[str, Any](answer)
        if "role" not in found:
            raise StoreFailed(self.name, *NO_REDIS)
        if found.get("role") == "slave":
            raise StoreInaccessible(self.name, *REPLICA)
        policy = str(found.get("maxmemory_policy", "noeviction"))
        if policy.startswith("allkeys"):
            raise StoreFailed(
                self.name, f"it drops any key when its memory is full (maxmemory-policy {policy})",
                "redis-cli config set maxmemory-policy noeviction",
            )  # fmt: skip
        has_log = bool(int(found.get("aof_enabled", 0)))
        if not has_log and not self.address.keeps_nothing:
            raise StoreFailed(
                self.name, "it keeps commits in memory only (appendonly no)",
                "redis-cli config set appendonly yes, or ?keeps=nothing in its URL if it may lose them",
            )  # fmt: skip
        self._waits_for_disk = has_log and _version(str(found.get("redis_version", ""))) >= (7, 2)
        self.keeps_power = self._waits_for_disk or (has_log and await self._syncs_always())

    async def _syncs_always(self) -> bool:
        try:
            found = await self._answer(lambda client: client.config_get(["appendfsync"]))
        except StoreFailed:  # a server of others, which does not show its settings
            return False
        return {str(plain(each)) for each in found.values()} == {"always"}

    async def _join(self) -> None:
        """Register this writer, and make the store if it does not exist."""
        self._token, self._is_in_doubt = os.urandom(8).hex(), False
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kind = "one" if self.address.one_writer else "many"
        wanted = self.address.id
        answer = await self._run(JOIN, VERSION, now, self._token, MAX_WRITERS, kind, wanted, FORGET_SECONDS)
        with self._server.understood():
            found, writer, rest = answer[0].decode(), int(answer[1]), answer[2].decode()
        check_version(self.name, found)
        if writer < 0:
            there = f"it is another store, {rest}" if rest else "nothing is there, as on an emptied server"
            raise StoreLost(self.name, f"its content was to be that of the store {wanted}, and {there}", ANEW)
        if not writer:
            fix = "leave out writers=one" if self.address.one_writer else "write &writers=one"
            raise StoreForeign(
                self.name,
                f"it was made for {rest} writer{'s' * self.address.one_writer}",
                f"name another prefix, or {fix}",
            )
        self.id, self._writer, self._opening, self._commits = rest, writer, 1, 0

    # ---- calls

    def _check_open(self) -> None:
        if self._lost is not None:
            raise copy.copy(self._lost)
        self._server.check_open()

    async def _run(self, script: Script, *arguments: Any, replicas: int = 0, disk: bool = False) -> Any:
        self._check_open()
        return await self._server.run(script, *arguments, replicas=replicas, disk=disk)

    async def _answer(self, ask: Callable[[coredis.Redis[bytes]], Awaitable[Any]]) -> Any:
        self._check_open()
        return await self._server.answer(ask)


def _packed(write: Write, values: list[bytes]) -> list[Any]:
    """Return a write in the form that the script expects, and append the bytes it contains to `values`."""
    if isinstance(write, DeleteRange):
        first, last = ends_of(write.start, write.stop)
        return [3, write.space, first.decode(), True, last.decode()]
    expected: bool | int = write.expect is Expected.ANYTHING
    if isinstance(write.expect, bytes):
        expected = _placed(write.expect, values)
    if isinstance(write, Put):
        return [1, write.space, write.key, expected, _placed(write.value, values)]
    return [2 if isinstance(write, Delete) else 4, write.space, write.key, expected]


def _placed(value: bytes, values: list[bytes]) -> int:
    if type(value) is not bytes:
        raise TypeError(f"a value must be bytes, not {type(value).__name__}")
    values.append(value)
    return FIRST_VALUE + len(values) - 1


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
