"""The link to an agent of another node: the verbs of a ref, carried by a peer.

A far ref behaves like a near one. Arguments are bound and checked here, before anything is sent, so that a
mistake raises at the caller's line. Deadlines are swept here and the remaining time is sent along, so that
both ends give up. Cancellation withdraws the request. Features that only near agents have (links, counts of a
mailbox) raise NotAllowed.

The link makes the one description of each request (see `_peer_requests.py`) and waits for its answer. It does
not depend on the protocol: its peer may use LMOS or HTTP.

Listening is shared: listeners here join the one subscription of the connection (`SharedListening`). Agents
that follow a far agent have no task for it: their sinks are kept in `RemoteSinks`, which replaces the sinks
of a near agent's slot.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    wait_task_rescheduled,
)

from lmos_actors.actors import (
    BUDGET,
    CURRENT,
    MONITORS,
    OUT_SEATS,
    STREAM as MANY_OUTPUTS,
    Feed,
    Invocation,
    OutputQueue,
    going_out,
    invoked_stream,
    outgoing_trace,
    sent_numbers,
)
from lmos_actors.errors import (
    AgentError,
    AgentUnavailable,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RateLimited,
)

from ..exposure._exposure import EXITED
from ._peer import Peer
from ._peer_listening import FeedMemory, RemoteListener, SharedListening, down_of
from ._peer_requests import STREAM, PendingAsk, PendingTell, SentTell, TurnTell
from ._remote_calls import RemoteCall, RemoteStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from lmos_actors.actors import (
        AgentStatistics,
        Attempt,
        Contract,
        Going,
        MailboxStatistics,
        Operation,
        Runtime,
        TraceMembers,
        Turns,
    )
    from lmos_actors.protocol.td import Description

    from ._peer_listening import Sink
    from ._peer_requests import RemotePeer, RemoteThing
    from ._remote_calls import RemoteRun
    from ._remote_interface import RemoteInterface


class RemoteSinks:
    """The listeners of one far agent, by key, like the `Sinks` of a near agent."""

    __slots__ = ("_tapped", "_taps")

    def __init__(self, tapped: Callable[[str, Sink], tuple[RemoteListener, SharedListening]]) -> None:
        self._tapped = tapped
        self._taps: dict[tuple[str, Sink], tuple[RemoteListener, SharedListening]] = {}

    def add(self, key: str, sink: Sink) -> None:
        """Let a sink receive the values of `key` from now on, once there is a connection."""
        if (key, sink) not in self._taps:
            tap, listening = self._tapped(key, _Entrance(self, key, sink))
            if tap in listening.taps:
                self._taps[key, sink] = tap, listening

    def remove(self, key: str, sink: Sink) -> None:
        """Remove a sink, which may have been removed already."""
        found = self._taps.pop((key, sink), None)
        if found is not None:
            tap, listening = found
            listening.leave(tap)


class _Entrance:
    """A sink that removes itself from its `RemoteSinks` when it ends."""

    __slots__ = ("_key", "_sink", "_sinks", "gap", "push")

    def __init__(self, sinks: RemoteSinks, key: str, sink: Sink) -> None:
        self.push = sink.push
        self.gap = sink.gap
        self._sinks = sinks
        self._key = key
        self._sink = sink

    def close(self) -> None:
        """Remove the sink from its `RemoteSinks`, and close it."""
        self._sinks.remove(self._key, self._sink)
        self._sink.close()


class RemoteLink:
    """A link to one far agent by one interface; see `Link`.

    `outgoing` returns the trace context for a request of the running code.
    """

    __slots__ = ("_interface", "_outgoing", "_released", "_sinks", "far", "rt", "table", "turns")

    def __init__(
        self,
        far: RemoteThing,
        interface: RemoteInterface,
        outgoing: Callable[[Runtime], TraceMembers] = outgoing_trace,
    ) -> None:
        self.far = far
        self.rt: Runtime = far.rt
        self.turns: Turns = far.rt.turns
        self.table = interface.table
        self._interface = interface
        self._outgoing = outgoing
        self._sinks: RemoteSinks | None = None
        self._released = False

    def to(self, far: RemoteThing) -> RemoteLink:
        """Return a link to another thing that has the same interface."""
        return RemoteLink(far, self._interface, self._outgoing)

    @property
    def path(self) -> str:
        """The agent's path on its node, or the id of the thing where the path is unknown."""
        return self.far.path

    @property
    def address(self) -> dict[str, str]:
        """The address under which a durable agent keeps the ref. Raises TypeError if there is none."""
        peer = self.far.peer
        if not isinstance(peer, Peer):
            raise TypeError("which is for HTTP alone, and needs the description: make the field ephemeral")
        if peer.headers:
            raise TypeError("which has headers of its own: give the node credentials, or make it ephemeral")
        return {"url": peer.url, "thing": self.far.thing_id}

    @property
    def contract(self) -> Contract | None:
        """The contract of the class of the ref; None if the ref has no class."""
        return self._interface.contract

    @property
    def description(self) -> Description | None:
        """The description of an agent that is used without a class; None for a ref with a class."""
        return self._interface.description

    @property
    def sockets(self) -> tuple[RemotePeer, ...]:
        """The connections that must be open before a request can be sent."""
        return (self.far.peer,)

    @property
    def identity(self) -> tuple[object, int]:
        """The equality key of refs: the same thing at the same address with the same credentials."""
        return self.far.identity

    def operation(self, key: str) -> Operation:
        """Return the operation with a key. Raises NotFound, NotAllowed."""
        return self._interface.operation(key, self.far.path)

    def repeatable(self, key: str) -> bool:
        """Return whether a repeated request does no more than a single one."""
        return self._interface.is_repeatable(self.operation(key))

    def keeps_answers(self, key: str) -> bool:
        """Return whether the agent keeps the answers to requests for an action, as far as that is known."""
        op = self.operation(key)
        return op.verb == "invoke" and self.far.peer.takes_keys and self._interface.keeps_answers(op)

    def _bound(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Operation, tuple[Any, ...], Any, tuple[str, ...] | None]:
        """Return the operation, its arguments, payload, and names to read.

        Raises the same errors as a near agent.
        """
        if threading.get_ident() != self.rt.thread:
            raise RuntimeError("a ref works in its node's thread, others use node.portal()")
        op = self.table.get(key)
        if op is None:
            op = self._interface.operation(key, self.far.path)
        args = op.bind(args, kwargs)
        return op, args, *self._interface.payload(op, args)

    def _instrumented(self, op: Operation) -> tuple[Going | None, TraceMembers]:
        """Return the instrument of a request, or None, and its trace. Call this once for each request."""
        if self.rt.edge is None:
            return None, self._outgoing(self.rt)
        going = self.rt.edge.goes(op, self.far.path, self.far.peer.way)
        return going, going.trace

    # ---- asking

    def _pending(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None,
        attempt: Attempt | None,
    ) -> tuple[Operation, PendingAsk]:
        """Return the operation and its request, which is not sent yet. Raises the errors of a near agent."""
        if attempt is not None and attempt.message_id is None:
            attempt.message_id = self.rt.entropy.new_id()
        op, args, payload, names = self._bound(key, args, kwargs)
        edge = self.rt.edge
        going = None if edge is None else edge.goes(op, self.far.path, self.far.peer.way)
        trace = self._outgoing(self.rt) if going is None else going.trace
        deadline = None if seconds is None else trio.current_time() + seconds
        return op, PendingAsk(
            self.far, op.verb, op.name, payload, names, trace, seconds, deadline, going, attempt
        )

    @enable_ki_protection
    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """See `Link`. Waits while there is no room for more requests.

        The deadline is swept here, and sent to the peer.
        """
        if (found := self.table.get(key)) is not None and (found.streams or found.kind == MANY_OUTPUTS):
            return await self._ask_with_sources(Invocation(key, args, kwargs, seconds), found)
        op, ask = self._pending(key, args, kwargs, seconds, attempt)
        going, deadlines = ask.going, cast("Any", self.rt.deadlines)
        # not `with going`: without one it would take a second coroutine, or a context that does nothing
        try:
            await checkpoint_if_cancelled()  # a cancelled caller sends nothing
            self.far.peer.post(ask)
            if not ask.ended:
                ask.task = task = current_task()
                task.custom_sleep_data = ask  # what the caller waits for, see `_circles.py`
                if seconds is not None:
                    deadlines.add(ask, seconds)
                try:
                    await wait_task_rescheduled(ask.abort)
                except BaseException:
                    self.far.withdraw(ask)
                    raise
                finally:
                    if ask.bucket is not None:
                        deadlines.forget(ask)
            if ask.error is not None:
                error, ask.error = ask.error, None  # no cycle through the traceback
                raise error
            value = self._interface.convert_answer(op, ask.value, self.far.path)
        except BaseException as error:
            if going is not None:
                going.ended(error)
            raise
        if going is not None:
            going.ended(None)
        return value

    # ---- telling

    @enable_ki_protection
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send a one-way message; wait for room in the outbox and for credit, but not for an answer."""
        rt, turns = self.rt, self.turns
        op, args, payload, _ = self._bound(key, args, kwargs)
        op.check_one_way()
        await checkpoint_if_cancelled()
        run = CURRENT.get()
        sent = SentTell(self, op, args, turns.slot if run is None else run.slot)  # as `_sender`
        if rt.edge is None:  # as `_instrumented` and `_put`
            trace = self._outgoing(rt)
            is_put = self.far.peer.tell(sent, op.name, payload, trace)
        else:
            going, trace = self._instrumented(op)
            is_put = self._put(sent, payload, going, trace)
        if not is_put:
            await self._in_line(PendingTell(self.far, op.verb, op.name, payload, None, trace, sent=sent))
            return
        turns.budget -= 4  # between two checkpoints: a far message takes as long as four near ones
        if turns.budget < 0:
            await checkpoint()
            turns.budget = BUDGET
            if rt.wake_watchdog is not None:
                rt.wake_watchdog()

    async def _in_line(self, tell: PendingTell) -> None:
        self.far.peer.post(tell)
        if tell.ended:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        tell.task = current_task()

        def abort(_: object) -> Abort:
            tell.task = None
            self.far.withdraw(tell)  # at once: the next one gets the room
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        if tell.lost is not None:
            raise tell.lost

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`: raises `trio.WouldBlock` where the outbox has no room."""
        op, args, payload, _ = self._bound(key, args, kwargs)
        op.check_one_way()
        sent = SentTell(self, op, args, self._sender())
        if not self._put(sent, payload, *self._instrumented(op)):
            raise trio.WouldBlock

    def _put(self, sent: SentTell, payload: Any, going: Going | None, trace: TraceMembers) -> bool:
        """Put a one-way message into the outbox; return False if there is no room."""
        if going is None:
            return self.far.peer.tell(sent, sent.op.name, payload, trace)
        with going:
            return self.far.peer.tell(sent, sent.op.name, payload, trace)

    def _sender(self) -> Any:
        run = CURRENT.get()
        return self.turns.slot if run is None else run.slot

    @enable_ki_protection
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`: a message without room holds back the next turn of the sending agent."""
        op, args, payload, _ = self._bound(key, args, kwargs)
        if op.streams:
            op.check_one_way()
        going, trace = (None, self._outgoing(self.rt)) if self.rt.edge is None else self._instrumented(op)
        sent = SentTell(self, op, args, sender)
        if going is not None:
            going.ended(None)  # the message is measured no further: no task waits for it
        peer, extra = self.far.peer, sender.extra
        out = () if extra is None else extra.out
        if peer.is_connected and len(out) >= OUT_SEATS and peer.holds_up(self.far):
            raise MailboxFull(self.far.path, OUT_SEATS)
        try:
            # most messages stand in no line; before the first connection is made, the sender is held back
            if peer.tried and peer.tell(sent, op.name, payload, trace):
                return
            held: Any = TurnTell(self.far, op.verb, op.name, payload, None, trace, sent=sent)
            peer.post(held)
        except AgentUnavailable as error:
            place: Any = self
            self.rt.dead_letter(str(error), place, sender, op.name, args)
            return
        if not held.ended:
            held.holds = sender
            sender.outgoing_parked(held)

    # ---- calls

    @asynccontextmanager
    @enable_ki_protection
    async def open(self, invocation: Invocation) -> AsyncGenerator[Any]:
        """Invoke an action, and yield its call, or its stream of outputs under credit, for a block."""
        call = self._call(invocation)
        sources = call.sources
        await self._send(call)
        try:
            call.begin_deadline()
            if sources is None:
                yield call
            else:
                async with sources.carried(call):
                    yield call
        finally:
            call.leave()

    def _call(self, invocation: Invocation) -> RemoteRun:
        """Return a call or a stream that is not sent yet. Raises the errors of a near agent."""
        op, args, payload, names = self._bound(invocation.key, invocation.args, invocation.kwargs)
        seconds, timers = invocation.seconds, self.rt.timers
        kind = partial(RemoteStream, outputs=OutputQueue(timers)) if invocation.stream else RemoteCall
        going, trace = self._instrumented(op)
        deadline = None if seconds is None else trio.current_time() + seconds
        call = kind(
            self.far, op.verb, op.name, payload, names, trace, seconds, deadline, going,
            op=op,
            interface=self._interface,
            feed=Feed(timers, conflate=True),
            trace=sent_numbers(self.rt, trace),
        )  # fmt: skip
        if isinstance(call, RemoteStream):
            call.outputs.call = call
        if isinstance(call, RemoteStream) and op.verb == "invoke":
            shape = op.result_shape
            call.credit, call.binary = STREAM, shape is not None and shape.exact is bytes
        if op.streams:
            try:
                call.carry(args)
            except BaseException as error:
                if going is not None:
                    going.ended(error)
                raise
        return call

    async def _send(self, call: RemoteRun) -> None:
        """Send a call, unless its caller is cancelled. Raises the errors of `RemotePeer.post`."""
        try:
            await checkpoint_if_cancelled()
            self.far.peer.post(call)
        except BaseException as error:
            if call.sources is not None:
                call.sources.release()
            if call.going is not None:
                call.going.ended(error)
            raise

    async def _ask_with_sources(self, invocation: Invocation, op: Operation) -> Any:
        """Return the result of a run with input streams; iterate their sources in this task.

        Raises TypeError if it also has an output stream.
        """
        if op.kind == MANY_OUTPUTS:
            raise invoked_stream(op)
        call = self._call(invocation)
        await self._send(call)
        call.begin_deadline()
        assert call.sources is not None
        return await call.sources.answer(call)

    # ---- listening

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """Observe a property or subscribe to events until the block is left.

        The feed outlives breaks of the connection. Raises the agent's refusal; if the agent confirms no
        subscriptions, the first iteration raises it.
        """
        self.operation(key)
        memory = FeedMemory(self.far.peer.budget, lambda: feed.drop_waiting())
        feed: Feed[Any] = Feed(self.rt.timers, size=size, conflate=conflate, gaps=gaps, holder=memory)
        try:
            async with self._tapped(key[1:], feed, memory):
                yield feed
        finally:
            memory.close()

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self, *, gaps: bool = False) -> AsyncGenerator[Feed[Any]]:
        """Monitor the agent until the block is left.

        If the agent reports no ends, the end of the connection counts as one.
        """
        feed: Feed[Any] = Feed(self.rt.timers, gaps=gaps)
        async with self._tapped(MONITORS, feed):
            yield feed

    @asynccontextmanager
    async def _tapped(
        self, key: str, feed: Feed[Any], memory: FeedMemory | None = None
    ) -> AsyncGenerator[None]:
        await checkpoint_if_cancelled()
        peer = self.far.peer
        if not peer.is_connected:
            raise peer.unavailable(self.far.path)
        tap, listening = self.tapped(key, feed, memory, entering=True)
        try:
            await checkpoint()
            await listening.confirmed(tap)
            yield
        finally:
            listening.leave(tap)
            feed.close()

    def tapped(
        self, key: str, sink: Sink, memory: FeedMemory | None = None, *, entering: bool
    ) -> tuple[RemoteListener, SharedListening]:
        """Let a sink receive a property, event, all events, or ends; now, or once there is a connection.

        While `entering`, a task waits until the subscription is confirmed, and fails if it is refused.
        """
        far = self.far
        kind, name, convert = self._heard(key)
        listening = far.listenings.get((kind, name))
        tap = RemoteListener(sink, convert, memory, entering=entering)
        if listening is None:
            going = (
                None
                if key == MONITORS
                else going_out(self.rt, self.operation(f"+{key}"), far.path, far.peer.way)
            )
            listening = SharedListening(far, kind, name, far.peer.new_backoff(), going)
            if not far.listenings:
                far.listenings = {}
            far.listenings[kind, name] = listening
            listening.join(tap)
            far.peer.listen(listening)
        else:
            listening.join(tap)
        return tap, listening

    def _heard(self, key: str) -> tuple[str, str, Callable[[Any], Any]]:
        path = self.far.path
        if key == MONITORS:
            return "event", EXITED, down_of(path)
        if key == "!":
            return "events", "", self._interface.converter(key, path)
        return "property" if key[0] == "?" else "event", key[1:], self._interface.converter(key, path)

    def _followed(self, key: str, sink: Sink) -> tuple[RemoteListener, SharedListening]:
        return self.tapped(key, sink, entering=False)

    def sinks(self) -> RemoteSinks:
        """Return the listeners of this agent here, as a near agent's link does."""
        if self._sinks is None:
            self._sinks = RemoteSinks(self._followed)
        return self._sinks

    # ---- only for near agents

    def link(self) -> NoReturn:
        """Raise NotAllowed, because exit signals are not sent to other nodes."""
        raise NotAllowed(f"{self.far.path!r} is an agent of another process: it cannot be linked, monitor it")

    def statistics(self) -> AgentStatistics:
        """Raise NotAllowed, because the counts belong to another process."""
        raise self._no_counts()

    def mailbox_statistics(self) -> MailboxStatistics:
        """Raise NotAllowed, because the mailbox belongs to another process."""
        raise self._no_counts()

    def _no_counts(self) -> NotAllowed:
        return NotAllowed(f"{self.far.path!r} is an agent of another process, which keeps its counts there")

    # ---- availability

    def release(self) -> None:
        """Release the connection: it ends with the last ref that needs it. Repeated calls do nothing."""
        if not self._released:
            self._released = True
            self.far.peer.release()

    def unready(self) -> str:
        """Return why the agent cannot be asked now, as far as that is known here."""
        peer = self.far.peer
        if not peer.is_connected:
            return peer.unavailable(self.far.path).why
        if self.far.unwell:
            return "the last that was heard of it is that it does not run"
        return f"no answer yet from {peer.place}"

    async def wait_running(self) -> None:
        """Wait for the connection, and, if the agent is known not to run, until it runs again.

        Raises NotFound if the agent has been removed, AgentUnavailable at the end of the node.
        """
        far, backoff = self.far, self.far.peer.new_backoff()
        await far.peer.connected(far.path)
        while far.unwell:
            try:
                await self.ask("?", (), {})
            except (AgentUnavailable, MailboxFull, OutcomeUnknown, RateLimited):
                await trio.sleep(backoff.next())
                await far.peer.connected(far.path)
            except AgentError as error:  # all but the one below come from an agent that runs
                if isinstance(error, NotFound) and error.kind == "agent":
                    raise
                return
