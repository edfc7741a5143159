"""The link to an agent of another node: the verbs of a ref, carried by a peer.

A far ref behaves as a near one: arguments are bound and checked here, before anything is sent, so that a
mistake raises at the caller's line; deadlines are swept here and their rest is sent along, so that both
ends give up; cancellation withdraws the request. What exists only near (links, counts of a mailbox) raises
NotAllowed.
"""

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

from lmos_actors.actors import (
    BUDGET,
    CURRENT,
    OUT_SEATS,
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

from ._peer_requests import STREAM, OutboundRequest, PendingAsk, PendingTell, SentTell, TurnTell
from ._remote_calls import RemoteCall, RemoteStream
from ._remote_listening import RemoteListening

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from lmos_actors.actors import (
        AgentStatistics,
        Attempt,
        Going,
        MailboxStatistics,
        Operation,
        TraceMembers,
        Turns,
    )

    from ._peer import Peer
    from ._peer_things import RemoteThing
    from ._remote_interface import RemoteInterface


TELL_COSTS: Final = 4
"""Messages to agents here that one to a far agent counts as, between two checkpoints: it takes as long."""


class RemoteLink(RemoteListening):
    """A link to one far agent by one interface; see `Link`."""

    __slots__ = ("_released", "table", "turns")

    def __init__(self, far: RemoteThing, interface: RemoteInterface) -> None:
        super().__init__(far, interface)
        self._released = False
        self.turns: Turns = far.rt.turns
        self.table = interface.table

    @property
    def path(self) -> str:
        """The agent's path on its node, or the id of the thing where the path is unknown."""
        return self.far.path

    @property
    def sockets(self) -> tuple[Peer, ...]:
        """The connections that have to stand before something can be asked."""
        return (self.far.peer,)

    @property
    def identity(self) -> tuple[object, int]:
        """What makes two refs equal: the same thing at the same address with the same credentials."""
        return self.far.identity

    def repeatable(self, key: str) -> bool:
        """Whether asking twice does no more than asking once."""
        return self._interface.is_repeatable(self.operation(key))

    def _prepare(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> tuple[Operation, tuple[Any, ...], OutboundRequest]:
        """Check the arguments here, as near, and return what is to be sent. Raises InvalidInput, NotFound."""
        op, args, payload, names = self._bound(key, args, kwargs)
        going, trace = self._instrumented(op)
        outbound = OutboundRequest(op.verb, op.name, payload, names, trace)
        outbound.going = going
        outbound.attempt = attempt
        if seconds is not None:
            outbound.deadline, outbound.seconds = trio.current_time() + seconds, seconds
        return op, args, outbound

    def _instrumented(self, op: Operation) -> tuple[Going | None, TraceMembers]:
        """Return the instrument of a request, None without one, and the current trace. Call once a
        request."""
        if self.rt.edge is None:
            return None, outgoing_trace(self.rt)
        going = self.rt.edge.goes(op, self.far.path, self.far.peer.way)
        return going, going.trace

    def _bound(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Operation, tuple[Any, ...], Any, tuple[str, ...] | None]:
        if threading.get_ident() != self.rt.thread:
            raise RuntimeError("a ref works in its node's thread, others use node.portal()")
        op = self._interface.operation(key, self.far.path)
        args = op.bind(args, kwargs)
        return op, args, *self._interface.payload(op, args)

    # ---- asking

    @enable_ki_protection
    async def ask(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """See `Link`. While there is no room for more requests, waits for it."""
        return await self._ask(key, args, kwargs, None, None)

    @enable_ki_protection
    async def ask_within(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
    ) -> Any:
        """See `Link`: the deadline is swept here, and sent to the peer."""
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
        op, _, outbound = self._prepare(key, args, kwargs, seconds=seconds, attempt=attempt)
        if outbound.going is None:
            return await self._asked(op, outbound, seconds)
        with outbound.going:
            return await self._asked(op, outbound, seconds)

    async def _asked(self, op: Operation, outbound: OutboundRequest, seconds: float | None) -> Any:
        await checkpoint_if_cancelled()
        ask = PendingAsk(self.far, outbound)
        self.far.peer.post(ask)
        if not ask.ended:
            await self._answered(ask, seconds)
        if ask.error is not None:
            error, ask.error = ask.error, None  # no cycle through the traceback
            raise error
        return self._interface.convert_answer(op, ask.value, self.far.path)

    async def _answered(self, ask: PendingAsk, seconds: float | None) -> None:
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
        """Send one way; waits for room in the outbox, and for credit of the receiver, but for no answer."""
        rt, turns = self.rt, self.turns
        op, args, payload, _ = self._bound(key, args, kwargs)
        await checkpoint_if_cancelled()
        sent = SentTell(self, op, args, self._sender())
        going, trace = self._instrumented(op)
        if not self._put(sent, payload, going, trace):
            await self._in_line(
                PendingTell(self.far, OutboundRequest(op.verb, op.name, payload, None, trace), sent)
            )
            return
        turns.budget -= TELL_COSTS
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
            self.far.withdraw(tell)  # at once: room that there is now is the next one's
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        if tell.lost is not None:
            raise tell.lost

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`: raises `trio.WouldBlock` where the outbox has no room."""
        op, args, payload, _ = self._bound(key, args, kwargs)
        sent = SentTell(self, op, args, self._sender())
        if not self._put(sent, payload, *self._instrumented(op)):
            raise trio.WouldBlock

    def _put(self, sent: SentTell, payload: Any, going: Going | None, trace: TraceMembers) -> bool:
        """Put a one-way message into the outbox; False where there is no room."""
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
        op, args, outbound = self._prepare(key, args, kwargs)
        held: Any = TurnTell(self.far, outbound, SentTell(self, op, args, sender))
        if outbound.going is not None:
            outbound.going.ended(None)  # it is measured no further: no task waits for it
        peer = self.far.peer
        if (
            peer.session is not None
            and len(sender.ensure_extra().out) >= OUT_SEATS
            and peer.holds_up(self.far)
        ):
            raise MailboxFull(self.far.path, OUT_SEATS)
        try:
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
        op, _, outbound = self._prepare(key, args, kwargs, seconds=seconds)
        if issubclass(kind, RemoteStream) and op.verb == "invoke":
            shape = op.result_shape
            outbound.credit, outbound.binary = STREAM, shape is not None and shape.exact is bytes
        await checkpoint_if_cancelled()
        call = kind(self.far, outbound, op, self._interface)
        call.trace = sent_numbers(self.rt, outbound.trace)
        try:
            self.far.peer.post(call)
        except BaseException as error:
            if outbound.going is not None:
                outbound.going.ended(error)
            raise
        try:
            if seconds is not None:
                call.expire_in(seconds)
            yield call
        finally:
            call.leave()

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

    def release(self) -> None:
        """Let go of the connection: it ends with the last ref that needs it. Repeated calls do nothing."""
        if not self._released:
            self._released = True
            self.far.peer.release()

    def unready(self) -> str:
        """Return why the agent cannot be asked now, as far as that is known here."""
        peer = self.far.peer
        if peer.session is None:
            return peer.unavailable(self.far).why
        return "the last that was heard of it is that it does not run" if self.far.unwell else "it is asked"

    async def wait_running(self) -> None:
        """Wait for the connection, and until the agent runs again if it was heard not to.

        Raises NotFound when it is gone for good, AgentUnavailable at the end of the node.
        """
        far, backoff = self.far, self.far.peer.new_backoff()
        await far.peer.connected(far)
        while far.unwell:
            try:
                await self._ask("?", (), {}, None, None)
            except (AgentUnavailable, MailboxFull, OutcomeUnknown, RateLimited):
                await trio.sleep(backoff.next())
                await far.peer.connected(far)
            except AgentError as error:  # but for the one, it is an answer of an agent that runs
                if isinstance(error, NotFound) and error.kind == "agent":
                    raise
                return
