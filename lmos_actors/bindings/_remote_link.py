"""The link to a far agent: the verbs of a ref, carried by a peer. So a far ref behaves as a near one."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    wait_task_rescheduled,
)

from lmos_actors._errors import (
    AgentError,
    AgentUnavailable,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
)
from lmos_actors.actors import BUDGET, CURRENT, MONITORS, OUT_SEATS, outgoing_trace, sent_numbers

from ._exposure import EXITED
from ._peer_listening import FarFeed, Listening, Tap
from ._peer_wants import STREAM, FarAsk, FarHeld, FarTell, Note, Said
from ._remote_calls import RemoteCall, RemoteStream
from ._remote_ends import down_of
from ._remote_sinks import FarSinks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from lmos_actors.actors import (
        AgentStatistics,
        Attempt,
        Feed,
        MailboxStatistics,
        Operation,
        Runtime,
        Turns,
    )

    from ._peer_listening import Sink
    from ._peer_things import Far
    from ._remote_terms import Terms


TELL_COSTS: Final = 4
"""Messages to agents here that one to a far agent counts as, between two checkpoints: it takes as long."""


class RemoteLink:
    """One far agent, spoken to on certain terms; see `Link`."""

    __slots__ = ("_sinks", "_terms", "far", "rt", "table", "turns")

    def __init__(self, far: Far, terms: Terms) -> None:
        self.far = far
        self.rt: Runtime = far.rt
        self.turns: Turns = far.rt.turns
        self.table = terms.table
        self._terms = terms
        self._sinks: FarSinks | None = None

    @property
    def path(self) -> str:
        """The agent's path on its node, or the id of the thing where that is not told."""
        return self.far.path

    @property
    def identity(self) -> tuple[object, int]:
        """What makes two refs equal: the same thing at the same address with the same credentials."""
        return self.far.identity

    def operation(self, key: str) -> Operation:
        """Give the operation of that key. Raises NotFound, NotAllowed."""
        return self._terms.operation(key, self.far.path)

    def repeatable(self, key: str) -> bool:
        """Whether asking twice does no more than asking once."""
        return self._terms.repeatable(self.operation(key))

    def _say(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> tuple[Operation, tuple[Any, ...], Said]:
        """Check the arguments here, as near, and give what is to be sent. Raises InvalidInput, NotFound."""
        op, args, payload, names = self._bound(key, args, kwargs)
        said = Said(op.verb, op.name, payload, names, outgoing_trace(self.rt))
        said.attempt = attempt
        if seconds is not None:
            said.deadline, said.seconds = trio.current_time() + seconds, seconds
        return op, args, said

    def _bound(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Operation, tuple[Any, ...], Any, tuple[str, ...] | None]:
        if threading.get_ident() != self.rt.thread:
            raise RuntimeError("a ref works in its node's thread, others use node.portal()")
        op = self._terms.operation(key, self.far.path)
        args = op.bind(args, kwargs)
        return op, args, *self._terms.said(op, args)

    # ---- asking

    @enable_ki_protection
    async def ask(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """See `Link`. While there is no room for more requests, waits for it."""
        return await self._ask(key, args, kwargs, None, None)

    @enable_ki_protection
    async def ask_within(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
    ) -> Any:
        """See `Link`: the deadline is swept here, and told to the peer."""
        return await self._ask(key, args, kwargs, seconds, None)

    @enable_ki_protection
    async def ask_again(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None,
        attempt: Attempt,
    ) -> Any:
        """Ask, as one of several attempts, all under one id."""
        if attempt.message_id is None:
            attempt.message_id = self.rt.entropy.new_id()
        return await self._ask(key, args, kwargs, seconds, attempt)

    async def _ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None,
        attempt: Attempt | None,
    ) -> Any:
        op, _, said = self._say(key, args, kwargs, seconds=seconds, attempt=attempt)
        await checkpoint_if_cancelled()
        ask = FarAsk(self.far, said)
        self.far.peer.post(ask)
        if not ask.ended:
            await self._answered(ask, seconds)
        if ask.error is not None:
            error, ask.error = ask.error, None  # no cycle through the traceback
            raise error
        return self._terms.taken(op, ask.value, self.far.path)

    async def _answered(self, ask: FarAsk, seconds: float | None) -> None:
        ask.task = current_task()
        deadlines: Any = self.rt.deadlines
        if seconds is not None:
            deadlines.add(ask, seconds)

        def abort(_: object) -> Abort:
            ask.task = None
            return Abort.SUCCEEDED

        try:
            await wait_task_rescheduled(abort)
        except BaseException:
            self.far.withdraw(ask)
            raise
        finally:
            if ask.bucket is not None:
                deadlines.forget(ask)

    # ---- telling

    @enable_ki_protection
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send one way; waits for room in the outbox of this side, and for nothing else (M5)."""
        rt, turns = self.rt, self.turns
        op, args, payload, _ = self._bound(key, args, kwargs)
        await checkpoint_if_cancelled()
        note, trace = Note(self, op, args, self._sender()), outgoing_trace(rt)
        if not self.far.peer.tell(note, op.name, payload, trace):
            await self._in_line(FarTell(self.far, Said(op.verb, op.name, payload, None, trace), note))
            return
        turns.budget -= TELL_COSTS
        if turns.budget < 0:
            await checkpoint()
            turns.budget = BUDGET
            if rt.wake_watchdog is not None:
                rt.wake_watchdog()

    async def _in_line(self, tell: FarTell) -> None:
        self.far.peer.post(tell)
        if tell.ended:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        tell.task = current_task()

        def abort(_: object) -> Abort:
            tell.task = None
            self.far.withdraw(tell)  # at once: room that there is now is the next one's
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        if tell.lost is not None:
            raise tell.lost

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`: raises `trio.WouldBlock` where the outbox has no room."""
        op, args, payload, _ = self._bound(key, args, kwargs)
        note = Note(self, op, args, self._sender())
        if not self.far.peer.tell(note, op.name, payload, outgoing_trace(self.rt)):
            raise trio.WouldBlock

    def _sender(self) -> Any:
        run = CURRENT.get()
        return self.turns.slot if run is None else run.slot

    @enable_ki_protection
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`: what finds no room holds the agent back (B4)."""
        op, args, said = self._say(key, args, kwargs)
        held: Any = FarHeld(self.far, said, Note(self, op, args, sender))
        peer = self.far.peer
        if peer.session is not None and len(sender.furnish().out) >= OUT_SEATS and peer.has_line:
            raise MailboxFull(self.far.path, OUT_SEATS)
        try:
            peer.post(held)
        except AgentUnavailable as error:
            place: Any = self
            self.rt.dead_letter(str(error), place, sender, op.name, args)
            return
        if not held.ended:
            held.holds = sender
            sender.out_parked(held)

    # ---- calls

    @asynccontextmanager
    @enable_ki_protection
    async def begin(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float | None
    ) -> AsyncGenerator[RemoteCall]:
        """Invoke and hold on to the call."""
        async with self._open(RemoteCall, key, args, kwargs, seconds) as call:
            yield call

    @asynccontextmanager
    @enable_ki_protection
    async def stream(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float | None
    ) -> AsyncGenerator[RemoteStream]:
        """Invoke and receive many outputs, under credit."""
        async with self._open(RemoteStream, key, args, kwargs, seconds) as call:
            yield call

    @asynccontextmanager
    @enable_ki_protection
    async def _open(
        self,
        kind: type[Any],
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None,
    ) -> AsyncGenerator[Any]:
        op, _, said = self._say(key, args, kwargs, seconds=seconds)
        if kind is RemoteStream and op.verb == "invoke":
            shape = op.result_shape
            said.credit, said.binary = STREAM, shape is not None and shape.exact is bytes
        await checkpoint_if_cancelled()
        call = kind(self.far, said, op, self._terms)
        call.trace = sent_numbers(self.rt, said.trace)
        self.far.peer.post(call)
        try:
            if seconds is not None:
                call.expire_in(seconds)
            yield call
        finally:
            call.leave()

    # ---- listening

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """Observe a property or subscribe to events until the block is left.

        Goes on over breaks of the connection. Raises what the agent refuses it with; of an agent that
        confirms no subscriptions the first iteration does.
        """
        feed = FarFeed(self.rt.timers, size=size, conflate=conflate, gaps=gaps)
        self.operation(key)
        async with self._tapped(key[1:], feed):
            yield feed

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self, *, gaps: bool = False) -> AsyncGenerator[Feed[Any]]:
        """Monitor until the block is left. Of agents that tell no ends, the end of the connection is one."""
        feed = FarFeed(self.rt.timers, gaps=gaps)
        async with self._tapped(MONITORS, feed):
            yield feed

    @asynccontextmanager
    async def _tapped(self, key: str, feed: FarFeed) -> AsyncGenerator[None]:
        await checkpoint_if_cancelled()
        peer = self.far.peer
        if peer.session is None:
            raise peer.unavailable(self.far)
        tap, listening = self.tapped(key, feed, entering=True)
        try:
            await checkpoint()
            await listening.confirmed(tap)
            yield
        finally:
            listening.leave(tap)
            feed.close()

    def tapped(self, key: str, sink: Sink, *, entering: bool) -> tuple[Tap, Listening]:
        """Let a sink hear a property, event, all events, or ends; now, or once there is a connection.

        `entering`: a task waits until that stands, and is told if it cannot.
        """
        far = self.far
        kind, name, convert = self._heard(key)
        listening = far.listenings.get((kind, name))
        tap = Tap(sink, convert, entering=entering)
        if listening is None:
            listening = far.listenings[kind, name] = Listening(far, kind, name, far.peer.new_backoff())
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
            return "events", "", self._terms.heard(key, path)
        return "property" if key[0] == "?" else "event", key[1:], self._terms.heard(key, path)

    def _followed(self, key: str, sink: Sink) -> tuple[Tap, Listening]:
        return self.tapped(key, sink, entering=False)

    def sinks(self) -> FarSinks:
        """Give the listeners of this agent here, as near."""
        if self._sinks is None:
            self._sinks = FarSinks(self._followed)
        return self._sinks

    # ---- what there is only near

    def link(self) -> NoReturn:
        """Refuse: exit signals do not travel."""
        raise NotAllowed(f"{self.far.path!r} is an agent of another process: it cannot be linked, monitor it")

    def statistics(self) -> AgentStatistics:
        """Refuse: the counts are the other process's."""
        raise self._no_counts()

    def mailbox_statistics(self) -> MailboxStatistics:
        """Refuse: the mailbox is the other process's."""
        raise self._no_counts()

    def _no_counts(self) -> NotAllowed:
        return NotAllowed(f"{self.far.path!r} is an agent of another process, which keeps its counts there")

    # ---- being there

    async def wait_running(self) -> None:
        """Wait for the connection, and until the agent runs again if it was heard not to.

        Raises NotFound when it is gone for good, AgentUnavailable at the end of the node.
        """
        far, backoff = self.far, self.far.peer.new_backoff()
        await far.peer.connected(far)
        while far.unwell:
            try:
                await self._ask("?", (), {}, None, None)
            except (AgentUnavailable, MailboxFull, OutcomeUnknown):
                await trio.sleep(backoff.next())
                await far.peer.connected(far)
            except AgentError as error:  # but for the one, it is an answer of an agent that runs
                if isinstance(error, NotFound) and error.kind == "agent":
                    raise
                return
