"""An agent on a relay of this package or of another project: one identity over all its connections.

**A question and its answer.** A relay does not report to a sender the id of its message, so the asker cannot
recognize the `ref` of an answer. There are three ways to learn the id, and `Relay.way` is the one in use:

- `receipts`: the relay has that extension, and reports the id before any answer can arrive.
- `echo`: the sender is one of its own targets, and follows itself for broadcasts, so that the message returns
  with its id. Echoes arrive in the order of the messages: every known relay keeps the order of one sender's
  messages.
- `ref`: the question contains a unique word as `ref`, which the answer repeats. This is for relays without
  direct messages; the answerer has to cooperate.

**The oldest relay has no direct messages**, though its welcome lists them. To test a relay that offers only
direct messages and broadcasts, the agent sends itself a message. If that message does not return, messages
for some agents are sent to everybody, with the receivers' names beside the `*`, and other agents ignore them.

**A question counts its hops**; see `_hops.py`.

**Connections break.** They are made again, with jitter. The followed agents are followed again, and a message
that arrives twice, by its id, is delivered once. Unsent messages are sent over the next connection. Messages
that were sent and not acknowledged raise `OutcomeUnknown`. A relay that rejects the agent (401, 4001, 4009
and similar codes) ends it: every method raises ConnectFailed with the reason. The same happens if the first
connection ends before the welcome.

**A relay may refuse many messages with one report**: after a `rate_limit` nothing is sent for a while.
Messages that are under way then, and have no answer at the end of the pause, raise `OutcomeUnknown`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec
import trio

from lmos_actors.errors import ActionFailed, ConnectFailed, OutcomeUnknown
from lmos_actors.protocol import RELAY as RELAY_PROTOCOL, spoken_in
from lmos_actors.protocol.relay import (
    EVERYBODY,
    RATE_LIMIT,
    RELAY,
    RelayAnswer,
    RelayClient,
    RelayFault,
    RelayMessage,
    Welcomed,
)
from lmos_actors.protocol.relay.extensions import WAITING, Questions
from lmos_actors.supervision import Backoff
from lmos_actors.transport import ConnectionOptions, connect

from ._flight import Flight, RatePause
from ._hops import hops_in, ref_with
from ._inbox import Inbox
from ._line import FINAL_CODES, FINAL_STATUS, LASTING, OVER_RATE, Line, how_ended
from ._sent import ACKNOWLEDGEMENTS, CANCEL, NOBODY, Question, Receipt, Sent, check_size, ids_of
from ._traces import going_out, trace_of_now

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lmos_actors._core import Headers
    from lmos_actors.protocol.relay import RelayEvent
    from lmos_actors.security import Credentials
    from lmos_actors.transport import Connection, Ended, Network

Way: TypeAlias = Literal["receipts", "echo", "ref"]

PAUSES: Final = Backoff(initial=0.2)
"""Waits between attempts to connect again."""

WELCOME_SECONDS: Final = 5.0
"""Seconds for a welcome to come: a relay may have none."""

PROBE: Final = "probe"
"""The type of the message to itself by which an agent tests for direct messages."""
MAX_MESSAGE: Final = 4 << 20


class Relay:
    """An agent on a relay; made by `open_relay`. Iterating yields the messages that it receives."""

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
        self._line: Line | None = None
        self._failure: ConnectFailed | None = None  # why it is over
        self._welcome: Welcomed | None = None
        self._is_ready = self._was_ready = False
        self._readiness = trio.lowlevel.ParkingLot()
        self._follows: dict[str, None] = {}
        self._hears_itself = False
        self._has_direct = True
        # messages to send, and sent ones that wait
        self._queue: deque[Sent] = deque()
        self._flight = Flight(url)
        self._pause = RatePause(self._flight, self._wake)
        self._asked: dict[str, Question] = {}  # by the id of the question, or the word that stands for it
        self._inbox = Inbox()
        self._greeted = trio.Event()
        self.connections = 0
        """The number of connections so far."""

    # ---- what is known

    @property
    def id(self) -> str:
        """The id of the agent, "" while it is unknown."""
        return self._client.id or ""

    @property
    def welcome(self) -> Welcomed | None:
        """The last welcome of the relay, None before the first welcome."""
        return self._welcome

    @property
    def way(self) -> Way:
        """The way in which an answer is matched to its question; see the module docstring."""
        welcome = self._welcome
        if welcome is not None and "receipts" in welcome.extensions:
            return "receipts"
        has_direct = welcome is not None and "direct" in welcome.capabilities and self._has_direct
        return "echo" if has_direct and self.id else "ref"

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection on which the relay has welcomed the agent."""
        return self._is_ready and self._failure is None

    @property
    def failure(self) -> ConnectFailed | None:
        """The error with which the relay rejects the agent, None if there is none."""
        return self._failure

    @property
    def follows(self) -> tuple[str, ...]:
        """The ids of the followed agents."""
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
        self._is_ready = self._was_ready = True
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
        """Send a message to everybody, or to some agents, by their ids.

        Return a receipt once it has come, if the relay has receipts; else None once it is sent. `members` are
        passed on beside the payload. Raise ActionFailed with the `code` of a refusal, if the relay has
        receipts; OutcomeUnknown if the connection ended before the receipt; ConnectFailed when the relay
        rejects the agent; ValueError and TypeError for a message that cannot be sent.
        """
        await self.wait_ready()
        with going_out("say", type, members) as trace:
            sent = self._message(ids_of(to), payload, type, ref, {**trace, **(members or {})})
            found: Receipt | None = await self._outcome(sent)
            return found

    def _message(
        self, to: list[str], payload: Any, type: str | None, ref: str | None, members: Mapping[str, Any]
    ) -> Sent:
        word = self._new_id() if self.way == "receipts" else ""
        if word:
            members = {**members, "receipt": word}
        data = self._client.message(self._reach(to), payload, type=type, ref=ref, members=members)
        return Sent(data, receipt=word, is_command=RELAY in to)

    def _reach(self, to: list[str]) -> list[str]:
        """Return the targets to name so that a message reaches some agents."""
        return to if self._has_direct or EVERYBODY in to or RELAY in to else [EVERYBODY, *to]

    async def ask(
        self,
        payload: Any,
        to: str | Sequence[str] = EVERYBODY,
        *,
        type: str = "question",
        members: Mapping[str, Any] | None = None,
    ) -> RelayMessage:
        """Ask a question, and return the first answer: a message with the question's `ref`.

        Only the agents that were asked can answer. Waits without limit, so use a deadline. Raise what `say`
        does, OutcomeUnknown if the connection ended before the answer, and ActionFailed with the code
        `nobody` if the relay reports that the question had no receiver.
        """
        await self.wait_ready()
        with going_out("ask", type, members) as trace:
            question = self.pose(payload, to, type=type, members=members, trace=trace)
            try:
                found: RelayMessage = await question.answer.wait()
                return found
            finally:
                self.withdraw(question)

    def pose(
        self,
        payload: Any,
        to: str | Sequence[str] = EVERYBODY,
        *,
        type: str = "question",
        members: Mapping[str, Any] | None = None,
        trace: Mapping[str, Any] | None = None,
    ) -> Question:
        """Send a question without waiting; an answer is accepted until the question is withdrawn.

        `trace` is the trace of the request, by default the current run's. Raise ConnectFailed if the relay
        rejects the agent, and ActionFailed for a question that is too large for it.
        """
        if self._failure is not None:
            raise self._failure
        targets, trace = ids_of(to), trace_of_now() if trace is None else trace
        members, hops = {**trace, **(members or {})}, hops_in(trace)
        ref = ref_with(hops, self._new_id()) if hops else None
        if self.way == "receipts":
            sent = self._message(targets, payload, type, ref, members)
        elif self.way == "echo":
            if EVERYBODY in targets and not self._hears_itself:
                # some relays send broadcasts back only to followers of the sender
                self._hears_itself = True
                self._queue.append(self._subscription([self.id]))
            data = self._client.message([*targets, self.id], payload, type=type, ref=ref, members=members)
            sent = Sent(data, echo=(type, msgspec.json.decode(msgspec.json.encode(payload))))
        else:
            ref = ref or self._new_id()
            reached = self._reach(targets)
            sent = Sent(self._client.message(reached, payload, type=type, ref=ref, members=members))
        check_size(sent.data, self._welcome)
        sent.question = question = Question(sent, None if EVERYBODY in targets else frozenset(targets))
        if self.way == "ref":
            assert ref is not None
            self._known(question, ref)
        self._queue.append(sent)
        self._wake()
        return question

    def withdraw(self, question: Question, *, cancel_at: str = "") -> None:
        """Withdraw a question, whose answer is no longer awaited.

        `cancel_at` is an agent that gets a `cancel` for the question, if the question has been sent.
        """
        if question.withdrawn:
            return
        question.withdrawn = True
        self._asked.pop(question.id, None)
        if question.sent in self._queue:
            self._queue.remove(question.sent)
            return
        self._flight.leave(question.sent)
        if cancel_at:
            self.cancel(question, cancel_at)

    def cancel(self, question: Question, agent: str, reason: Any = None) -> None:
        """Send an agent a `cancel` for a question, once its id is known; with a reason, the agent answers."""
        question.cancel_at, question.reason = agent, reason
        if question.id:
            self._cancel(question)

    def _cancel(self, question: Question) -> None:
        self.post(question.reason, question.cancel_at, type=CANCEL, ref=question.id)

    def post(self, payload: Any, to: str, *, type: str, ref: str) -> None:
        """Send a message without waiting for its outcome."""
        sent = self._message([to], payload, type, ref, {})
        sent.is_left = True
        self._queue.append(sent)
        self._wake()

    def _known(self, question: Question, id: str) -> None:
        """Store the id of a question, or the `ref` that takes its place."""
        question.id = id
        if not question.withdrawn:
            self._asked[id] = question
        if question.cancel_at:
            self._cancel(question)

    async def answer(
        self,
        message: RelayMessage,
        payload: Any,
        *,
        type: str = "answer",
        members: Mapping[str, Any] | None = None,
    ) -> Receipt | None:
        """Answer the sender of a message, with its `ref`. Raise what `say` does."""
        return await self.say(payload, message.sender, type=type, ref=self.word_of(message), members=members)

    def word_of(self, message: RelayMessage) -> str:
        """Return the `ref` by which the asker finds the answer."""
        return (message.ref if self.way == "ref" else "") or message.id

    @property
    def tells_questions(self) -> bool:
        """Whether agents on the relay report that they wait for a person, by its extension `questions`."""
        return self._welcome is not None and Questions.name in self._welcome.extensions

    # ---- commands

    async def follow(self, *agents: str) -> None:
        """Follow agents now, and again after each reconnection. Raise what `command` does."""
        new = [each for each in agents if each not in self._follows]
        self._follows.update(dict.fromkeys(agents))
        try:
            await self.command("subscribe", {"agents": list(agents)})
        except ActionFailed:
            for each in new:  # else what is refused once is, with all others, over each later connection
                self._follows.pop(each, None)
            raise

    async def unfollow(self, *agents: str) -> None:
        """Stop following agents. Raise what `command` does."""
        for each in agents:
            self._follows.pop(each, None)
        await self.command("unsubscribe", {"agents": list(agents)})

    async def command(self, type: str, payload: Any = None, *, answer: str | None = None) -> RelayAnswer:
        """Send a command to the relay, and return its answer.

        `answer` is the answer's type, if the protocol does not define it. Waits without limit. Raise
        ActionFailed with the `code` of a refusal, and otherwise what `say` does.
        """
        await self.wait_ready()
        acknowledgement = answer or ACKNOWLEDGEMENTS.get(type, type)
        data = self._client.command(type, payload)
        found: RelayAnswer = await self._outcome(Sent(data, acknowledgement=acknowledgement, is_command=True))
        return found

    def _subscription(self, agents: list[str]) -> Sent:
        """Return a command that follows agents, whose answer is not awaited."""
        sent = Sent(self._client.command("subscribe", {"agents": agents}), acknowledgement="subscribed")
        sent.is_command = sent.is_left = True
        return sent

    async def _outcome(self, sent: Sent) -> Any:
        """Send a frame, now or over the next connection, and return the relay's reaction.

        Return None if no reaction is expected. Raise what `command` does.
        """
        if self._failure is not None:
            raise self._failure
        check_size(sent.data, self._welcome)
        self._queue.append(sent)
        self._wake()
        try:
            await sent.taken.wait()
            return await sent.outcome.wait() if sent.receipt or sent.acknowledgement else None
        except trio.Cancelled:
            self._take_back(sent)
            raise

    def _take_back(self, sent: Sent) -> None:
        """Note that no caller waits for a frame any longer, and do not send it if it is still unsent."""
        if sent in self._queue:
            self._queue.remove(sent)
        self._flight.leave(sent)

    # ---- hearing

    def __aiter__(self) -> Relay:
        return self

    async def __anext__(self) -> RelayEvent:
        """Wait for the next message of an agent or of the relay. Raise ConnectFailed at the end."""
        return await self._inbox.next()

    # ---- for the connection

    def frames(self, room: int) -> list[bytes]:
        """Return the next frames to send; called by the connection."""
        found: list[bytes] = []
        while self._queue and room > 0 and not self._pause.is_on:
            sent = self._queue.popleft()
            found.append(sent.data)
            room -= len(sent.data)
            self._flight.add(sent)
            sent.taken.settle()
        return found

    def take(self, data: bytes) -> None:
        """Handle an incoming frame; called by the connection."""
        if self._welcome is None and (spoken := spoken_in(data)) not in (None, RELAY_PROTOCOL):
            self._end(ConnectFailed(self.url, f"it speaks {spoken}, not {RELAY_PROTOCOL}"))
            if self._line is not None:
                self._line.connection.close()
            return
        event = self._client.receive(data)
        if isinstance(event, Welcomed):
            self._welcome = event
            self._greeted.set()
            if not self._is_unsure():
                self._has_direct = True
                self._set_ready()
            self._wake()
        if event is not None and not self._is_awaited(event):
            self._inbox.put(event, len(data))

    def _is_awaited(self, event: RelayEvent) -> bool:
        """Pass an event to the code that waits for it; return False if no code waits."""
        if isinstance(event, RelayMessage):
            if event.sender == self.id and self._came_back(event):
                return True
            question = self._asked.get(event.ref) if event.ref else None
            if question is None or event.sender == self.id or not question.may_answer(event.sender):
                return False
            if event.type == WAITING and self.tells_questions:
                if question.on_waiting is not None:
                    question.on_waiting(event.payload)
                return True
            del self._asked[event.ref]
            question.answer.settle(event)
            return True
        if isinstance(event, RelayFault):
            if event.code == RATE_LIMIT:
                self._pause.begin()
            return self._flight.refused(event)
        if isinstance(event, RelayAnswer):
            if event.type in ("passed", "receipt"):
                return self._has_receipt(event, is_final=event.type == "receipt")
            command = self._flight.answered(event.type)
            if command is not None:
                command.outcome.settle(event)
                return True
        return False

    def _came_back(self, message: RelayMessage) -> bool:
        sent = self._flight.came_back(message)
        if sent is None:
            return self._hears_itself and self.id not in message.to
        sent.outcome.settle(Receipt(message.id))
        if sent.question is not None:
            self._known(sent.question, message.id)
        return True

    def _has_receipt(self, event: RelayAnswer, *, is_final: bool) -> bool:
        is_object = isinstance(event.payload, dict)
        payload = cast("dict[str, Any]", event.payload) if is_object else {}
        sent = self._flight.received(str(payload.get("receipt")), is_final=is_final)
        if sent is None:
            return False
        delivered, unknown = payload.get("delivered"), payload.get("unknown")
        missing: list[Any] = unknown if isinstance(unknown, list) else []  # pyright: ignore[reportUnknownVariableType]
        count = delivered if isinstance(delivered, int) else 0
        if is_final:
            sent.outcome.settle(Receipt(event.ref, count, tuple(map(str, missing))))
        question, sent.question = sent.question, None  # what becomes of the receipt is nothing to its answer
        if question is not None and count:
            self._known(question, event.ref)
        elif question is not None:
            nobody = ActionFailed({"code": NOBODY, "message": "nobody got the question"})
            question.answer.settle(error=nobody)
        return True

    def _wake(self) -> None:
        if self._line is not None:
            self._line.connection.wake()

    # ---- connecting

    async def connect(self) -> None:
        """Connect for the first time. Raise ConnectFailed."""
        self._line = Line(self, await self._connected())

    async def run(self) -> None:
        """Send and receive frames, and reconnect, until the relay rejects the agent."""
        attempt = 0
        while True:
            line, began = self._line, trio.current_time()
            if line is not None:
                async with trio.open_nursery(strict_exception_groups=True) as nursery:
                    nursery.start_soon(self._become_ready)
                    nursery.start_soon(self._pause.run)
                    ended = await line.connection.run(line)
                    nursery.cancel_scope.cancel("the connection has ended")
                self._line, self._is_ready = None, False
                self._cut(ended)
                if self._failure is not None:
                    return
                if ended.code in FINAL_CODES:
                    self._end(ConnectFailed(self.url, f"closed with {ended.code}: {ended.reason}"))
                    return
                if not self._was_ready:
                    self._end(ConnectFailed(self.url, f"{how_ended(ended)}, before there was a welcome"))
                    return
                attempt = 0 if trio.current_time() - began >= LASTING else attempt
                if ended.code == OVER_RATE:
                    await trio.sleep(60.0)  # the rate has to go down first
            attempt += 1
            await trio.sleep(PAUSES.delay(attempt, self._draw()))
            try:
                self._line = Line(self, await self._connected())
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
        self._is_ready, self._greeted = False, trio.Event()
        followed = [*self._follows, *([self.id] if self._hears_itself else [])]
        if followed:
            self._queue.appendleft(self._subscription(followed))
        return connection

    async def _become_ready(self) -> None:
        """Wait up to `WELCOME_SECONDS` for the welcome, and test whether the relay has direct messages."""
        with trio.move_on_after(WELCOME_SECONDS):
            await self._greeted.wait()
        if self._is_unsure():
            probe = Sent(self._client.message([self.id], None, type=PROBE), echo=(PROBE, None))
            self._queue.appendleft(probe)
            self._wake()
            self._has_direct = False
            try:
                with trio.move_on_after(2.0):
                    await probe.outcome.wait()
                    self._has_direct = True
            finally:
                self._take_back(probe)
                self._flight.forget(probe)
        self._set_ready()

    def _is_unsure(self) -> bool:
        """Return whether the relay may lack direct messages despite its welcome, as the oldest relay does."""
        welcome = self._welcome
        if welcome is None or welcome.extensions or not self.id:
            return False
        return set(welcome.capabilities) == {"broadcast", "direct"}

    def _cut(self, ended: Ended) -> None:
        """Fail all sent messages without an acknowledgement, as their outcome is unknown."""
        unknown = self._failure or OutcomeUnknown(self.url, how_ended(ended))
        self._flight.give_up(self._flight.last, unknown)
        waiting = set(map(id, self._queue))
        for question in tuple(self._asked.values()):
            if id(question.sent) not in waiting:
                question.answer.settle(error=unknown)

    def _end(self, failure: ConnectFailed) -> None:
        """Fail all waiting messages, and make every method raise from now on."""
        self._failure = failure
        for sent in self._queue:
            sent.fail(failure)
        self._queue.clear()
        self._set_ready()
        self._inbox.end(failure)
