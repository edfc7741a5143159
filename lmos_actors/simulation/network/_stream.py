"""Connections of a simulated network that keep order, as over TCP.

Each pair of nodes that communicate has a connection, which exists from the first use:

- A message on a line that is cut is held, and goes on if the cut ends before either end notices it.
- Both ends check for life every 20 seconds, as our WebSockets do (`_life.py`). A cut is noticed after 20 to
  60 seconds, depending on when something was last received. Then the connection is gone: open requests end in
  OutcomeUnknown, runs are cancelled at their agent, listeners get a gap.
- The connection is made again after growing waits; an attempt takes two round trips, of `ATTEMPT` seconds at
  most each. What is sent during a cut is sent again after it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec import UNSET
from trio.lowlevel import checkpoint_if_cancelled

from lmos_actors._core import NOT_NEEDED_YET
from lmos_actors.actors import Carried, park_among, wake_all
from lmos_actors.bindings import (
    RemoteThing,
    RequestLine,
    RunQuestion,
    StreamTarget,
    as_near_error,
    means_unwell,
    no_connection,
)
from lmos_actors.errors import AgentUnavailable, ConnectFailed, OutcomeUnknown
from lmos_actors.protocol.lmos import written

from ._connecting import Connecting
from ._life import Life
from ._peer import NetworkParts, NodePeer, NodeThing, requested, told
from ._requests import HEAD, KINDS, Served, ServedTell, StreamIn
from ._serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.actors import ItemTarget, TraceMembers, UnsentKind, UnsentMessage
    from lmos_actors.bindings import PendingRequest, SentTell, SharedListening
    from lmos_actors.protocol.lmos import RunStatus

OPEN: Final = 1024
"""Maximum number of requests without an answer on one connection; more stand in line."""


class StreamPeer(NodePeer):
    """A connection from one node to another, over lines that keep order; see the module docstring."""

    __slots__ = (
        "_connecting", "_heard", "_left", "_life", "_line", "_open", "_questions", "_waiting", "is_connected",
    )  # fmt: skip

    def __init__(self, network: NetworkParts, source: str, target: str) -> None:
        super().__init__(network, source, target)
        self.is_connected = True
        self._life = self._new_life()
        self._left: tuple[Life, ...] = ()  # before this one, whose other end may not know that they are over
        self._connecting: Connecting | None = None  # made when it first breaks
        self._waiting: list[trio.lowlevel.Task] | None = None
        self._open: dict[PendingRequest, Served] = NOT_NEEDED_YET
        self._line = RequestLine(self)
        self._questions: dict[RunQuestion, None] = NOT_NEEDED_YET
        self._heard: dict[SharedListening, Served] = NOT_NEEDED_YET
        if source in network.away:  # what unwinds there uses it, and reaches nobody: see `begin_again`
            self.is_connected = False
            self._life.never_stood()
        elif target in network.away:
            self._refused_first()

    # ---- the lines

    def _go(
        self, size: int, arrive: Callable[[], object], request: Any = None, *, back: bool = False
    ) -> None:
        """Call `arrive` at the other end for a request, unless the connection ends first."""
        away = self.network.away
        if away and (self.target_node if back else self.source) in away:
            return  # what a node does that has ended reaches nobody
        self._life.send(size, arrive, request, back=back)

    def look_at_lines(self) -> None:
        """Update all connections and attempts to connect after a change of the lines."""
        if self._left:
            self._left = tuple([life for life in self._left if not life.is_over])
        for life in (*self._left, self._life):
            life.look_at_lines()
        if self._connecting is not None:
            self._connecting.look_at_lines()

    def _new_life(self, served_since: float | None = None) -> Life:
        return Life(self.network, self.source, self.target_node, self, served_since)

    def reset(self) -> bool:
        """End the connection at both ends and begin to reconnect. Return whether there was a connection."""
        stood = self.is_connected
        for life in (*self._left, self._life):
            life.reset()
        if self._connecting is not None:
            self._connecting.reset()
        return stood

    def half_open(self) -> bool:
        """End the connection at the other end only, without notice. Return whether there was one."""
        return self.is_connected and self._life.half_open()

    @property
    def failure(self) -> ConnectFailed | None:
        """The failure of the last attempt to connect, None while there is a connection."""
        if self.source in self.network.away:
            return ConnectFailed(self.place, "this node has ended")
        return None if self._connecting is None else self._connecting.failure

    # ---- a node that ends; see `Pair`

    def source_ended(self) -> None:
        """End the connection from this end, without answers to its requests: their sender ends too."""
        self._open = self._questions = self._heard = NOT_NEEDED_YET
        for thing in self.things:
            thing.lose_told()
        self._line.end()
        for life in (*self._left, self._life):
            life.leave(0)
        self._stop_connecting()
        self.is_connected = False

    def target_ended(self) -> None:
        """End the connection from the other end."""
        for life in (*self._left, self._life):
            life.leave(1)

    def begin_again(self) -> None:
        """Begin as at the first use: connected at once, unless the other node is away."""
        if self.is_connected:
            return
        self._stop_connecting()
        self._random = None  # each life has one of its own
        if self.target_node in self.network.away:
            # it may begin again in the same instant; whichever of two nodes is the first, they connect
            self.rt.timers.call_at(trio.current_time(), self._begin_first)
        else:
            self._stand(self._new_life())

    def _begin_first(self) -> None:
        if self.is_connected or self._connecting is not None or self.source in self.network.away:
            return
        if self.target_node in self.network.away:
            self._refused_first()
        else:
            self._stand(self._new_life())

    def _refused_first(self) -> None:
        """Begin without a connection: the other node is away and refuses it."""
        self.is_connected = False
        self._life.never_stood()
        self._ensure_connecting().begin_refused()

    def _stop_connecting(self) -> None:
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.stop()

    def connection_lost(self) -> None:
        """Handle the end of the connection at this end."""
        if self.source in self.network.away:
            self._left += (self._life,)
            return
        self.network.note("disconnected", self._life.carrier.line())
        self.is_connected = False
        self._left += (self._life,)
        self._lose()
        self._ensure_connecting().begin(trio.current_time() - self._life.since)

    def _ensure_connecting(self) -> Connecting:
        if self._connecting is None:
            ends = self.source, self.target_node
            backoff = self.new_backoff()
            self._connecting = Connecting(self.network, ends, backoff, self._connected, self._wake_waiting)
        return self._connecting

    def _wake_waiting(self) -> None:
        if self._waiting is not None:
            wake_all(self.rt.timers, self._waiting)

    async def _wait(self) -> None:
        """Wait until there is a connection, or the time of the next attempt is set."""
        if self._waiting is None:
            self._waiting = []
        await park_among(self._waiting)

    def _connected(self, served_since: float, has_ended: bool) -> None:
        life = self._new_life(served_since)  # whose lines may have been cut since then
        self.network.note("connected", life.carrier.line())
        self._stand(life)
        if has_ended:
            life.leave(1)

    def _stand(self, life: Life) -> None:
        self._life = life
        self.is_connected = True
        for thing in self.things:
            for listening in tuple(thing.listenings.values()):
                self.listen(listening)
        self._wake_waiting()

    def _lose(self) -> None:
        """Fail all requests that were open or queued, because the connection is gone."""
        opened, self._open = self._open, NOT_NEEDED_YET
        waiting, things = self._line.end(), self.things
        lost = [served.told for thing in things for served in thing.lose_told()]
        questions, self._questions = self._questions, NOT_NEEDED_YET
        self._heard = NOT_NEEDED_YET
        for request in (*opened, *questions):
            request.fail(OutcomeUnknown(request.far.path))
        for sent in lost:
            if sent is not None:
                sent.fail(OutcomeUnknown(sent.far.path))
        for request in waiting:
            request.fail(self.unavailable(request.far.path))
        for thing in things:
            for listening in tuple(thing.listenings.values()):
                listening.on_connection_lost(partial(self.unavailable, thing.path))

    def unavailable(self, path: str) -> AgentUnavailable:
        """Return the error for a request that cannot be sent now."""
        retry_at = None if self._connecting is None else self._connecting.retry_at
        return no_connection(path, self.place, self.failure, retry_at)

    async def first(self) -> None:
        """Wait for the connection, and try to connect now. Raises ConnectFailed if an attempt fails."""
        await checkpoint_if_cancelled()
        connecting = self._connecting
        failures = -1 if connecting is None else connecting.failures
        if connecting is not None:
            connecting.try_now()
        while not self.is_connected:
            failure = self.failure
            if failure is not None and (connecting is None or connecting.failures > failures):
                raise failure.at(failure.url)
            await self._wait()

    async def connected(self, path: str) -> None:
        """Wait for the connection, however long it takes."""
        await checkpoint_if_cancelled()
        while not self.is_connected:
            await self._wait()

    # ---- requests

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or are queued."""
        return len(self._open) + len(self._line)

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the queued requests; see `Outbox` of the actors."""
        return self._line.unsent()

    def holds_up(self, far: RemoteThing) -> bool:
        """Return whether messages to a thing already wait for room or for credit."""
        return self._line.holds_up(far.thing_id)

    @property
    def _has_room(self) -> bool:
        if len(self._open) >= OPEN:
            return False
        line = self._life.carrier.line()
        return line.rules.bandwidth is None or line.waiting_bytes(self.network.now()) <= line.rules.queue

    def post(self, request: PendingRequest) -> None:
        """Send or queue a request; see `RemotePeer`."""
        if not self.is_connected:
            raise self.unavailable(request.far.path)
        self._line.post(request)

    def may_tell(self, thing_id: str) -> bool:
        """Return whether there is credit for a one-way message to a thing."""
        return self.thing(thing_id).has_credit

    def put(self, request: PendingRequest) -> bool:
        """Send a request; return False if there is no room for it. Raises InvalidInput."""
        if not self._has_room:
            # If the line lacks room, try again when it has sent what waits for its bandwidth.
            line, now = self._life.carrier.line(), trio.current_time()
            over = line.waiting_bytes(now) - line.rules.queue
            if over > 0 and line.rules.bandwidth is not None:
                self.rt.timers.call_at(now + over / line.rules.bandwidth + 1e-6, self._send_waiting)
            return False
        if request.sent is not None:
            self._send_tell(request.sent, request.name, request.payload, request.trace_context)
            request.on_sent()
            return True
        if not self._open:
            self._open = {}
            self._life.begin_watch()
        served = self._open[request] = requested(request)
        served.host = request
        self._go(served.weight, partial(self._arrived, self._life, served), served)
        return True

    def _arrived(self, life: Life, served: ServedTell) -> None:
        if life.is_served:
            if life.serving is None:
                life.serving = Serving(self, self.network.limits)
            life.serving.take(served)

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; return False if there is no room or no credit. Raises as `post` does."""
        if not self.is_connected:
            raise self.unavailable(sent.far.path)
        thing = sent.far.thing_id
        if self._line.holds_up(thing) or not self.may_tell(thing) or not self._has_room:
            return False
        self._send_tell(sent, name, payload, trace)
        return True

    def _send_tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> None:
        served = told(sent, name, payload, trace)
        thing: NodeThing = sent.link.far
        thing.take_credit(served)
        self._go(served.weight, partial(self._arrived, self._life, served), served)

    def withdraw(self, request: PendingRequest) -> None:
        """Remove a request from the queue, or cancel its run, without waiting, because the caller is gone."""
        if not self._line.leave(request) and (served := self._open.pop(request, None)) is not None:
            verb = Serving.withdraw if request.leaving() is None else Serving.cut_off
            self._there(lambda serving: verb(serving, served))
            self._send_waiting()

    def _there(self, call: Callable[[Serving], object], size: int = HEAD) -> None:
        """Send a message that calls `call` with the serving end on arrival, if that has begun to serve."""
        life = self._life

        def arrived() -> None:
            if life.serving is not None and life.is_served:
                call(life.serving)

        self._go(size, arrived)

    def _send_waiting(self) -> None:
        """Send the queued messages for which there is room; room may have become free."""
        if not self._open:
            self._life.free_watch()
        self._line.send()

    # ---- runs

    async def query(self, request: PendingRequest) -> RunStatus | None:
        """Ask for the state of a run; see `RemotePeer`."""
        served = self._open.get(request)
        if served is None:
            return None
        question = RunQuestion(request.far, "query", request.name)
        return await self._standing(request, question, lambda serving: serving.query(served, question))

    async def cancel(self, request: PendingRequest, reason: str | None) -> RunStatus | None:
        """Cancel a request; see `RemotePeer`."""
        served = self._open.get(request)
        if served is None:  # it stands in line
            request.far.cancel(request, reason)
            return None
        question = RunQuestion(request.far, "cancel", request.name)
        return await self._standing(
            request, question, lambda serving: serving.cancel(served, question, reason)
        )

    async def _standing(
        self, request: PendingRequest, question: RunQuestion, ask: Callable[[Serving], object]
    ) -> RunStatus | None:
        """Ask about a run and wait for the answer; see `RunQuestion.wait`."""
        if not self._questions:
            self._questions = {}
        self._questions[question] = None
        self._there(ask)
        try:
            return await question.wait(request, lambda: None)
        finally:
            self._questions.pop(question, None)

    def taken(self, request: PendingRequest) -> None:
        """Report that the consumer has taken an item of a run: the agent may send more."""
        served = self._open.get(request)
        if served is not None:
            self._there(lambda serving: serving.credited(served))

    def target(self, request: PendingRequest, name: str) -> ItemTarget:
        """Return the object to which the items of a request's input stream are sent."""
        return StreamTarget(self, request, name)

    @property
    def session(self) -> StreamPeer:
        """The object that sends the items of input streams, which is this peer."""
        return self

    def send(self, stream: StreamIn, item: Any) -> None:
        """Send an item of an input stream. Raises LocalProtocolError if the item cannot be encoded."""
        text = bytes(item) if stream.binary else written(item)
        stream.credit -= 1
        self._there(lambda serving: serving.take_item(stream, text), HEAD + len(text))

    def finish(self, stream: StreamIn, reason: str | None) -> None:
        """Send the end of an input stream."""
        self._there(lambda serving: serving.end_stream(stream, reason))

    # ---- listening

    def listen(self, listening: SharedListening) -> None:
        """Request a subscription, now or on the next connection."""
        if not self.is_connected:
            return
        target = self.thing(listening.far.thing_id).target
        served = Served(target, KINDS[listening.kind], listening.name, trace=listening.trace)
        if not self._heard:
            self._heard = {}
        self._heard[listening] = served
        served.also = (listening,)
        self._go(HEAD, partial(self._arrived, self._life, served), served)

    def unlisten(self, listening: SharedListening) -> None:
        """End a subscription that has no listener at this end any more."""
        served = self._heard.pop(listening, None)
        if served is not None:
            self._there(lambda serving: serving.unlisten(served))

    # ---- the way back: see `Back`

    def go_back(self, size: int, arrive: Callable[[], object], served: ServedTell | None = None) -> None:
        """Call `arrive` at the caller's end of a request, after the delay of the line."""
        self._go(size, arrive, served, back=True)

    def _request_of(self, served: ServedTell) -> PendingRequest | None:
        request: PendingRequest | None = served.host
        return request if request is not None and self._open.get(request) is served else None

    def answered(self, served: Served, text: bytes) -> None:
        """Deliver the value of an answer."""
        request = self._ended(served)
        if request is not None:
            request.far.unwell = False
            request.answer(msgspec.json.decode(text) if text else UNSET)
        self._send_waiting()

    def _ended(self, served: ServedTell) -> PendingRequest | None:
        request = self._request_of(served)
        if request is not None:
            del self._open[request]
        return request

    def refused(self, served: ServedTell, error: Exception) -> None:
        """Deliver the error in place of an answer, or the end of a subscription."""
        path: str = served.target.path
        if served.told is not None:
            if served.told.link.far.regain_credit(served):
                served.told.fail(as_near_error(error, path, path))
                self._line.send_credited()
        elif isinstance(served, Served) and served.also:
            listening = served.also[0]
            if self._heard.pop(listening, None) is not None:
                listening.on_refused(as_near_error(error, path, path))
        elif (request := self._ended(served)) is not None:
            request.far.unwell = means_unwell(error)
            request.fail(as_near_error(error, path, path, request.seconds))
        self._send_waiting()

    def report(self, served: ServedTell, status: str, progress: Any, question: Any = UNSET) -> None:
        """Report the state of a run if somebody can see it, or send the question for a person."""
        request = self._request_of(served)
        if request is not None and (hasattr(request, "feed") or question is not UNSET):
            self.go_back(HEAD, partial(self._reported, served, status, progress, question or None), served)

    def _reported(self, served: ServedTell, *news: Any) -> None:
        if (request := self._request_of(served)) is not None:
            request.on_status(*news)

    def item(self, served: Served, text: bytes) -> None:
        """Deliver an item of a run."""
        request = self._request_of(served)
        if request is not None:
            request.item(msgspec.json.decode(text))

    def credited(self, begun: Sequence[ServedTell]) -> None:
        """Regain the credit of one-way messages that have begun."""
        for served in begun:
            if served.told is not None:
                served.told.link.far.regain_credit(served)
        self._line.send_credited()

    def _listening_of(self, served: Served) -> SharedListening | None:
        listening: SharedListening | None = served.also[0] if served.also else None
        return listening if listening is not None and self._heard.get(listening) is served else None

    def confirmed(self, served: Served, text: bytes | None) -> None:
        """Handle the confirmation of a subscription, with the first value for an observation."""
        listening = self._listening_of(served)
        if listening is not None:
            listening.on_confirmed()
            if text is not None:
                listening.value(msgspec.json.decode(text), text)

    def value(self, served: Served, text: bytes, trace: TraceMembers) -> None:
        """Deliver a value to a listener."""
        listening = self._listening_of(served)
        if listening is not None:
            with Carried(self.rt, trace.get("traceparent"), trace.get("tracestate")):
                value = msgspec.json.decode(text)
                listening.value(tuple(value) if listening.kind == "events" else value, text)

    def gap(self, served: Served, reason: str, missed: int | None) -> None:
        """Notify a listener that values are missing."""
        listening = self._listening_of(served)
        if listening is not None:
            listening.gap(reason, missed)

    def stream_credited(self, stream: StreamIn, items: int) -> None:
        """Add credit for an input stream."""
        stream.credit += items
        request = self._request_of(stream.served)
        if request is not None:
            request.on_room()

    def stopped(self, stream: StreamIn) -> None:
        """Handle the report that no more items of an input stream are wanted."""
        request = self._request_of(stream.served)
        if request is not None:
            request.on_stopped(stream.name)
