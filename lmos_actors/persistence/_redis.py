"""A store in a Redis server, which any number of nodes on any number of machines share.

Each space is a hash of its values and a sorted set of its keys, as a hash has no order:

| key | type | content |
|---|---|---|
| `{PREFIX}:v:SPACE` | hash | key to value |
| `{PREFIX}:k:SPACE` | sorted set, all scores 0 | the keys, in the order of their bytes |
| `{PREFIX}:writers` | hash | number of a writer to `TOKEN OPENING COMMIT`, the last one of each |
| `{PREFIX}:meta` | hash | `version`, `made` (when), `id`, `writers` (one or many), `writer` (last number) |

What it keeps true:

- **A commit is one script**, which the server runs alone: whole or not at all, checks of leases included, so
  an older epoch is refused where the state is. Redis takes nothing back when a script fails in the middle; so
  all that can fail is looked at before the first write, and the first write is one that a full server
  refuses.
- **Who may write is decided in the server.** Where many may, durable agents have keys of their own, and a
  commit of each checks its lease. With `writers=one` an opening ends the writers before it, as it does with a
  file: what has no lease (sessions of chats, hubs, directories) is in a store of its own, and another machine
  may go on with it.
- **A late commit is refused.** A call that was cut off or cancelled may still be on its way while the next
  reading begins. Each commit therefore names its writer's opening and the number of the commit before it;
  after every failure the writer takes a new opening, and from then on the server refuses those of the old.
- **A loss is noticed**, by every call: a server that is restarted without its last commits, or empty, or
  replaced by a replica that had not got them yet, has an older number of the last commit than the one that
  it confirmed: `StoreLost`, and this object does not go on. What runs on the lost state has to begin anew.
- **Nothing is asked twice**: the client repeats no command of its own accord.
- **What cannot last is refused when it is opened**: a server that evicts keys, a replica, one that keeps
  nothing over its end unless the URL says that this is meant.

What the server promises depends on its settings. `appendfsync everysec`: a commit survives the end of this
process, and of the server's unless its disk is so slow that it holds back what it writes; a power failure
costs up to two seconds. `appendfsync always`: a power failure, too. Replicas get commits after they are
confirmed; with `replicas=N` a commit is confirmed only when as many have it in memory.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import trio

from lmos_actors.errors import (
    ConfigError,
    StoreDamaged,
    StoreFailed,
    StoreFenced,
    StoreForeign,
    StoreFull,
    StoreInaccessible,
    StoreInUse,
    StoreLost,
    StoreNewer,
)
from lmos_actors.security import SecretSource

from ._redis_address import RedisAddress
from ._store import Delete, DeleteRange, Expected, Put

try:
    import coredis
    from coredis import exceptions as wrong
    from coredis.credentials import AbstractCredentialProvider, UserPass
    from coredis.retry import NoRetryPolicy
except ImportError:
    raise ConfigError("a store in Redis needs the extra redis: pip install 'lmos-actors[redis]'") from None

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence

    from lmos_actors.security import Reference

    from ._store import Batch, Conflict, Durability, Write

VERSION: Final = 1
"""Version of the layout."""

CONNECT_SECONDS: Final = 5.0
"""Seconds for a connection."""

ANSWER_SECONDS: Final = 20.0
"""Seconds for an answer; after them what became of a commit is unknown, and it counts as failed."""

CONNECTIONS: Final = 4
"""Limit of connections of one store."""

MAX_WRITERS: Final = 10_000
"""Writers that the server remembers: those that ended without closing their store are forgotten after as
many later ones."""

FIRST_VALUE: Final = 5
"""Place of the first value among the arguments of the script of a commit."""

KEYS_AT_ONCE: Final = 1_000
"""Keys that are read by one call."""

LOOK: Final = "look at the server, at its log and at the network"

REPLICA: Final = "it is a replica, which takes no writes", "name the server that it follows"

NO_POWER: Final = (
    "it cannot keep a commit over a power failure with its present settings",
    "redis-cli config set appendfsync always, or a server from 7.2 on with appendonly yes",
)

logging.getLogger("coredis").addHandler(logging.NullHandler())  # what fails is raised, not printed

# ---- the scripts

# KEYS[1] is the prefix in all of them; they name the other keys by it.

_JOIN: Final = """
local meta = KEYS[1] .. ':meta'
local version = redis.call('HGET', meta, 'version')
if version and version ~= ARGV[1] then
  return {version, 0, ''}
