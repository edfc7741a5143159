"""A store in a Redis server, which any number of nodes on any number of machines share.

Each space is a hash of its values and a sorted set of its keys, as a hash has no order:

| key | type | content |
|---|---|---|
| `{PREFIX}:v:SPACE` | hash | key to value |
| `{PREFIX}:k:SPACE` | sorted set, all scores 0 | the keys, in the order of their bytes |
| `{PREFIX}:writers` | hash | number of a writer to `TOKEN OPENING COMMIT`, the last one of each |
| `{PREFIX}:seen` | sorted set | the writers, by the second in which each was seen last |
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
  An opening has confirmed nothing yet: it notices an emptied server, or another one at the address, by the
  `id` of its URL, as the store that is made there has another.
- **A writer that is open is not forgotten**, as that would look like a loss. It says every few minutes that
  it is there, also while it writes nothing. One that was killed is forgotten after a day, once there are
  very many.
- **Nothing is asked twice**: the client repeats no command of its own accord.
- **A call is cancelled at once, and leaves the client whole.** The client loses a connection, and after a few
  the use of all, when a call of it is cancelled while it connects. So each call is made by a task of its own
  (`_Line`), which goes on without the caller; after a failure of a connection all of them are given up, those
  that hang included, and the next call has new ones.
- **What cannot last is refused when it is opened**: a server that evicts keys, a replica, one that keeps
  nothing over its end unless the URL says that this is meant.

What the server promises depends on its settings. `appendfsync everysec`: a commit survives the end of this
process, and of the server's unless its disk is so slow that it holds back what it writes; a power failure
costs up to two seconds. `appendfsync always`: a power failure, too. Replicas get commits after they are
confirmed; with `replicas=N` a commit is confirmed only when as many have it in memory.
"""

from __future__ import annotations

import copy
import logging
import os
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs
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
from ._redis_scripts import COMMIT, GET, JOIN, JOIN_AGAIN, SCAN, SEEN, Script
from ._store import Delete, DeleteRange, Expected, Put

try:
    import coredis
    from coredis import exceptions as wrong
    from coredis.credentials import AbstractCredentialProvider, UserPass
    from coredis.retry import NoRetryPolicy

    from ._redis_failures import LOOK, NO_REDIS, NOT_OURS, REPLICA, UnknownScript, failure_of
except ImportError:
    raise ConfigError("a store in Redis needs the extra redis: pip install 'lmos-actors[redis]'") from None

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from lmos_actors.security import Reference

    from ._store import Batch, Conflict, Durability, Write

VERSION: Final = 1
"""Version of the layout."""

CONNECT_SECONDS: Final = 5.0
"""Seconds for a connection."""

ANSWER_SECONDS: Final = 20.0
"""Seconds for an answer, that for a connection included; after them what became of a commit is unknown, and
it counts as failed."""

CONFIRM_SECONDS: Final = 10.0
"""Seconds of these for replicas, and for the disk, to confirm a commit."""

CONNECTIONS: Final = 4
"""Limit of connections of one store."""

MAX_WRITERS: Final = 10_000
"""Writers that the server remembers in any case. Beyond them, those that it has not seen for long are
forgotten: they have ended without closing their store."""

SEEN_SECONDS: Final = 600.0
"""Seconds between two times that a writer says that it is there."""

FORGET_SECONDS: Final = 86_400
"""Seconds for which a writer must not have been seen until it may be forgotten."""

FIRST_VALUE: Final = 5
"""Place of the first value among the arguments of the script of a commit."""

KEYS_AT_ONCE: Final = 1_000
"""Keys that are read by one call."""

ANEW: Final = (
    "restore it, or name the server that has it; to begin anew with what is there, leave out id= in the URL, "
    "and with a deployment say `up FILE --new-stores`"
)

NO_POWER: Final = (
    "it cannot keep a commit over a power failure with its present settings",
    "redis-cli config set appendfsync always, or a server from 7.2 on with appendonly yes",
)

logging.getLogger("coredis").addHandler(logging.NullHandler())  # what fails is raised, not printed


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


@attrs.define(eq=False)
class _Line:
    """Connections that are given up together, and the tasks that make calls by them."""

    client: coredis.Redis[bytes]
    scope: trio.CancelScope = attrs.field(factory=partial(trio.CancelScope, shield=True))
    """Shielded: while the block of a store is being cancelled, its end has a call to make."""
    calls: trio.Nursery | None = None
    is_ready: trio.Event = attrs.field(factory=trio.Event)
    is_given_up: bool = False

    def give_up(self) -> None:
        """Have no other call made by it, and end those that are under way."""
        self.is_given_up = True
        self.scope.cancel("its connections are given up")


