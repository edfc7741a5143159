"""Connections to a Redis server, over which a call can be cancelled at once without harm to the client.

If a call is cancelled while the client connects, the client loses a connection. After a few losses it has
none left to use. So a separate task makes each call (`_Line`), and it continues even if the caller is
cancelled. After one connection has failed, all connections are given up, hanging ones included, and the next
call opens new ones. The client never repeats a command by itself.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never

import attrs
import trio

from lmos_actors.errors import ConfigError, StoreFailed, StoreInaccessible, StoreInUse
from lmos_actors.security import SecretSource

try:
    import coredis
    from coredis import exceptions as wrong
    from coredis.credentials import AbstractCredentialProvider, UserPass
    from coredis.retry import NoRetryPolicy

    from ._redis_failures import LOOK, NO_REDIS, UnknownScript, failure_of
except ImportError:
    raise ConfigError("a store in Redis needs the extra redis: pip install 'lmos-actors[redis]'") from None

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from lmos_actors.security import Reference

    from ._redis_address import RedisAddress
    from ._redis_scripts import Script

CONNECT_SECONDS: Final = 5.0
"""Seconds for connecting."""

ANSWER_SECONDS: Final = 20.0
"""Seconds for an answer, including connecting; after that the outcome of a commit is unknown, and it counts
as failed."""

CONFIRM_SECONDS: Final = 10.0
"""Seconds of these in which replicas, and the disk, have to confirm a commit."""

AGAIN: Final = 0.3
"""Seconds until a lost subscription is tried again: sooner than others take its writer for ended."""

MOST_PAUSE: Final = 30.0
"""Seconds until a subscription is tried again that keeps failing: its user may have no right to it."""

CONNECTIONS: Final = 4
"""Maximum number of connections of one store."""

KEYS_AT_ONCE: Final = 1_000
"""Keys that are read by one call."""

logging.getLogger("coredis").addHandler(logging.NullHandler())  # what fails is raised, not printed


class _Password(AbstractCredentialProvider):
    """The user and password, read again for each new connection."""

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
    """A set of connections that is given up as a whole, and the tasks that make calls over them."""

    client: coredis.Redis[bytes]
    scope: trio.CancelScope = attrs.field(factory=partial(trio.CancelScope, shield=True))
    """Shielded: while the block of a store is cancelled, its end still has a call to make."""
    calls: trio.Nursery | None = None
    is_ready: trio.Event = attrs.field(factory=trio.Event)
    is_given_up: bool = False

    def give_up(self) -> None:
        """Allow no further calls over these connections, and end the calls that are under way."""
        self.is_given_up = True
        self.scope.cancel("its connections are given up")


@attrs.define(eq=False)
class _Call:
    """A call that a task makes, with its outcome once it is done."""

    error: Exception | None
    result: Any = None
    done: trio.Event = attrs.field(factory=trio.Event)


# ---- the connections of a store


class RedisConnections:
    """The connections to one store, and the calls made over them."""

    def __init__(self, address: RedisAddress) -> None:
        self.name = address.name
        """The name of the store in errors."""
        self.prefix = f"{{{address.prefix}}}"
        """The prefix of its keys: one slot of a cluster."""
        self._address = address
        self._lines: trio.Nursery | None = None  # while it is open
        self._line: _Line | None = None
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[trio.Nursery]:
        """Allow calls during a block; yield a nursery whose tasks are cancelled at its end.

        Raise StoreInUse, ConfigError. Nothing is connected before the first call.
        """
        if self._lines is not None:
            raise StoreInUse(self.name, "it is open already")
        self._tls = self._address.tls()
        failure: BaseException | None = None
        try:
            async with trio.open_nursery(strict_exception_groups=True) as lines:
                self._lines = lines
                try:
                    yield lines
                except BaseException as error:  # noqa: ASYNC103 -- raised below, and not in a group of the nursery
                    failure = error
                finally:
                    if self._line is not None:
                        self._line.give_up()
                    self._lines = self._line = None
                    lines.cancel_scope.cancel("the store is closed")
        finally:
            if failure is not None:  # also where the block was cancelled, and the nursery says only that
                raise failure

    def _made_client(self) -> coredis.Redis[bytes]:
        address = self._address
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

    async def run(self, script: Script, *arguments: Any, replicas: int = 0, disk: bool = False) -> Any:
        """Run a script; return its result once `replicas` replicas, or the disk, have confirmed its writes.

        Raise StoreFailed.
        """

        async def ask(client: coredis.Redis[bytes], *, by_name: bool = True) -> Any:
            milliseconds = round(CONFIRM_SECONDS * 1_000)
            with ExitStack() as waits:
                if replicas:
                    waits.enter_context(client.ensure_replication(replicas, milliseconds))
                if disk:
                    waits.enter_context(client.ensure_persistence(local=1, timeout_ms=milliseconds))
                if by_name:
                    return await client.evalsha(script.sha, [self.prefix], arguments)
                return await client.eval(script.text, [self.prefix], arguments)

        try:
            return await self.answer(ask)
        except UnknownScript:  # it is new to this server: nothing of it was done
            with suppress(UnknownScript):
                return await self.answer(partial(ask, by_name=False))
            raise StoreFailed(self.name, *NO_REDIS) from None

    async def answer(self, ask: Callable[[coredis.Redis[bytes]], Awaitable[Any]]) -> Any:
        """Return the result of a call of the client, or raise the matching store failure.

        Cancellation takes effect at once: the call continues, and its result is dropped. Raise StoreFailed,
        UnknownScript.
        """
        lines = self.check_open()
        if self._line is None or self._line.is_given_up:
            self._line = _Line(self._made_client())
            lines.start_soon(self._keep_line, self._line)
        line = self._line
        call = _Call(StoreFailed(self.name, "its connection has failed", LOOK))
        await line.is_ready.wait()
        if line.calls is not None and not line.is_given_up:
            line.calls.start_soon(self._make, line, ask, call)
            await call.done.wait()
        if call.error is not None:
            raise call.error
        return call.result

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

    async def attend(self, channel: str, changed: Callable[[bool], object]) -> Never:
        """Keep a channel subscribed until cancelled, and subscribe again after each failure.

        Call `changed` with True after each subscription, and with False after each failure. Nothing is ever
        sent on the channel: others count its subscribers (`PUBSUB NUMSUB`), and a process is no longer
        counted as soon as it ends. The subscription uses a separate connection.
        """
        pause = AGAIN
        while True:
            began = trio.current_time()
            try:
                await self._listen(channel, changed)
            except BaseException as error:  # noqa: ASYNC103 -- the client adds errors of its own to a cancel
                await trio.lowlevel.checkpoint_if_cancelled()
                if not isinstance(error, Exception):
                    raise
            finally:
                changed(False)
            pause = AGAIN if trio.current_time() - began > MOST_PAUSE else min(2 * pause, MOST_PAUSE)
            await trio.sleep(pause)

    async def _listen(self, channel: str, changed: Callable[[bool], object]) -> None:
        """Subscribe to a channel until the connection fails, and then raise the client's error."""
        async with (
            self._made_client() as client,
            client.pubsub(
                channels=[channel], retry_policy=NoRetryPolicy(), subscription_timeout=CONNECT_SECONDS
            ) as listening,
        ):
            changed(True)
            async for _ in listening:
                pass

    def check_open(self) -> trio.Nursery:
        """Return the nursery of the tasks. Raise StoreFailed if the store is closed."""
        if self._lines is None:
            raise StoreFailed(self.name, "it is closed", "open it first")
        return self._lines

    @contextmanager
    def understood(self) -> Generator[None]:
        """Raise StoreFailed if the block finds an answer in a form that the scripts do not return."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StoreFailed(self.name, *NO_REDIS) from None


def plain(value: Any) -> Any:
    """Return bytes decoded as text, and any other value unchanged."""
    return value.decode() if isinstance(value, bytes) else value


def ends_of(start: str, stop: str | None) -> tuple[bytes, bytes]:
    """Return the ends of a range of keys in Redis syntax."""
    return b"[" + start.encode() if start else b"-", b"+" if stop is None else b"(" + stop.encode()


async def values_of(
    keys: Sequence[str], read: Callable[..., Awaitable[list[bytes | None]]]
) -> list[bytes | None]:
    """Return the values of keys; `read` is called with at most a thousand keys and returns their values."""
    found: list[bytes | None] = []
    for start in range(0, len(keys), KEYS_AT_ONCE):
        found += await read(*(key.encode() for key in keys[start : start + KEYS_AT_ONCE]))
    if not keys:
        await trio.lowlevel.checkpoint()
    return found