end
if not version then
  redis.call('HSET', meta, 'version', ARGV[1], 'made', ARGV[2], 'id', ARGV[3], 'writers', ARGV[5])
end
local kind = redis.call('HGET', meta, 'writers')
if kind ~= ARGV[5] then
  return {ARGV[1], 0, kind}
end
local writers = KEYS[1] .. ':writers'
local writer = redis.call('HINCRBY', meta, 'writer', 1)
if kind == 'one' then
  redis.call('DEL', writers)
end
redis.call('HSET', writers, writer, ARGV[3] .. ' 1 0')
redis.call('HDEL', writers, writer - tonumber(ARGV[4]))
return {ARGV[1], writer, redis.call('HGET', meta, 'id')}
"""
"""Enter a writer. ARGV: version, date, its token, limit of writers, "one" or "many". Returns the version
found, its number and the id of the store; number 0 and the kind of the store, where it is not let in.
"""

_JOIN_AGAIN: Final = """
local writers = KEYS[1] .. ':writers'
local found = redis.call('HGET', writers, ARGV[1])
local token, opening, commit = string.match(found or '', '^(%S+) (%d+) (%d+)$')
if token ~= ARGV[2] or tonumber(commit) < tonumber(ARGV[3]) then
  return {'', found or ''}
end
opening = string.format('%.0f', tonumber(opening) + 1)
redis.call('HSET', writers, ARGV[1], token .. ' ' .. opening .. ' ' .. commit)
return {opening, commit}
"""
"""Take a new opening. ARGV: the writer, its token, its last confirmed commit. Returns the opening and the
last commit; the opening is empty where commits are missing."""

_COMMIT: Final = """
local writers = KEYS[1] .. ':writers'
local found = redis.call('HGET', writers, ARGV[1])
if found ~= ARGV[2] then
  return {found or ''}