@attrs.define(eq=False)
class _Call:
    """A call that a task makes, and what came of it once it is done."""

    error: Exception | None
    result: Any = None
    done: trio.Event = attrs.field(factory=trio.Event)


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
        self._lines: trio.Nursery | None = None  # while it is open
        self._line: _Line | None = None
        self._doubting, self._writing = trio.Lock(), trio.Lock()
        self._tls: ssl.SSLContext | None = None
        self._waits_for_disk = False
        self.id = ""
        """The identifier of the store, once it is open: it was drawn when the store was made."""
        self._token = ""
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
        with self._understood():
            for key, value in zip(rows[::2], rows[1::2], strict=True):
                if key is None or value is None:
                    raise StoreDamaged(self.name, f"a record in {space!r} has a key and no value")
                found.append((key.decode(), value))
        return found

    async def _read(self, script: Script, space: str, *arguments: Any) -> list[bytes | None]:
        await self._end_doubt()
        writer = self._writer, self._token, self._commits
        answer = await self._run(script, *writer, space.encode(), *arguments)
        with self._understood():
            is_there, found = answer
            rows = list[bytes | None](found) if is_there else []
            lost = "" if is_there else found.decode()
        if not is_there:
            await self._lose(lost)
        return rows

    # ---- writing

    async def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches; see `AsyncStore`. Raise StoreFailed for "power" if the server cannot keep that."""
        self._check_open()
        values: list[bytes] = []
        packed = msgspec.msgpack.encode([[_packed(write, values) for write in batch] for batch in batches])
        if durability == "power" and not self.keeps_power:
            raise StoreFailed(self.name, *NO_POWER)
        async with self._writing:
            conflicts = await self._write(packed, values, durability)
        outcome: list[Conflict | None] = [None] * len(batches)
        with self._understood():
            number: int
            place: int
            for number, place in conflicts:
                write = batches[number - 1][place - 1]
                outcome[number - 1] = write.space, "" if isinstance(write, DeleteRange) else write.key
        return outcome

    async def _write(self, packed: bytes, values: list[bytes], durability: Durability) -> Any:
        """Run the script of a commit, and return the conflicts that it tells of."""
        await self._end_doubt()
        before, after = self._entry(self._commits), self._entry(self._commits + 1)
        self._is_in_doubt = self._is_committing = True
        try:
            answer = await self._run(
                COMMIT, self._writer, before, after, packed, *values, confirmed=durability
            )
        except StoreFull:  # it is the first write that is refused
            self._is_in_doubt = False
            raise
        finally:
            self._is_committing = False
        with self._understood():
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
        """Take a new opening after a failure, so that no commit of the old is written. Raise StoreLost."""
        async with self._doubting:
            if not self._is_in_doubt or self._is_committing:
                return
            answer = await self._run(JOIN_AGAIN, self._writer, self._token, self._commits)
            with self._understood():
                opening, commits = (each.decode() for each in answer)
                if opening:
                    self._opening, self._commits, self._is_in_doubt = int(opening), int(commits), False
                    return
        await self._lose(commits)

    async def _lose(self, found: str) -> NoReturn:
        """Raise what a server means that has another entry of this writer than is expected."""
        id = await self._answer(lambda client: client.hget(f"{self._prefix}:meta", "id"))
        if not found and self.address.one_writer and _plain(id) == self.id:
            self._lost = StoreFenced(self.name, "another writer has opened it since")
            raise self._lost
        token, _, rest = found.partition(" ")
        if token == self._token:
            with self._understood():
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
        if self._lines is not None:
            raise StoreInUse(self.name, "it is open already")
        self._tls = self.address.tls()
        failure: BaseException | None = None
        async with trio.open_nursery(strict_exception_groups=True) as lines:
            self._lines, self._lost = lines, None
            try:
                await self._check_server()
                await self._join()
                lines.start_soon(self._stay_known)
                yield
            except BaseException as error:  # noqa: ASYNC103 -- raised below, and not in a group of the nursery
                failure = error
            finally:
                try:
                    with trio.move_on_after(1, shield=True), suppress(StoreFailed, UnknownScript):
                        await self._answer(self._leave)
                finally:
                    if self._line is not None:
                        self._line.give_up()
                    self._lines = self._line = None
                    lines.cancel_scope.cancel("the store is closed")
        if failure is not None:
            raise failure

    async def _stay_known(self) -> None:
        while True:
            await trio.sleep(SEEN_SECONDS)
            with suppress(StoreFailed):  # it is time enough the next time
                await self._run(SEEN, self._writer)

    async def _leave(self, client: coredis.Redis[bytes]) -> None:
        await client.hdel(f"{self._prefix}:writers", [str(self._writer)])
        await client.zrem(f"{self._prefix}:seen", [str(self._writer)])

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
            ssl_context=self._tls,
            connect_timeout=CONNECT_SECONDS,
            max_connections=CONNECTIONS,
            retry_policy=NoRetryPolicy(),
            verify_version=False,
        )

    async def _check_server(self) -> None:
        """Raise StoreFailed if the server cannot keep what a store has to."""
        answer = await self._answer(lambda client: client.info())
        with self._understood():
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
        return {str(_plain(each)) for each in found.values()} == {"always"}

    async def _join(self) -> None:
        """Enter this writer, and make the store if it does not exist."""
        self._token, self._is_in_doubt = os.urandom(8).hex(), False
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kind = "one" if self.address.one_writer else "many"
        wanted = self.address.id
        answer = await self._run(JOIN, VERSION, now, self._token, MAX_WRITERS, kind, wanted, FORGET_SECONDS)
        with self._understood():
            found, writer, rest = answer[0].decode(), int(answer[1]), answer[2].decode()
        if not found.isdecimal():
            raise StoreForeign(self.name, *NOT_OURS)
        version = int(found)
        if version != VERSION:
            why = f"its layout is of version {version}, this program knows {VERSION}"
            if version > VERSION:
                raise StoreNewer(self.name, why, "use the version of the program that has written it")
            raise StoreForeign(self.name, why, "use an older version of the program, or another prefix")
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

    async def _run(self, script: Script, *arguments: Any, confirmed: Durability | None = None) -> Any:
        """Return what a script returns; that of a commit is to be confirmed by replicas and the disk."""

        async def ask(client: coredis.Redis[bytes], *, by_name: bool = True) -> Any:
            milliseconds = round(CONFIRM_SECONDS * 1_000)
            with ExitStack() as waits:
                if confirmed and self.address.replicas:
                    waits.enter_context(client.ensure_replication(self.address.replicas, milliseconds))
                if confirmed == "power" and self._waits_for_disk:
                    waits.enter_context(client.ensure_persistence(local=1, timeout_ms=milliseconds))
                if by_name:
                    return await client.evalsha(script.sha, [self._prefix], arguments)
                return await client.eval(script.text, [self._prefix], arguments)

        try:
            return await self._answer(ask)
        except UnknownScript:  # it is new to this server: nothing of it was done
            with suppress(UnknownScript):
                return await self._answer(partial(ask, by_name=False))
            raise StoreFailed(self.name, *NO_REDIS) from None

    async def _answer(self, ask: Callable[[coredis.Redis[bytes]], Awaitable[Any]]) -> Any:
        """Return what a call of the client returns, or raise what it means. A cancel is heeded at once: the
        call goes on, and its result is dropped.
        """
        line = self._present_line()
        call = _Call(StoreFailed(self.name, "its connection has failed", LOOK))
        await line.is_ready.wait()
        if line.calls is not None and not line.is_given_up:
            line.calls.start_soon(self._make, line, ask, call)
            await call.done.wait()
        if call.error is not None:
            raise call.error
        return call.result

    def _present_line(self) -> _Line:
        """Return the line that calls are made by. Raise StoreFailed if the store is closed, or lost."""
        lines = self._check_open()
        if self._line is None or self._line.is_given_up:
            self._line = _Line(self._made_client())
            lines.start_soon(self._keep_line, self._line)
        return self._line

    async def _keep_line(self, line: _Line) -> None:
        try:
            with line.scope:
                async with line.client, trio.open_nursery() as line.calls:
                    line.is_ready.set()
                    try:
                        await trio.sleep_forever()
                    finally:
                        line.is_given_up = True
        except Exception:
            pass
        finally:
            line.is_given_up = True
            line.is_ready.set()

    async def _make(
        self, line: _Line, ask: Callable[[coredis.Redis[bytes]], Awaitable[Any]], call: _Call
    ) -> None:
        error: Exception | None = None
        try:
            with trio.move_on_after(ANSWER_SECONDS) as scope:
                try:
                    call.result = await ask(line.client)
                except Exception as caught:  # the client turns a cancel into one, too
                    error = caught
            if scope.cancel_called and (error or scope.cancelled_caught):
                error = TimeoutError()
            call.error = None if error is None else failure_of(self.name, error, ANSWER_SECONDS)
            if isinstance(error, wrong.ConnectionError) or not isinstance(error, wrong.RedisError | None):
                line.give_up()
        finally:
            call.done.set()

    def _check_open(self) -> trio.Nursery:
        if self._lost is not None:
            raise copy.copy(self._lost)
        if self._lines is None:
            raise StoreFailed(self.name, "it is closed", "open it first")
        return self._lines

    @contextmanager
    def _understood(self) -> Generator[None]:
        """Raise StoreFailed where an answer is not what the scripts return."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StoreFailed(self.name, *NO_REDIS) from None


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
