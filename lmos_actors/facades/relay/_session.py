"""An agent on a relay, ours or anybody's: one identity over all its connections.

**A question and its answer.** A relay does not tell a sender the id of its message, so the `ref` of an answer
says nothing to the one who has asked. There are three ways to learn it, and `Relay.way` is the one in use:

- `receipts`: the relay has that extension, and says it before any answer can come.
- `echo`: the sender is among its own targets, and follows itself for broadcasts: the message comes back with
  its id. Echoes come in the order of the messages, as those of one sender do on every relay that is known.
- `ref`: the question has a word of its own as `ref`, which the answer repeats. For relays without direct
  messages; the answerer has to do its part.

**Connections break.** They are made again, with jitter; who was followed is followed again, and a message
that comes again, by its id, is heard once. What had not been sent goes out over the next connection. What
had been sent and is not acknowledged is `OutcomeUnknown`: nobody can know. A relay that takes the agent no
more (401, 4001, 4009 and the like) ends it: every verb raises ConnectFailed with the reason.

**Nobody has to listen.** Events wait for a reader within bounds; beyond them the oldest broadcasts are
dropped, and a `gap` in front of the next event counts them: so an agent that only asks is never stuck.
"""

from __future__ import annotations

import random
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from uuid import uuid4

import msgspec
import trio

from lmos_actors.actors import RUNTIME, outgoing_trace
from lmos_actors.errors import ActionFailed, ConnectFailed, OutcomeUnknown
from lmos_actors.protocol.relay import (
    EVERYBODY,
    RelayAnswer,
    RelayClient,
    RelayFault,
    RelayMessage,
    Welcomed,
)
from lmos_actors.supervision import Backoff
from lmos_actors.transport import ConnectionOptions, connect, default_network

from ._sent import Receipt, Sent, Wait
from ._urls import relay_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from lmos_actors._core import Headers
    from lmos_actors.protocol.relay import RelayEvent
    from lmos_actors.security import Credentials
    from lmos_actors.transport import Connection, Ended, Network

Way: TypeAlias = Literal["receipts", "echo", "ref"]

PAUSES: Final = Backoff(initial=0.2)
"""Between attempts to connect again."""

LASTING: Final = 30.0
"""Seconds after which a connection counts as good: the next pause begins anew."""

OVER_RATE_SECONDS: Final = 60.0
"""Seconds before the next attempt after a close with 4029."""

WELCOME_SECONDS: Final = 5.0
"""Seconds that a welcome is waited for: a relay may have none."""

EVENTS: Final = 1_024
EVENT_BYTES: Final = 4 << 20
"""What waits for a reader."""

MAX_MESSAGE: Final = 4 << 20

NOBODY: Final = "nobody"
"""The code of the failure of a question that nobody got."""

FINAL_STATUS: Final = (400, 401, 403, 404)
FINAL_CODES: Final = (1008, 4001, 4009)
OVER_RATE: Final = 4029

ACKNOWLEDGEMENTS: Final = {
    "ping": "pong",
    "subscribe": "subscribed",
    "unsubscribe": "unsubscribed",
    "list_subscriptions": "subscriptions",
    "command": "command_result",
    "query": "query_result",
}
"""The types of answers to commands."""


class _Line:
    """One connection, as the handler of the transport."""

    def __init__(self, relay: Relay, connection: Connection) -> None:
        self._relay = relay
        self.connection = connection

    def text(self, text: str) -> None:
        self._relay.take(text.encode())

    def binary(self, data: bytes) -> None:
        self._relay.take(data)

    def frames(self, room: int) -> list[bytes]:
        return self._relay.frames(room)

    def is_behind(self) -> bool:
        return False


