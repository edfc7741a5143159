"""Samples for many cases: a message of each kind, obtained in the easiest way, and values."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from ._messages import ABSENT
from ._probe import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors.conformance.target import Call
    from lmos_actors.protocol.td import Form

    from ._case import CaseContext
    from ._messages import ReceivedMessage
    from ._session import Sent, Session

SILENCE: Final = (NoAnswer, ConnectionGone, Refused)
"""The ways in which a server may leave a request unanswered."""

_MOST: Final = 20
_SOCKETS: Final = ("ws:", "wss:")


async def a_reading(context: CaseContext) -> tuple[Sent, ReceivedMessage]:
    """Read a property, and return the `propertyReading`. Raises NotOffered if none arrives."""
    context.roles.readable_property()
    session = await context.session()
    for name in context.target.readable()[:_MOST]:
        try:
            sent = await session.send("readProperty", name=name)
            received = await session.answer(sent)
        except ConnectionGone:
            break
        except NoAnswer:
            continue
        if received.kind == "propertyReading":
            return sent, received
    raise NotOffered("no property was answered by a propertyReading (see properties.read)")


async def a_status(context: CaseContext) -> tuple[Sent, ReceivedMessage]:
    """Return the final `actionStatus` of a quick run. Raises NotOffered if none arrives, and NotRun."""
    for call in context.roles.safe_calls()[:_MOST]:
        try:
            session = await context.session()
            sent = await session.begin(call)
            received = await session.final(sent)
        except SILENCE:
            continue
        if received.kind == "actionStatus":
            return sent, received
    raise NotOffered("no action was answered by an actionStatus (see actions.completed)")


async def an_error(context: CaseContext) -> tuple[Sent, ReceivedMessage]:
    """Request something unknown, and return the `error`. Raises NotOffered if none arrives."""
    requests: tuple[tuple[str, str, str | None], ...] = (
        ("readProperty", context.target.unknown_property(), None),
        ("invokeAction", context.target.unknown_action(), None),
        ("readProperty", context.target.unknown_property(), context.target.unknown_thing()),
    )
    for kind, name, thing in requests:
        try:
            session = await context.session()
            sent = await session.send(kind, name=name, thing=thing)
            received = await session.final(sent)
        except SILENCE:
            continue
        if received.kind == "error":
            return sent, received
    raise NotOffered("nothing was answered by an error (see errors.*)")


async def one_of_each(context: CaseContext) -> list[tuple[Sent, ReceivedMessage]]:
    """Return a reading, an error and a status, as far as the server sends them.

    Raises NotOffered or NotRun if it sends none of them.
    """
    found: list[tuple[Sent, ReceivedMessage]] = []
    why: NotOffered | NotRun | None = None
    for get in (a_reading, an_error, a_status):
        try:
            found.append(await get(context))
        except (NotOffered, NotRun) as error:
            why = error
    if not found and why is not None:
        raise why
    return found


def pending_call(context: CaseContext) -> Call:
    """Return a call whose run takes a while and has several statuses. Raises NotOffered and NotRun."""
    call = context.roles.slow_call()
    if context.shared.dialect.is_kotlin:
        context.not_offered("for kotlin-wot's clients a run has one status")
    return call


async def values_of(context: CaseContext, session: Session, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of those properties that can be read, by name. Raises ConnectionGone."""
    found: dict[str, Any] = {}
    for name in list(names)[:_MOST]:
        try:
            received = await session.ask("readProperty", name=name)
        except NoAnswer:
            continue
        if received.kind == "propertyReading" and received.value is not ABSENT:
            found[name] = received.value
    return found


async def restorable_values(context: CaseContext, session: Session) -> dict[str, Any]:
    """Return the values of properties that can be read and written. Raises NotOffered, ConnectionGone."""
    context.roles.writable_property()
    found = await values_of(context, session, context.target.restorable())
    if not found:
        raise NotOffered("no property that can be written could be read (see properties.read)")
    return found


async def put_back(context: CaseContext, session: Session, name: str, value: Any) -> None:
    """Restore the value of a property, if necessary over a new connection.

    This works in a cancelled scope, too.
    """
    with (
        trio.move_on_after(3 * context.patience, shield=True),
        suppress(*SILENCE, Unreachable),
    ):
        try:
            await session.ask("writeProperty", name=name, data=value)
        except SILENCE:
            again = await context.session(session.dialect, thing=session.thing)
            await again.ask("writeProperty", name=name, data=value)


def is_offered(forms: Iterable[Form] | None, op: str) -> bool:
    """Return whether a form for LMOS names an operation, such as `queryaction`."""
    return any(
        op in form.ops and (form.subprotocol == "lmosprotocol" or form.href.lower().startswith(_SOCKETS))
        for form in forms or ()
    )


def must_be_meant_to_fail(context: CaseContext, call: Call, received: ReceivedMessage) -> None:
    """End the case if a run succeeds that was expected to fail only because of its action's name."""
    if received.status == "completed" and context.shared.hints.fails is None:
        context.not_run(f"{call.action} does not fail: name one that does as fails, --hints ({received})")


async def cancel_run(session: Session, run: Sent) -> None:
    """Cancel a run that the kit no longer needs, if the dialect allows that."""
    if not session.dialect.is_kotlin:
        with suppress(ConnectionGone):
            await session.send("cancelAction", name=run.name, correlation=run.message_id)
