"""Repeated requests, which are not carried out again: an extension of lmos_actors."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.session import (
    SILENCE,
    Chapter,
    Session,
    events,
    first_event,
    subscribed,
)

from ._members import needs, outcome

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage
    from lmos_actors.conformance.target import Call


_REPEATED: Final = "lmosx:offers with retries, and an event that an action which may be invoked makes happen"

RETRIES: Final[Chapter[CaseContext]] = Chapter(section=extension("Members, Retries"), needs=_REPEATED)


class _Repeats:
    """Repeated invocations of an action under one id, and the events that they cause."""

    def __init__(self, context: CaseContext, event: str, call: Call, control: Session) -> None:
        self._context, self._event, self._call, self._control = context, event, call, control

    @classmethod
    async def begin(cls, context: CaseContext) -> _Repeats:
        """Find an action that causes an event, and subscribe to the event."""
        needs(context, "retries")
        event = context.roles.event()
        call = await context.trigger(event)
        return cls(context, event, call, await subscribed(context, event))

    async def ask(self, session: Session, id: str, **members: Any) -> ReceivedMessage | None:
        """Invoke the action under an id; return the final answer, or None if there is none."""
        members = {**self._call.members(), **members}
        with suppress(*SILENCE):
            sent = await session.send("invokeAction", name=self._call.action, message_id=id, **members)
            return await session.final(sent)
        return None

    async def first(self) -> None:
        """Wait for the event of the first invocation. Raises NotOffered if there is none."""
        await first_event(self._context, self._control, self._event)
        await self.again()

    async def again(self) -> bool:
        """Return whether more events have come."""
        await self._context.flush(self._control)
        return bool(await events(self._control, self._event))

    async def comes(self) -> bool:
        """Wait for one more event; return whether it came."""
        return await self._control.event(self._event) is not None


@RETRIES.case(
    "extension.retry",
    "A repeated request is not carried out again",
    expected="no second event when invokeAction is sent again with the same messageID and content, `attempt` "
    "and `remaining` aside",
)
async def retry(context: CaseContext) -> None:
    repeats, session = await _Repeats.begin(context), await context.session()
    await repeats.ask(session, id := session.new_id(), attempt=1)
    await repeats.first()
    for members in ({"attempt": 1}, {"attempt": 2, "remaining": 60}):
        await repeats.ask(session, id, **members)
        if await repeats.again():
            context.fail(f"it was carried out again when it was repeated with {members!r}")


@RETRIES.case(
    "extension.retry-answer",
    "A repeated request gets the same final answer",
    expected="the same final answer when invokeAction is sent again with the same messageID and content",
    needs="lmosx:offers with retries, and an action that may be invoked",
)
async def retry_answer(context: CaseContext) -> None:
    needs(context, "retries")
    call, session = context.roles.safe_call(), await context.session()
    id = session.new_id()
    with context.left_to("actions.completed"):
        first = await context.invoke(session, call, message_id=id, attempt=1)
    again = await context.invoke(session, call, message_id=id, attempt=2)
    if not all(same(one, other) for one, other in zip(outcome(first), outcome(again), strict=True)):
        context.fail(f"at first {first}, and then {again}")


@RETRIES.case(
    "extension.retry-other",
    "A request with the same id and other content is a new request",
    expected="an event when the action that makes it happen is invoked under a messageID that had other "
    "content before",
    needs=f"{_REPEATED}, and a second action that may be invoked",
)
async def retry_other(context: CaseContext) -> None:
    repeats, session = await _Repeats.begin(context), await context.session()
    call = await context.trigger(context.roles.event())
    others = [each for each in context.roles.safe_calls() if each.action != call.action]
    if not others:
        context.not_offered("it describes no second action that may be invoked")
    await repeats.ask(session, session.new_id())
    await repeats.first()
    id = session.new_id()
    with suppress(*SILENCE):
        await context.invoke(session, others[0], message_id=id)
    await repeats.again()
    await repeats.ask(session, id)
    if not await repeats.comes():
        context.fail(
            f"{call.action} was not carried out, as {others[0].action} had been requested under its messageID"
        )


async def _as_peer(context: CaseContext, peer: str) -> Session:
    headers = ((b"LMOS-Peer", peer.encode()),) if peer else ()
    socket = await context.socket(headers=headers)
    return Session(
        socket,
        context.shared.dialect,
        context.target.thing.id,
        context.random,
        context.patience,
    )


@RETRIES.case(
    "extension.retry-peer",
    "A request may be repeated over another connection of the same peer",
    expected="no second event when invokeAction is repeated over another connection with the same LMOS-Peer",
)
async def retry_peer(context: CaseContext) -> None:
    repeats, peer = await _Repeats.begin(context), secrets.token_hex(24)  # as the same seed may be used again
    session = await _as_peer(context, peer)
    await repeats.ask(session, id := session.new_id(), attempt=1)
    await repeats.first()
    await repeats.ask(await _as_peer(context, peer), id, attempt=2)
    if await repeats.again():
        context.fail("it was carried out again for the same LMOS-Peer")


@RETRIES.case(
    "extension.retry-stranger",
    "A request of another peer is a new request",
    expected="an event for each of two peers, connections without LMOS-Peer, that use the same messageID",
)
async def retry_stranger(context: CaseContext) -> None:
    repeats = await _Repeats.begin(context)
    session = await context.session()
    await repeats.ask(session, id := session.new_id())
    await repeats.first()
    await repeats.ask(await context.session(), id)
    if not await repeats.comes():
        context.fail("a request of one connection was not carried out for another")
