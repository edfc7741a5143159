"""Requests of refs to agents on a relay, sent by a peer as in links over LMOS and HTTP.

A call is a `question` with `{"action", "input"}`, and its answer is the result; an agent that a node has
bridged to the relay understands it. A relay carries nothing else, except events that are broadcast: any other
request raises NotAllowed, with the reason.

- **The outcome of a question** is reported by the relay (`Relay.pose`). A question that was sent before the
  connection ended raises OutcomeUnknown. Without a connection nothing is sent, which raises AgentUnavailable.
- **No task waits here.** An answer is delivered in the step that reads it, as over LMOS.
- **A deadline is sent with the question**, as `within`. If the caller leaves, a `cancel` with the question's
  `ref` is sent.
- **One-way messages are questions whose answers are ignored**; a refusal is a dead letter. At most `TELLS`
  to one agent are open; further senders wait in line.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec
import trio
from msgspec import UNSET

from lmos_actors.actors import park_among, wake_all
from lmos_actors.bindings import EXITED, Backoff, RemoteRun, RemoteThing, RequestLine
from lmos_actors.errors import (
    ActionFailed,
    AgentUnavailable,
    ConnectFailed,
    InvalidInput,
    NotAllowed,
    OutcomeUnknown,
)

from ._faults import error_of, fault_in
from ._sent import max_payload

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from lmos_actors._core import Budget
    from lmos_actors.actors import ItemTarget, Runtime, TraceMembers, UnsentKind, UnsentMessage
    from lmos_actors.bindings import PendingRequest, SentTell, SharedListening
    from lmos_actors.protocol import lmos
    from lmos_actors.protocol.relay import RelayMessage

    from ._sent import Question
    from ._session import Relay

TELLS: Final = 256
"""Maximum open one-way messages to one agent."""


class RelayRequests:
    """The requests to agents of one relay; a `RemotePeer`.

    The function `events_of` returns the events that an agent has announced as broadcasts; `is_named` is
    whether there are credentials for the relay.
    """

    way = "relay"
    """The binding's name in metrics and traces."""

    takes_keys = False
    tried = True
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self,
        rt: Runtime,
        relay: Relay,
        budget: Budget,
        events_of: Callable[[str], Collection[str]],
        *,
        is_named: bool = False,
    ) -> None:
        self.rt = rt
        self.budget = budget
        self.url = self.place = relay.url
        self.origin = (relay.url.startswith("wss:"), urlsplit(relay.url).netloc)
        self.ended = False
        self._relay = relay
        self._events_of = events_of
        self._is_named = is_named
        self._random = rt.entropy.stream(f"peer {relay.url}")
        self._things: WeakValueDictionary[str, RemoteThing] = WeakValueDictionary()
        self._open: dict[PendingRequest, Question] = {}
        self._cancelled: dict[Question, list[trio.lowlevel.Task]] = {}
        """Questions that are being cancelled, with the tasks that wait for that."""
        self._tells: Counter[str] = Counter()
        self._line = RequestLine(self)  # of one-way messages alone

    # ---- the relay

    @property
    def is_connected(self) -> bool:
        """Whether a question can be sent now."""
        return not self.ended and self._relay.is_connected

    @property
    def heeds(self) -> bool:
        """Whether a time limit pauses while the asked agent reports that it is waiting for a person."""
        return self._is_named and self._relay.tells_questions

    @property
    def failure(self) -> ConnectFailed | None:
        """The error with which the relay rejects the agent, None if there is none."""
        return self._relay.failure

    def thing(self, thing_id: str) -> RemoteThing:
        """Return the agent with an id: always the same object for the same id."""
        found = self._things.get(thing_id)
        if found is None:
            found = self._things[thing_id] = RemoteThing(self, thing_id)
        return found

    def new_backoff(self) -> Backoff:
        """Return a new backoff that draws from this peer's random stream."""
        return Backoff(self._random)

    def unavailable(self, path: str) -> AgentUnavailable:
        """Return the error for a request that cannot be sent now."""
        if self.ended:
            return AgentUnavailable(path, "the agent here that was on the relay has ended")
        return AgentUnavailable(path, f"there is no connection to {self.place}")

    async def first(self) -> None:
        """Wait for the connection. Raise ConnectFailed when the relay rejects the agent."""
        await self._relay.wait_ready()

    async def connected(self, path: str) -> None:
        """Wait for the connection, however long it takes. Raise AgentUnavailable if there will be none."""
        try:
            await self._relay.wait_ready()
        except ConnectFailed as failure:
            raise AgentUnavailable(path, str(failure)) from failure
        if self.ended:
            raise self.unavailable(path)

    def release(self) -> None:
        """Do nothing, as the connection belongs to the member that is on the relay."""

    def stop(self) -> None:
        """End all requests, as the member has left the relay."""
        self.ended = True
        for request in tuple(self._open):
            path = request.far.path
            self._fail(request, OutcomeUnknown(path, "the agent here that was on the relay has ended"))
        for request in self._line.end():
            request.fail(self.unavailable(request.far.path))
        for listening in self._listenings():
            listening.close()

    async def run(self) -> None:
        """Wait until cancelled, as this peer has no connection to run."""
        await trio.sleep_forever()

    # ---- requests

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or in line."""
        return len(self._open) + len(self._line)

    @property
    def tell_credit(self) -> tuple[lmos.Credit, lmos.Credit] | None:
        """None, as a relay has no credit."""
        return None

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the requests that wait in line."""
        for _, request in self._line.unsent():
            yield "room", request

    def post(self, request: PendingRequest) -> None:
        """Send a request, or put it in line. Raise AgentUnavailable, InvalidInput, NotAllowed."""
        if request.sent is None:
            self._ask(request)
        else:
            self._line.post(request)

    def _ask(self, request: PendingRequest) -> None:
        _check(request)
        if isinstance(request, RemoteRun) and request.op.progress is not None:
            why = f"{request.path!r} is reached over a relay, which carries no progress of a call"
            request.feed.fail(NotAllowed(why))
        left = None if request.deadline is None else request.deadline - trio.current_time()
        question = self._pose(request.far, request.name, request.payload, request.trace_context, left)
        self._open[request] = question
        question.answer.on_settled = partial(self._settled, request)
        question.on_waiting = partial(_hear_question, request)

    def _pose(
        self, far: RemoteThing, name: str, payload: Any, trace: TraceMembers, left: float | None
    ) -> Question:
        if not self.is_connected:
            raise self.unavailable(far.path)
        call: dict[str, Any] = {"action": name}
        if payload is not UNSET:
            call["input"] = payload
        if left is not None:
            call["within"] = max(left, 0.001)
        try:
            size = len(msgspec.json.encode(call))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"it cannot be written as JSON: {error}") from None
        most = max_payload(self._relay.welcome)
        if size > most:
            raise InvalidInput(f"the call takes {size} bytes, and a message on the relay {most} at most")
        try:
            return self._relay.pose(call, far.thing_id, trace=trace)
        except ActionFailed as too_large:
            raise InvalidInput(str(too_large.detail)) from None
        except ConnectFailed as failure:
            raise AgentUnavailable(far.path, str(failure)) from failure

    def _settled(self, request: PendingRequest, answer: RelayMessage | None, error: Exception | None) -> None:
        far = request.far
        question = self._open.pop(request, None)
        if question is None:
            return
        self._relay.withdraw(question)
        wake_all(self.rt.timers, self._cancelled.pop(question, []))
        found = _failure(answer, error, far.path)
        if found is None:
            assert answer is not None
            request.answer(answer.payload)
        else:
            request.fail(found)

    def _fail(self, request: PendingRequest, error: Exception) -> None:
        question = self._open.pop(request, None)
        if question is not None:
            self._relay.withdraw(question)
            wake_all(self.rt.timers, self._cancelled.pop(question, []))
            request.fail(error)

    def withdraw(self, request: PendingRequest) -> None:
        """Remove a request from the line, or ask the agent to cancel it, without waiting."""
        question = self._open.pop(request, None)
        if question is not None:
            self._relay.withdraw(question, cancel_at=request.far.thing_id)
            wake_all(self.rt.timers, self._cancelled.pop(question, []))
        else:
            self._line.leave(request)

    def follow(
        self, request: PendingRequest, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None]
    ) -> None:
        """Call `then` with an empty result, as a relay cannot report what a question waits for."""
        then({})

    async def query(self, request: PendingRequest) -> NoReturn:
        """Raise NotAllowed, as a relay cannot report the state of a question."""
        await trio.lowlevel.checkpoint_if_cancelled()
        why = f"{request.path!r} is reached over a relay, which does not say how a call stands"
        raise NotAllowed(why)

    async def cancel(self, request: PendingRequest, reason: str | None) -> None:
        """Ask the agent to cancel a request, and wait for its answer."""
        await trio.lowlevel.checkpoint_if_cancelled()
        question = self._open.get(request)
        if question is None:
            return
        if question not in self._cancelled:
            self._relay.cancel(question, request.far.thing_id, {"reason": reason or ""})
        while request in self._open:
            await park_among(self._cancelled.setdefault(question, []))

    def taken(self, request: PendingRequest) -> None:
        """Do nothing, as there are no streams over a relay."""

    def target(self, request: PendingRequest, name: str) -> ItemTarget:
        """Raise NotAllowed, as a message cannot carry a stream."""
        raise NotAllowed(
            f"{request.path!r} is reached over a relay, which cannot carry the input stream {name!r}"
        )

    # ---- one way

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; return False if the maximum number is open. Raise as `post` does."""
        if not self.may_tell(sent.far.thing_id):
            return False
        self._tell(sent, name, payload, trace)
        return True

    def may_tell(self, thing_id: str) -> bool:
        """Return whether one more one-way message to an agent may be opened."""
        return self._tells[thing_id] < TELLS

    def put(self, request: PendingRequest) -> bool:
        """Send a one-way message from the line, and return True. Raise as `post` does."""
        assert request.sent is not None
        self._tell(request.sent, request.name, request.payload, request.trace_context)
        request.on_sent()
        return True

    def _tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> None:
        question = self._pose(sent.far, name, payload, trace, None)
        self._tells[sent.far.thing_id] += 1
        question.answer.on_settled = partial(self._tell_ended, sent, question)

    def _tell_ended(
        self, sent: SentTell, question: Question, answer: RelayMessage | None, error: Exception | None
    ) -> None:
        agent = sent.far.thing_id
        self._tells[agent] -= 1
        if not self._tells[agent]:
            del self._tells[agent]
        self._relay.withdraw(question)
        found = _failure(answer, error, sent.far.path)
        if found is not None:
            sent.fail(found)
        self._line.send_credited()

    def holds_up(self, far: RemoteThing) -> bool:
        """Return whether messages to an agent already wait in line."""
        return self._line.holds_up(far.thing_id)

    # ---- listening

    def listen(self, listening: SharedListening) -> None:
        """Listen to the broadcasts of an agent. Raise NotAllowed if the relay does not carry them."""
        far = listening.far
        why = self._refusal(listening)
        if why:
            far.listenings.pop((listening.kind, listening.name), None)
            listening.taps.clear()
            raise NotAllowed(f"{far.path!r} is reached over a relay, {why}")
        listening.on_confirmed()

    def _refusal(self, listening: SharedListening) -> str:
        """Return the reason why a subscription is impossible, "" if it is possible."""
        if listening.kind == "property":
            return "which carries no properties"
        if listening.name == EXITED:
            return "which does not report exits"
        known = self._events_of(listening.far.thing_id)
        if listening.kind == "event" and listening.name not in known:
            return f"and does not broadcast {listening.name!r} there: event(broadcast=True) does"
        return ""

    def unlisten(self, listening: SharedListening) -> None:
        """Do nothing, as broadcasts arrive in any case."""

    def heard(self, message: RelayMessage) -> None:
        """Pass on an event that an agent has broadcast."""
        thing = self._things.get(message.sender)
        said: Any = message.payload
        if thing is None or message.type != "data" or not isinstance(said, dict) or "data" not in said:
            return
        name, data = said.get("event"), said["data"]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        text = msgspec.json.encode(data)
        for (kind, wanted), listening in tuple(thing.listenings.items()):
            if kind == "event" and wanted == name:
                listening.value(data, text)
            elif kind == "events" and isinstance(name, str):
                listening.value((name, data), text)

    def lost(self, missed: int | None) -> None:
        """Report to listeners that `missed` broadcasts were lost.

        None means all broadcasts during a time without a connection.
        """
        for listening in self._listenings():
            if missed is None:
                listening.on_connection_lost(lambda: OutcomeUnknown(self.place))
                listening.on_confirmed()
            else:
                listening.gap("messages of the relay were dropped", missed)

    def _listenings(self) -> list[SharedListening]:
        return [each for thing in tuple(self._things.values()) for each in thing.listenings.values()]


def _hear_question(request: PendingRequest, said: Any) -> None:
    """Handle an agent's report that its answer waits for a person."""
    request.hear(said if isinstance(said, dict) else None)  # pyright: ignore[reportUnknownArgumentType]


def _check(request: PendingRequest) -> None:
    """Raise NotAllowed for a request that a question cannot express."""
    if request.verb != "invoke":
        raise NotAllowed(f"{request.path!r} is reached over a relay, which carries no properties")
    if request.credit is not None:
        raise NotAllowed(
            f"{request.path!r} is reached over a relay, where an answer is one message: it carries no streams"
        )


def _failure(answer: RelayMessage | None, error: Exception | None, path: str) -> Exception | None:
    """Return the error with which a question ended, None if it has a result."""
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(path, error.why)
    if isinstance(error, ActionFailed):
        return AgentUnavailable(path, f"the relay has not passed the question on: {error}")
    if error is not None:
        return AgentUnavailable(path, str(error))
    fault = None if answer is None else fault_in(answer.payload)
    return None if fault is None else error_of(fault, path)
