"""Correlation of answers with requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.session import SILENCE, Chapter, cancel_run, pending_call, restorable_values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Run, Sent, Session

CORRELATION: Final[Chapter[CaseContext]] = Chapter(section=lmos("Common Message Requirements"))

_EXPECTED: Final = "the correlationID of the request in the answer to it"
_READABLE: Final = "a property that can be read"


def _hold(context: CaseContext, received: ReceivedMessage, sent: Sent) -> None:
    """Compare an answer's correlationID with its request's: fail, or note a deviation, if they differ."""
    found = received.correlation
    if found == sent.correlation:
        return
    if found is None:
        context.differs("correlation-missing", f"{received.kind} has no correlationID")
    elif found == sent.message_id:
        seen = f"{received.kind} has the messageID of the request in its place"
        context.differs("correlation-by-messageID", seen)
    else:
        context.fail(
            f"{received.kind} has the correlationID {found!r}, and the request has {sent.correlation!r}"
        )


async def _read(context: CaseContext, session: Session) -> Sent:
    name = context.roles.readable_property()
    return await session.send("readProperty", name=name, correlation=session.new_id())


async def _write(context: CaseContext, session: Session) -> Sent:
    name, value = next(iter((await restorable_values(context, session)).items()))
    return await session.send("writeProperty", name=name, data=value, correlation=session.new_id())


def _correlated(send: Callable[[CaseContext, Session], Awaitable[Sent]]) -> Run:
    """Make a case of one request whose final answer must have the request's correlationID."""

    async def run(context: CaseContext) -> None:
        session = await context.session()
        sent = await send(context, session)
        _hold(context, await session.final(sent), sent)

    return run


CORRELATION.add(
    "correlation.read",
    "A reading has the correlationID of the request",
    _correlated(_read),
    section=lmos("propertyReading"),
    expected=_EXPECTED,
    needs=_READABLE,
)
CORRELATION.add(
    "correlation.write",
    "The answer to a write has the correlationID of the request",
    _correlated(_write),
    expected=_EXPECTED,
    needs="a property that can be read and written",
)


@CORRELATION.case(
    "correlation.invoke",
    "The status of a run has the correlationID of the request",
    expected=_EXPECTED,
    needs="an action that may be invoked",
)
async def invoke(context: CaseContext) -> None:
    call, session = context.roles.safe_call(), await context.session()
    sent = await session.begin(call, correlation=session.new_id())
    _hold(context, await session.final(sent), sent)


@CORRELATION.case(
    "correlation.error",
    "An error has the correlationID of the request",
    section=lmos("error, Example Response"),
    expected="the correlationID of the request in the error that answers it",
)
async def error(context: CaseContext) -> None:
    session, name = await context.session(), context.target.unknown_property()
    sent = await session.send("readProperty", name=name, correlation=session.new_id())
    with context.left_to("errors.unknown-property", SILENCE):
        received = await session.answer(sent)
    _hold(context, context.prerequisite(received, "error", "errors.unknown-property"), sent)


@CORRELATION.case(
    "correlation.by-message-id",
    "Without a correlationID, the answer has the messageID of the request in its place, or none",
    section=lmos("actionStatus, Example Response"),
    expected="the messageID of the request as correlationID, as the examples of invokeAction and "
    "actionStatus have it, or none, since it is optional",
    needs="an action that may be invoked, or a property that can be read",
)
async def by_message_id(context: CaseContext) -> None:
    session = await context.session()
    if context.target.safe_actions():
        sent = await session.begin(context.roles.safe_call(), correlation=None)
    else:
        sent = await session.send("readProperty", name=context.roles.readable_property(), correlation=None)
    received = await session.final(sent)
    if received.correlation is None:
        context.not_offered(
            f"{received.kind} has no correlationID, which is optional: requests need to have one"
        )
    elif received.correlation != sent.message_id:
        context.fail(
            f"{received.kind} has the correlationID {received.correlation!r}, "
            f"and the request {sent.message_id!r}"
        )


@CORRELATION.case(
    "correlation.two-open",
    "Of two requests at once, each gets its own answer",
    expected="two answers, each with the correlationID of the request that it answers",
    needs=_READABLE,
)
async def two_open(context: CaseContext) -> None:
    """Send two reads at once, and fail if the answer to one has the correlationID of the other.

    The reads name different properties, so their answers can be told apart by their content.
    """
    session = await context.session()
    known = context.roles.readable_property()
    names = (known, context.target.any_property(but=known))
    for _ in range(4):
        sent = [await session.send("readProperty", name=name) for name in names]
        for _ in sent:
            received = await session.next()
            if received is None:
                context.fail("only one of two requests was answered" if session.received else "no answer")
            _hold_own(context, received, sent)


def _hold_own(context: CaseContext, received: ReceivedMessage, sent: list[Sent]) -> None:
    """Fail if the answer to one of two requests has the correlationID of the other."""
    for one, other in (sent, sent[::-1]):
        if received.correlation != other.correlation:
            continue
        if received.kind == "propertyReading" and received.name == one.name:
            context.fail(f"the reading of {one.name} has the correlationID of the request for {other.name}")


@CORRELATION.case(
    "correlation.statuses",
    "All statuses of a run have the correlationID of the request",
    expected="the correlationID of the request in each actionStatus of the run, the first as well as the "
    "last",
    needs="an action that takes a while",
)
async def statuses(context: CaseContext) -> None:
    call, session = pending_call(context), await context.session()
    sent = await session.begin(call, correlation=session.new_id())
    with context.left_to("actions.pending"):
        received = await session.answer(sent)
    if received.is_final:
        return  # judged by correlation.invoke
    await cancel_run(session, sent)
    _hold(context, received, sent)
