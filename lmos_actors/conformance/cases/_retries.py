"""Requests that are sent again, which are not carried out again: an extension, and no LMOS text."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.session import SILENCE, Chapter, NoAnswer, Talk, events, first_event, subscribed

from ._extension import needs, outcome

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Heard, Visit
    from lmos_actors.conformance.target import Call

CHAPTER = Chapter()

_RETRIES: Final = extension("Members, Retries")
_REPEATED: Final = "lmosx:offers with retries, and an event that an action which may be invoked makes happen"


class _Repeats:
    """Invokes an action under one id, and counts the events that it makes happen."""

    def __init__(self, visit: Visit, event: str, call: Call, control: Talk) -> None:
        self._visit, self._event, self._call, self._control = visit, event, call, control

    @classmethod
    async def begin(cls, visit: Visit) -> _Repeats:
        """Be ready to hear the event."""
        needs(visit, "retries")
        event = visit.roles.event()
        call = await visit.trigger(event)
        return cls(visit, event, call, await subscribed(visit, event))

    async def ask(self, talk: Talk, id: str, **members: Any) -> Heard | None:
        """Invoke the action under an id; return the answer, if there is one."""
        members = {**self._call.members(), **members}
        with suppress(*SILENCE):
            sent = await talk.send("invokeAction", name=self._call.action, message_id=id, **members)
            return await talk.final(sent)
        return None

    async def first(self) -> None:
        """Wait for the event of the first time. Raises NotOffered where it does not come."""
        await first_event(self._visit, self._control, self._event)
        await self.again()

    async def again(self) -> bool:
        """Return whether more events have come."""
        await self._visit.settle(self._control)
        return bool(await events(self._control, self._event))

    async def comes(self) -> bool:
        """Wait for one more event; whether it came."""
        return await self._control.event(self._event) is not None


@CHAPTER.case(
    "extension.retry",
    "A request that is repeated is not carried out again",
    section=_RETRIES,
    expected="no second event when invokeAction is sent again with the same messageID and content, `attempt` "
    "and `remaining` aside",
    needs=_REPEATED,
)
async def retry(visit: Visit) -> None:
    repeats, talk = await _Repeats.begin(visit), await visit.talk()
    await repeats.ask(talk, id := talk.new_id(), attempt=1)
    await repeats.first()
    for members in ({"attempt": 1}, {"attempt": 2, "remaining": 60}):
        await repeats.ask(talk, id, **members)
        if await repeats.again():
            visit.fail(f"it was carried out again when it was repeated with {members!r}")


@CHAPTER.case(
    "extension.retry-answer",
    "A request that is repeated gets the same final answer",
    section=_RETRIES,
    expected="the same final answer when invokeAction is sent again with the same messageID and content",
    needs="lmosx:offers with retries, and an action that may be invoked",
)
async def retry_answer(visit: Visit) -> None:
    needs(visit, "retries")
    call, talk = visit.roles.safe_call(), await visit.talk()
    id = talk.new_id()
    try:
        first = await visit.invoke(talk, call, message_id=id, attempt=1)
    except NoAnswer:
        visit.not_offered(f"{call.action} is not answered: actions.completed says more")
    again = await visit.invoke(talk, call, message_id=id, attempt=2)
    if not all(same(one, other) for one, other in zip(outcome(first), outcome(again), strict=True)):
        visit.fail(f"at first {first}, and then {again}")


@CHAPTER.case(
    "extension.retry-other",
    "A request of the same id and other content is one of its own",
    section=_RETRIES,
    expected="an event when the action that makes it happen is invoked under a messageID that had other "
    "content before",
    needs=f"{_REPEATED}, and a second action that may be invoked",
)
async def retry_other(visit: Visit) -> None:
    repeats, talk = await _Repeats.begin(visit), await visit.talk()
    call = await visit.trigger(visit.roles.event())
    others = [each for each in visit.roles.safe_calls() if each.action != call.action]
    if not others:
        visit.not_offered("it describes no second action that may be invoked")
    await repeats.ask(talk, talk.new_id())
    await repeats.first()
    id = talk.new_id()
    with suppress(*SILENCE):
        await visit.invoke(talk, others[0], message_id=id)
    await repeats.again()
    await repeats.ask(talk, id)
    if not await repeats.comes():
        visit.fail(
            f"{call.action} was not carried out, as {others[0].action} had been asked for under its messageID"
        )


async def _as_peer(visit: Visit, peer: str) -> Talk:
    headers = ((b"LMOS-Peer", peer.encode()),) if peer else ()
    socket = await visit.socket(headers=headers)
    return Talk(socket, visit.ground.speech, visit.target.thing.id, visit.random, visit.ground.patience)


@CHAPTER.case(
    "extension.retry-peer",
    "A request may be repeated over another connection of the same peer",
    section=_RETRIES,
    expected="no second event when invokeAction is repeated over another connection with the same LMOS-Peer",
    needs=_REPEATED,
)
async def retry_peer(visit: Visit) -> None:
    repeats, peer = await _Repeats.begin(visit), secrets.token_hex(24)  # as the seed comes again
    talk = await _as_peer(visit, peer)
    await repeats.ask(talk, id := talk.new_id(), attempt=1)
    await repeats.first()
    await repeats.ask(await _as_peer(visit, peer), id, attempt=2)
    if await repeats.again():
        visit.fail("it was carried out again for the same LMOS-Peer")


@CHAPTER.case(
    "extension.retry-stranger",
    "A request of another peer is one of its own",
    section=_RETRIES,
    expected="an event for each of two peers, connections without LMOS-Peer, that use the same messageID",
    needs=_REPEATED,
)
async def retry_stranger(visit: Visit) -> None:
    repeats = await _Repeats.begin(visit)
    talk = await visit.talk()
    await repeats.ask(talk, id := talk.new_id())
    await repeats.first()
    await repeats.ask(await visit.talk(), id)
    if not await repeats.comes():
        visit.fail("what one connection had asked for was not carried out for another one")