class Relay:
    """An agent on a relay; made by `open_relay`. Iterating yields what it hears."""

    def __init__(
        self,
        url: str,
        *,
        id: str | None,
        names_itself: bool,
        network: Network,
        tls: ssl.SSLContext | None,
        credentials: Credentials | None,
        new_id: Callable[[], str],
        draw: Callable[[], float],
    ) -> None:
        self.url = url
        self._client = RelayClient(id, names_itself=names_itself)
        self._network = network
        self._tls = tls
        self._credentials = credentials
        self._new_id = new_id
        self._draw = draw
        self._line: _Line | None = None
        self._failure: ConnectFailed | None = None  # why it is over
        self._welcome: Welcomed | None = None
        self._is_ready = False
        self._readiness = trio.lowlevel.ParkingLot()
        self._follows: dict[str, None] = {}
        self._hears_itself = False
        # what is to be sent, and what is waited for; each in the order of the frames
        self._queue: deque[Sent] = deque()
        self._commands: deque[Sent] = deque()
        self._echoes: deque[Sent] = deque()
        self._receipts: dict[str, Sent] = {}
        self._asked: dict[str, Wait] = {}  # by the id of the question, or the word that stands for it
        # what has come
        self._events: deque[tuple[RelayEvent, int]] = deque()
        self._event_bytes = 0
        self._lost = 0
        self._came = trio.Event()
        self.connections = 0
        """The connections that there were."""

    # ---- what is known

    @property
    def id(self) -> str:
        """The id of the agent, "" while it is not known."""
        return self._client.id or ""

    @property
    def welcome(self) -> Welcomed | None:
        """The last welcome of the relay, None where there was none."""
        return self._welcome

    @property
    def way(self) -> Way:
        """The way in which an answer is found; see the module docstring."""
        welcome = self._welcome
        if welcome is not None and "receipts" in welcome.extensions:
            return "receipts"
        return "echo" if welcome is not None and "direct" in welcome.capabilities and self.id else "ref"

    @property
    def follows(self) -> tuple[str, ...]:
        """The agents that are followed."""
        return tuple(self._follows)

    def prepare(self, follow: Iterable[str]) -> None:
        """Follow agents as soon as there is a connection; for `open_relay`."""
        self._follows.update(dict.fromkeys(follow))

    async def wait_ready(self) -> None:
        """Wait until the relay has welcomed the agent, for `WELCOME_SECONDS` at most."""
        await trio.lowlevel.checkpoint()
        while not self._is_ready:
            await self._readiness.park()
        if self._failure is not None:
            raise self._failure

    def _set_ready(self) -> None:
        self._is_ready = True
        self._readiness.unpark_all()

    # ---- saying and asking

    async def say(
        self,
        payload: Any,
        to: str | Sequence[str] = EVERYBODY,
        *,
        type: str | None = None,
        ref: str | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> Receipt | None:
        """Send a message to everybody, or to some, by their ids.

        Return a receipt where the relay gives some, once it has come; else None once it is sent. `members`
        are passed on beside the payload. Raise ActionFailed with the `code` of a refusal, where the relay
        has receipts; OutcomeUnknown where the connection ended before the receipt; ConnectFailed when the
        relay takes the agent no more; ValueError and TypeError for what cannot be sent.
        """
        await self.wait_ready()
        more = {**(members or {}), **_trace()}
        sent = self._message(_ids(to), payload, type, ref, more)
        try:
            await self._send(sent)
            if not sent.receipt:
                return None
            found: Receipt = await sent.outcome.wait()
            return found
        finally:
            self._receipts.pop(sent.receipt, None)

    def _message(
        self, to: list[str], payload: Any, type: str | None, ref: str | None, members: dict[str, Any]
    ) -> Sent:
        word = self._new_id() if self.way == "receipts" else ""
        if word:
            members = {**members, "receipt": word}
        sent = Sent(self._client.message(to, payload, type=type, ref=ref, members=members), receipt=word)
        if word:
            self._receipts[word] = sent
        return sent

    async def ask(
        self,
        payload: Any,
        to: str | Sequence[str] = EVERYBODY,
        *,
        type: str = "question",
        members: Mapping[str, Any] | None = None,
    ) -> RelayMessage:
        """Ask something, and return the first answer: a message whose `ref` is the question's.

        Waits as long as it takes: give it a deadline. Raise what `say` does, OutcomeUnknown where the
        connection ended before the answer, and ActionFailed with the code `nobody` where the relay says that
        nobody got the question.
        """
        await self.wait_ready()
        more, targets, word = {**(members or {}), **_trace()}, _ids(to), ""
        if self.way == "receipts":
            sent = self._message(targets, payload, type, None, more)
        elif self.way == "echo":
            self._hear_itself(targets)
            data = self._client.message([*targets, self.id], payload, type=type, members=more)
            sent = Sent(data, echo=(type, msgspec.json.decode(msgspec.json.encode(payload))))
        else:
            word = self._new_id()
            sent = Sent(self._client.message(targets, payload, type=type, ref=word, members=more))
            sent.outcome.settle(Receipt(word, 1))
        answer = sent.answer = Wait()
        if word:
            self._asked[word] = answer
        receipt: Receipt | None = None
        try:
            await self._send(sent)
            receipt = await sent.outcome.wait()
            assert receipt is not None
            if self.way == "receipts" and not receipt.delivered:
                raise ActionFailed({"code": NOBODY, "message": "nobody got the question"})
            found: RelayMessage = await answer.wait()
            return found
        finally:
            self._receipts.pop(sent.receipt, None)
            for key, wait in tuple(self._asked.items()):
                if wait is answer:
                    del self._asked[key]

    def _hear_itself(self, targets: list[str]) -> None:
        """Follow itself, so that broadcasts come back; some relays send them to those that follow alone."""
        if EVERYBODY in targets and not self._hears_itself:
            self._hears_itself = True
            self._queue.append(self._command("subscribe", {"agents": [self.id]}))

    async def answer(
        self,
        message: RelayMessage,
        payload: Any,
        *,
        type: str = "answer",
        members: Mapping[str, Any] | None = None,
    ) -> Receipt | None:
        """Answer a message to its sender, by `ref`. Raise what `say` does."""
        return await self.say(payload, message.sender, type=type, ref=message.id, members=members)

    # ---- commands

    async def follow(self, *agents: str) -> None:
        """Follow agents, now and over each later connection. Raise what `command` does."""
        self._follows.update(dict.fromkeys(agents))
        await self.command("subscribe", {"agents": list(agents)})

    async def unfollow(self, *agents: str) -> None:
        """Follow agents no more. Raise what `command` does."""
        for each in agents:
            self._follows.pop(each, None)
        await self.command("unsubscribe", {"agents": list(agents)})

    async def command(self, type: str, payload: Any = None, *, answer: str | None = None) -> RelayAnswer:
        """Send a command to the relay, and return its answer.

        `answer` is its type, if it is none of the protocol's. Waits as long as it takes. Raise ActionFailed
        with the `code` of a refusal; else what `say` does.
        """
        await self.wait_ready()
        sent = self._command(type, payload, answer or ACKNOWLEDGEMENTS.get(type, type))
        await self._send(sent)
        found: RelayAnswer = await sent.outcome.wait()
        return found

    def _command(self, type: str, payload: Any, answer: str | None = None) -> Sent:
        data = self._client.command(type, payload)
        return Sent(data, acknowledgement=answer or ACKNOWLEDGEMENTS[type])

    async def _send(self, sent: Sent) -> None:
        """Have a frame taken by the connection, the next one if there is none. Raise ConnectFailed."""
        if self._failure is not None:
            raise self._failure
        self._queue.append(sent)
        self._wake()
        try:
            await sent.taken.wait()
        except trio.Cancelled:
            if sent in self._queue:
                self._queue.remove(sent)
            raise

    # ---- hearing

    def __aiter__(self) -> Relay:
        return self

    async def __anext__(self) -> RelayEvent:
        """Wait for the next message, or a word of the relay's. Raise ConnectFailed when it is over."""
        while True:
            if self._lost:
                lost, self._lost = self._lost, 0
                return RelayAnswer("gap", {"lost": lost})
            if self._events:
                event, size = self._events.popleft()
                self._event_bytes -= size
                await trio.lowlevel.checkpoint_if_cancelled()
                return event
            if self._failure is not None:
                raise self._failure
            self._came = trio.Event()
            await self._came.wait()

    def _hear(self, event: RelayEvent, size: int) -> None:
        self._events.append((event, size))
        self._event_bytes += size
        while len(self._events) > EVENTS or self._event_bytes > EVENT_BYTES:
            oldest = next((each for each in self._events if _is_broadcast(each[0])), self._events[0])
            self._events.remove(oldest)
            self._event_bytes -= oldest[1]
            self._lost += 1
        self._came.set()

    # ---- for the connection

    def frames(self, room: int) -> list[bytes]:
        """Return the frames that are to be sent; for the connection."""
        found: list[bytes] = []
        while self._queue and room > 0:
            sent = self._queue.popleft()
            found.append(sent.data)
            room -= len(sent.data)
            if sent.acknowledgement:
                self._commands.append(sent)
            if sent.echo is not None:
                self._echoes.append(sent)
            sent.taken.settle()
        return found

    def take(self, data: bytes) -> None:
        """Take a frame; for the connection."""
        event = self._client.receive(data)
        if isinstance(event, Welcomed):
            self._welcome = event
            self._set_ready()
            self._wake()
        if event is not None and not self._is_awaited(event):
            self._hear(event, len(data))

    def _is_awaited(self, event: RelayEvent) -> bool:
        """Hand an event to the one that waits for it; return False if nobody does."""
        if isinstance(event, RelayMessage):
            if event.sender == self.id and self._came_back(event):
                return True
            wait = self._asked.get(event.ref) if event.ref else None
            if wait is None or event.sender == self.id:
                return False
            wait.settle(event)
            return True
        if isinstance(event, RelayFault):
            return self._is_refused(event)
        if isinstance(event, RelayAnswer):
            if event.type == "receipt":
                return self._has_receipt(event)
            if self._commands and self._commands[0].acknowledgement == event.type:
                self._commands.popleft().outcome.settle(event)
                return True
        return False

    def _came_back(self, message: RelayMessage) -> bool:
        if not self._echoes or self._echoes[0].echo != (message.type, message.payload):
            return self._hears_itself and self.id not in message.to
        sent = self._echoes.popleft()
        sent.outcome.settle(Receipt(message.id))
        if sent.answer is not None:
            self._asked[message.id] = sent.answer
        return True

    def _has_receipt(self, event: RelayAnswer) -> bool:
        is_object = isinstance(event.payload, dict)
        payload = cast("dict[str, Any]", event.payload) if is_object else {}
        sent = self._receipts.get(str(payload.get("receipt")))
        if sent is None:
            return False
        delivered, unknown = payload.get("delivered"), payload.get("unknown")
        missing: list[Any] = unknown if isinstance(unknown, list) else []  # pyright: ignore[reportUnknownVariableType]
        count = delivered if isinstance(delivered, int) else 0
        sent.outcome.settle(Receipt(event.ref, count, tuple(map(str, missing))))
        if sent.answer is not None:
            self._asked[event.ref] = sent.answer
        return True

    def _is_refused(self, fault: RelayFault) -> bool:
        sent = self._receipts.get(fault.receipt) if fault.receipt else None
        if sent is None and self._commands:
            sent = self._commands.popleft()  # a relay answers in order
        if sent is None:
            return False
        sent.outcome.settle(error=ActionFailed({"code": fault.code, "message": fault.message}))
        return True

    def _wake(self) -> None:
        if self._line is not None:
            self._line.connection.wake()

    # ---- connecting

    async def connect(self) -> None:
        """Connect for the first time. Raise ConnectFailed."""
        self._line = _Line(self, await self._connected())

    async def run(self) -> None:
        """Carry frames, and connect again, until the relay takes the agent no more."""
        attempt = 0
        while True:
            line, began = self._line, trio.current_time()
            if line is not None:
                async with trio.open_nursery(strict_exception_groups=True) as nursery:
                    nursery.start_soon(self._welcomed)
                    ended = await line.connection.run(line)
                    nursery.cancel_scope.cancel("the connection has ended")
                self._line, self._is_ready = None, False
                self._cut(ended)
                if ended.code in FINAL_CODES:
                    self._end(ConnectFailed(self.url, f"closed with {ended.code}: {ended.reason}"))
                    return
                attempt = 0 if trio.current_time() - began >= LASTING else attempt
                if ended.code == OVER_RATE:
                    await trio.sleep(OVER_RATE_SECONDS)
            attempt += 1
            await trio.sleep(PAUSES.delay(attempt, self._draw()))
            try:
                self._line = _Line(self, await self._connected())
            except ConnectFailed as failure:
                if failure.status in FINAL_STATUS:
                    self._end(failure)
                    return
                await trio.sleep(failure.retry_in or 0.0)

    async def _connected(self) -> Connection:
        headers: Headers = ()
        if self._credentials is not None:
            headers = self._credentials.headers_for(self.url, trio.current_time())
        connection = await connect(
            self._network,
            self.url,
            subprotocols=(),
            headers=headers,
            tls=self._tls,
            options=ConnectionOptions(max_message_bytes=MAX_MESSAGE),
        )
        self.connections += 1
        self._is_ready = False
        followed = [*self._follows, *([self.id] if self._hears_itself else [])]
        if followed:
            self._queue.appendleft(self._command("subscribe", {"agents": followed}))
        return connection

    async def _welcomed(self) -> None:
        """Go on without a welcome where there is none."""
        await trio.sleep(WELCOME_SECONDS)
        self._set_ready()

    def _cut(self, ended: Ended) -> None:
        """Settle what was sent and has not been acknowledged: nobody knows what became of it."""
        code = f" with {ended.code}" if ended.code is not None else ""
        unknown = OutcomeUnknown(self.url, f"the connection ended{code}: {ended.reason}".rstrip(": "))
        waiting = set(map(id, self._queue))
        for sent in (*self._commands, *self._echoes, *self._receipts.values()):
            if id(sent) not in waiting:
                sent.fail(unknown)
        queued = {id(each.answer) for each in self._queue}
        for wait in tuple(self._asked.values()):
            if id(wait) not in queued:
                wait.settle(error=unknown)
        self._commands.clear()
        self._echoes.clear()

    def _end(self, failure: ConnectFailed) -> None:
        """Have every verb raise from now on."""
        self._failure = failure
        for sent in self._queue:
            sent.fail(failure)
        self._queue.clear()
        self._set_ready()
        self._came.set()


def _is_broadcast(event: RelayEvent) -> bool:
    return isinstance(event, RelayMessage) and event.is_broadcast


def _ids(to: str | Sequence[str]) -> list[str]:
    return [to] if isinstance(to, str) else list(to)


def _trace() -> Mapping[str, Any]:
    """Return the trace of what runs now, as private members; empty outside a node."""
    rt = RUNTIME.get()
    return {} if rt is None else outgoing_trace(rt)


@asynccontextmanager
async def open_relay(
    url: str,
    *,
    id: str | None = None,
    names_itself: bool = True,
    network: Network | None = None,
    tls: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
    follow: Iterable[str] = (),
) -> AsyncGenerator[Relay]:
    """Be an agent on a relay for a block.

    `url` is that of the relay, such as `ws://127.0.0.1:8080/arc`. `credentials` hold its token. `id` is the
    agent's, for relays that do not say it; with `names_itself` it is in each message, which old relays
    demand. `follow` are agents that are followed from the beginning.

    Raises ConnectFailed if it cannot be reached now or does not take the agent, ConfigError for another
    address. What the body raises is raised unchanged.
    """
    rt = RUNTIME.get()
    relay = Relay(
        relay_url(url),
        id=id,
        names_itself=names_itself,
        network=default_network() if network is None else network,
        tls=tls,
        credentials=credentials,
        new_id=(lambda: uuid4().hex) if rt is None else rt.entropy.new_id,
        draw=random.random if rt is None else rt.entropy.stream("relay").random,
    )
    relay.prepare(follow)
    await relay.connect()
    failure: BaseException | None = None
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        nursery.start_soon(relay.run)
        try:
            await relay.wait_ready()
            yield relay
        except BaseException as error:  # noqa: ASYNC103 -- raised below, and not in a group of the nursery
            failure = error
        nursery.cancel_scope.cancel("the relay is left")
    if failure is not None:
        raise failure
