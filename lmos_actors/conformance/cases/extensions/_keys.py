"""Requests with keys, whose answers are kept: an extension of lmos_actors.

A server keeps answers for a day. The keys of the kit contain the time, so that each run has new keys, even
with the same seed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.session import SILENCE, Chapter, events, first_event, subscribed
from lmos_actors.conformance.target import NotOffered

from ._members import needs, outcome

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Session
    from lmos_actors.conformance.target import Call

KEYS: Final[Chapter[CaseContext]] = Chapter(section=extension("Members, Keys"))

_KEPT: Final = "lmosx:offers with keys, lmosx:answers, and an action that may be invoked"
_ILL_FORMED: Final[tuple[Any, ...]] = (7, "", "two words", "k" * 257)


def _new_key(context: CaseContext) -> str:
    return f"{context.random.getrandbits(128):032x}-{round(trio.current_time() * 1e6)}"


def _needs_answers(context: CaseContext) -> None:
    needs(context, "keys")
    if context.target.readable_part.answers is None:
        context.not_offered("the description has no lmosx:answers")


async def _ask(session: Session, call: Call, key: object) -> ReceivedMessage:
    """Invoke an action with a key, under a new id; return the final answer. Raises NoAnswer."""
    return await session.final(
        await session.send("invokeAction", name=call.action, key=key, **call.members())
    )


@KEYS.case(
    "extension.key",
    "Of the requests of one key, one is carried out",
    expected="no second event when an action is invoked again with the same key and content, under another "
    "messageID, over the same connection and over another one",
    needs="lmosx:offers with keys, lmosx:answers, and an event that an action which may be invoked makes "
    "happen",
)
async def key(context: CaseContext) -> None:
    _needs_answers(context)
    event = context.roles.event()
    call = await context.trigger(event)
    control, session, key = await subscribed(context, event), await context.session(), _new_key(context)
    with suppress(*SILENCE):
        await _ask(session, call, key)
    await first_event(context, control, event)
    await context.flush(control)
    await events(control, event)
    for where, asking in (("the same", session), ("another", await context.session())):
        with suppress(*SILENCE):
            await _ask(asking, call, key)
        await context.flush(control)
        if await events(control, event):
            context.fail(f"{call.action} was carried out again for the same key over {where} connection")


@KEYS.case(
    "extension.key-answer",
    "A request whose key came before gets the same final answer",
    expected="the same final answer when an action is invoked again with the same key and content, over the "
    "same connection and over another one",
    needs=_KEPT,
)
async def key_answer(context: CaseContext) -> None:
    _needs_answers(context)
    call, session, key = context.roles.safe_call(), await context.session(), _new_key(context)
    with context.left_to("actions.completed"):
        first = await _ask(session, call, key)
    for where, asking in (("the same", session), ("another", await context.session())):
        again = await _ask(asking, call, key)
        if not all(same(one, other) for one, other in zip(outcome(first), outcome(again), strict=True)):
            context.fail(f"at first {first}, and then, over {where} connection, {again}")


@KEYS.case(
    "extension.key-other",
    "The key of another request is refused",
    expected="an error of the type key-reused when another action is invoked with the same key",
    needs=f"{_KEPT}, and a second one",
)
async def key_other(context: CaseContext) -> None:
    _needs_answers(context)
    calls, session, key = context.roles.safe_calls(), await context.session(), _new_key(context)
    if len(calls) < 2:
        context.not_offered("it describes no second action that may be invoked")
    with context.left_to("actions.completed"):
        await _ask(session, calls[0], key)
    answer = await _ask(session, calls[1], key)
    if answer.kind != "error" or not str(answer.data.get("type")).endswith("key-reused"):
        context.fail(f"{calls[1].action} with the key of {calls[0].action} is answered by {answer}")


@KEYS.case(
    "extension.key-form",
    "A key that is none is refused, and the connection goes on",
    expected="an error when an action is invoked with a key that is a number, empty, has a blank, or 257 "
    "characters; then another request is answered",
    needs="lmosx:offers with keys, and an action that may be invoked",
)
async def key_form(context: CaseContext) -> None:
    needs(context, "keys")
    call, session = context.roles.safe_call(), await context.session()
    for key in _ILL_FORMED:
        answer = await _ask(session, call, key)
        if answer.kind != "error":
            context.fail(f"the key {key!r} is answered by {answer}")
    await context.flush(session)


@KEYS.case(
    "extension.key-unkept",
    "A key is refused where no answer is kept",
    expected="an error of the type operation-not-allowed when an action with streams is invoked with a key, "
    "or, without lmosx:answers, any action",
    needs="lmosx:offers with keys, and an action with an output stream or no lmosx:answers",
)
async def key_unkept(context: CaseContext) -> None:
    needs(context, "keys")
    calls: list[Call] = []
    with suppress(NotOffered):
        calls.append(context.roles.streamed_call())
    if context.target.readable_part.answers is None:
        calls.append(context.roles.safe_call())
    if not calls:
        context.not_offered("it keeps the answers of all actions")
    session = await context.session()
    for call in calls:
        answer = await _ask(session, call, _new_key(context))
        if answer.kind != "error" or not str(answer.data.get("type")).endswith("operation-not-allowed"):
            context.fail(f"{call.action} with a key is answered by {answer}")