end
redis.call('HSET', writers, ARGV[1], ARGV[3])
local values, index = KEYS[1] .. ':v:', KEYS[1] .. ':k:'
local conflicts = {}
for number, batch in ipairs(cmsgpack.unpack(ARGV[4])) do
  local conflict = 0
  for place, write in ipairs(batch) do
    local expected = write[4]
    if expected ~= true then
      if redis.call('HGET', values .. write[2], write[3]) ~= (expected and ARGV[expected]) then
        conflict = place
        break
      end
    end
  end
  if conflict > 0 then
    conflicts[#conflicts + 1] = {number, conflict}
  else
    for _, write in ipairs(batch) do
      local kind, space = write[1], write[2]
      if kind == 1 then
        if redis.call('HSET', values .. space, write[3], ARGV[write[5]]) == 1 then
          redis.call('ZADD', index .. space, 0, write[3])
        end
      elseif kind == 2 then
        if redis.call('HDEL', values .. space, write[3]) == 1 then
          redis.call('ZREM', index .. space, write[3])
        end
      elseif kind == 3 then
        local first, last = write[3], write[5]
        while true do
          local keys = redis.call('ZRANGEBYLEX', index .. space, first, last, 'LIMIT', 0, 1000)
          if #keys == 0 then
            break
          end
          redis.call('HDEL', values .. space, unpack(keys))
          redis.call('ZREM', index .. space, unpack(keys))
        end
      end
    end
  end
end
return {found, conflicts}
"""
"""Write batches. ARGV: the writer, what it has entered last, what is entered now, the batches as MessagePack,
and the values, to which the batches refer by their place.

A batch is a list of writes, [kind, space, key, expected, value]: kind 1 a put, 2 a deletion, 3 of a range,
whose `key` and `value` are its ends, 4 a check; `expected` is true for anything, false for nothing. Returns
what was found and the conflicts, as numbers of batches and of writes from 1; what was found alone, where that
is not what the writer has entered: then nothing is written.
"""

_CHECKED: Final = """
local found = redis.call('HGET', KEYS[1] .. ':writers', ARGV[1])
local token, opening, commit = string.match(found or '', '^(%S+) (%d+) (%d+)$')
if token ~= ARGV[2] or tonumber(commit) < tonumber(ARGV[3]) then
  return {0, found or ''}
end
local values = KEYS[1] .. ':v:' .. ARGV[4]
"""
"""How each reading begins. ARGV: the writer, its token, its last confirmed commit, the space. Returns 0 and
what was found where commits are missing, else 1 and what is read."""

_GET: Final = """
return {1, redis.call('HMGET', values, unpack(ARGV, 5))}
"""
"""Read values. ARGV, further: the keys."""

_SCAN: Final = """
local keys = redis.call('ZRANGEBYLEX', KEYS[1] .. ':k:' .. ARGV[4], ARGV[5], ARGV[6], 'LIMIT', 0, ARGV[7])
local found = {}
for first = 1, #keys, 1000 do
  local last = math.min(first + 999, #keys)
  local some = redis.call('HMGET', values, unpack(keys, first, last))
  for place = first, last do
    found[2 * place - 1] = keys[place]
    found[2 * place] = some[place - first + 1]
  end
end
return {1, found}
"""
"""Read a page. ARGV, further: first, last, limit. Returns keys and values by turns."""


class _Script:
    """A script, and the name by which the server knows it once it has run it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


JOIN, JOIN_AGAIN, COMMIT = map(_Script, (_JOIN, _JOIN_AGAIN, _COMMIT))
GET, SCAN = _Script(_CHECKED + _GET), _Script(_CHECKED + _SCAN)


class _Password(AbstractCredentialProvider):
    """User and password, read again for each connection."""

    def __init__(self, user: str, reference: Reference, store: str) -> None:
        self._user, self._store = user, store
        self._source = SecretSource(reference)

    async def get_credentials(self) -> UserPass:
        value = await trio.to_thread.run_sync(self._source.read)
        if value is None:
            raise StoreInaccessible(self._store, f"its password: {self._source.problem}", "put it there")
        return UserPass(self._user, bytes(value).decode(errors="surrogateescape").strip())


# ---- the store


class RedisStore:
    """Store in a Redis server; see `AsyncStore`."""

    def __init__(self, url: str) -> None:
        """Prepare the store at a URL; see `RedisAddress`. Raise ConfigError."""
        self.address = RedisAddress.parse(url)
        self.name = self.address.name
        self.is_shared = not self.address.one_writer
        self.keeps_power = False
        self._prefix = f"{{{self.address.prefix}}}"  # one slot of a cluster
        self._client: coredis.Redis[bytes] | None = None
        self._waits_for_disk = False
        self._id = ""
        self._token = ""
        self._writer = 0
        self._opening = 0
        self._commits = 0  # the last confirmed one
        self._is_in_doubt = False  # what became of the last commit is unknown
        self._lost: StoreLost | StoreFenced | None = None

    # ---- reading

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Store`."""
        self._opened()
        names, found = [key.encode() for key in keys], list[bytes | None]()
        for start in range(0, len(names), KEYS_AT_ONCE):
            found += await self._read(GET, space, *names[start : start + KEYS_AT_ONCE])
        if not keys:
            await trio.lowlevel.checkpoint()
        return found

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        first, last = _range(start, stop)
        rows = await self._read(SCAN, space, first, last, limit)
        found: list[tuple[str, bytes]] = []
        for key, value in zip(rows[::2], rows[1::2], strict=True):
            if key is None or value is None:
                raise StoreDamaged(self.name, f"a record in {space!r} has a key and no value")
            found.append((key.decode(), value))
        return found

    async def _read(self, script: _Script, space: str, *arguments: Any) -> list[bytes | None]:
        writer = self._writer, self._token, self._commits
        found: Any
        is_there, found = await self._run(script, *writer, space.encode(), *arguments)
        if not is_there:
            await self._lose(found.decode())
        return list(found)

    # ---- writing

    async def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches; see `AsyncStore`. Raise StoreFailed for "power" if the server cannot keep that."""
        self._opened()
        values: list[bytes] = []
        packed = msgspec.msgpack.encode([[_packed(write, values) for write in batch] for batch in batches])
        if durability == "power" and not self.keeps_power:
            raise StoreFailed(self.name, *NO_POWER)
        if self._is_in_doubt:
            await self._join_again()
        before, self._is_in_doubt = self._entry(self._commits), True
        found, *conflicts = await self._write(
            durability, self._writer, before, self._entry(self._commits + 1), packed, *values
        )
        if found.decode() != before:
            await self._lose(found.decode())
        self._commits += 1
        self._is_in_doubt = False
        outcome: list[Conflict | None] = [None] * len(batches)
        number: int
        place: int
        for number, place in conflicts[0]:
            write = batches[number - 1][place - 1]
            outcome[number - 1] = write.space, "" if isinstance(write, DeleteRange) else write.key
        return outcome

    async def _write(self, durability: Durability, *arguments: Any) -> Any:
        """Run the script of a commit, and wait for replicas and the disk where that is asked for."""
        client, seconds = self._opened(), round(ANSWER_SECONDS * 1_000)
        if self.address.replicas:
            with client.ensure_replication(self.address.replicas, timeout_ms=seconds):
                return await self._synced(durability, seconds, *arguments)
        return await self._synced(durability, seconds, *arguments)

    async def _synced(self, durability: Durability, seconds: int, *arguments: Any) -> Any:
        client = self._opened()
        if durability == "power" and self._waits_for_disk:
            with client.ensure_persistence(local=1, timeout_ms=seconds):
                return await self._run(COMMIT, *arguments)
        return await self._run(COMMIT, *arguments)

    def _entry(self, commits: int) -> str:
        return f"{self._token} {self._opening} {commits}"

    async def _join_again(self) -> None:
        """Take a new opening, from which on no commit of the old one is written. Raise StoreLost."""
        opening, commits = await self._run(JOIN_AGAIN, self._writer, self._token, self._commits)
        if not opening:
            await self._lose(commits.decode())
        self._opening, self._commits, self._is_in_doubt = int(opening), int(commits), False

    async def _lose(self, found: str) -> NoReturn:
        """Raise what a server means that has another entry of this writer than is expected."""
        id = await self._answer(self._opened().hget(f"{self._prefix}:meta", "id"))
        if not found and self.address.one_writer and _plain(id) == self._id:
            self._lost = StoreFenced(self.name, "another writer has opened it since")
            raise self._lost
        token, _, rest = found.partition(" ")
        if token == self._token:
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
        """Keep the store open for a block; see `AsyncStore`. Its end takes a second at most."""
        if self._client is not None:
            raise StoreInUse(self.name, "it is open already")
        failure: BaseException | None = None
        async with self._made_client() as client:
            self._client = client
            try:
                await self._check_server()
                await self._join()
                yield
            except BaseException as error:  # noqa: ASYNC103 -- raised below, and not in a group of the client
                failure = error
            finally:
                with trio.move_on_after(1, shield=True), suppress(wrong.RedisError, TimeoutError):
                    if self._lost is None:
                        await client.hdel(f"{self._prefix}:writers", [str(self._writer)])
                self._client = None
        if failure is not None:
            raise failure

    def _made_client(self) -> coredis.Redis[bytes]:
        address = self.address
        password = None
        if address.password is not None:
            password = _Password(address.user, address.password, self.name)
        return coredis.Redis(
            address.host,
            address.port,
            address.database,
            credential_provider=password,
            ssl_context=address.tls(),
            connect_timeout=CONNECT_SECONDS,
            stream_timeout=ANSWER_SECONDS,
            max_connections=CONNECTIONS,
            retry_policy=NoRetryPolicy(),
            verify_version=False,
        )

    async def _check_server(self) -> None:
        """Raise StoreFailed if the server cannot keep what a store has to."""
        client = self._opened()
        found = await self._answer(client.info())
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
            found = await self._answer(self._opened().config_get(["appendfsync"]))
        except StoreFailed:  # a server of others, which does not show its settings
            return False
        return {str(_plain(each)) for each in found.values()} == {"always"}

    async def _join(self) -> None:
        """Enter this writer, and make the store if it does not exist."""
        self._token, self._lost, self._is_in_doubt = os.urandom(8).hex(), None, False
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kind = "one" if self.address.one_writer else "many"
        version, writer, rest = await self._run(JOIN, VERSION, now, self._token, MAX_WRITERS, kind)
        if int(version) != VERSION:
            why = f"its layout is of version {int(version)}, this program knows {VERSION}"
            raise StoreNewer(self.name, why)
        if not writer:
            fix = "leave out writers=one" if self.address.one_writer else "write &writers=one"
            raise StoreForeign(
                self.name,
                f"it was made for {rest.decode()} writer{'s' * self.address.one_writer}",
                f"name another prefix, or {fix}",
            )
        self._id, self._writer, self._opening, self._commits = rest.decode(), int(writer), 1, 0

    # ---- calls

    async def _run(self, script: _Script, *arguments: Any) -> Any:
        """Return what a script returns."""
        client = self._opened()
        try:
            return await self._answer(client.evalsha(script.sha, [self._prefix], arguments))
        except _UnknownScript:  # new to this server: nothing of it was done
            return await self._answer(client.eval(script.text, [self._prefix], arguments))

    async def _answer(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except wrong.NoScriptError:
            raise _UnknownScript from None
        except (wrong.RedisError, TimeoutError, OSError) as error:
            raise self._failure(error) from None

    def _opened(self) -> coredis.Redis[bytes]:
        if self._lost is not None:
            raise copy.copy(self._lost)
        if self._client is None:
            raise StoreFailed(self.name, "it is closed", "open it first")
        return self._client

    def _failure(self, error: Exception) -> StoreFailed:
        """Return the failure of a store that an error of the client means."""
        text, name = str(error), self.name
        if isinstance(error, StoreFailed):
            return error
        if isinstance(error, TimeoutError):
            return StoreFailed(name, f"it has not answered for {ANSWER_SECONDS:g} s", LOOK)
        if isinstance(error, wrong.BusyLoadingError):
            return StoreFailed(name, "it is still loading what it keeps", "wait until it has")
        if isinstance(error, wrong.AuthenticationError | wrong.AuthorizationError):
            return StoreInaccessible(name, text, "look at the user and the password of its URL")
        if isinstance(error, wrong.ReadOnlyError):
            return StoreInaccessible(name, *REPLICA)
        if isinstance(error, wrong.WrongTypeError):
            return StoreForeign(name, "another program has keys of that prefix", "name another prefix")
        if text.startswith("OOM "):
            return StoreFull(name, "its memory is full (maxmemory)", "make room, or allow it more")
        if text.startswith("MISCONF "):
            return StoreFull(name, "its disk is full, or fails", "make room on its disk, and look at its log")
        if isinstance(error, wrong.ReplicationError | wrong.PersistenceError):
            return StoreFailed(name, "too few replicas or disks have confirmed a commit in time", LOOK)
        if isinstance(error, wrong.ConnectionError | OSError):
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, OSError | StoreFailed):
                cause = cause.__cause__
            if isinstance(cause, StoreFailed):  # of its password
                return cause
            return StoreFailed(name, f"it cannot be reached{f': {cause}' if cause else ''}", LOOK)
        return StoreFailed(name, text or type(error).__name__, LOOK)


class _UnknownScript(Exception):
    """The server has not run a script yet."""


def _packed(write: Write, values: list[bytes]) -> list[Any]:
    """Return a write as the script takes it, and add its values to those that are sent beside it."""
    if isinstance(write, DeleteRange):
        first, last = _range(write.start, write.stop)
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


def _range(start: str, stop: str | None) -> tuple[bytes, bytes]:
    """Return the ends of a range of keys, as Redis writes them."""
    return b"[" + start.encode() if start else b"-", b"+" if stop is None else b"(" + stop.encode()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
