"""Correlation of answers with requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.session import Chapter, NoAnswer, leave, restorable_values
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent

CORRELATION = Chapter()

_SHARED: Final = lmos("Common Message Requirements")
_EXPECTED: Final = "the correlationID of the request in the answer to it"
_READABLE: Final = "a property that can be read"


def _hold(context: CaseContext, received: ReceivedMessage, sent: Sent) -> None:
    found = received.correlation
    if found == sent.correlation:
        return
    if found is None:
        context.differs("correlation-missing", f"{received.kind} has no correlationID")
    elif found == sent.message_id:
        context.differs(
            "correlation-by-messageID", f"{received.kind} has the messageID of the request in its place"
        )
    else:
        context.fail(
            f"{received.kind} has the correlationID {found!r}, and the request has {sent.correlation!r}"
        )


@CORRELATION.case(
    "correlation.read",
    "A reading has the correlationID of the request",
    section=lmos("propertyReading"),
    expected=_EXPECTED,
    needs=_READABLE,
)
async def read(context: CaseContext) -> None:
    session = await context.session()
    name = context.roles.readable_property()
    sent = await session.send("readProperty", name=name, correlation=session.new_id())
    _hold(context, await session.answer(sent), sent)


@CORRELATION.case(
    "correlation.write",
    "The answer to a write has the correlationID of the request",
    section=_SHARED,
    expected=_EXPECTED,
    needs="a property that can be read and written",
)
async def write(context: CaseContext) -> None:
    session = await context.session()
    name, value = next(iter((await restorable_values(context, session)).items()))
    sent = await session.send("writeProperty", name=name, data=value, correlation=session.new_id())
    _hold(context, await session.answer(sent), sent)


@CORRELATION.case(
    "correlation.invoke",
    "The status of a run has the correlationID of the request",
    section=_SHARED,
    expected=_EXPECTED,
    needs="an action that may be invoked",
)
async def invoke(context: CaseContext) -> None:
    call = context.roles.safe_call()
    session = await context.session()
    correlation = session.new_id()
    sent = await session.send("invokeAction", name=call.action, correlation=correlation, **call.members())
    _hold(context, await session.final(sent), sent)


@CORRELATION.case(
    "correlation.error",
    "An error has the correlationID of the request",
    section=lmos("error, Example Response"),
    expected="the correlationID of the request in the error that answers it",
)
async def error(context: CaseContext) -> None:
    session = await context.session()
    sent = await session.send(
        "readProperty", name=context.target.unknown_property(), correlation=session.new_id()
    )
    try:
        received = await session.answer(sent)
    except (NoAnswer, ConnectionGone) as why:
        context.not_offered(f"{why}: errors.unknown-property says more")
    if received.kind != "error":
        context.not_offered(f"{received}: errors.unknown-property says more")
    _hold(context, received, sent)


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
        call = context.roles.safe_call()
        sent = await session.send("invokeAction", name=call.action, correlation=None, **call.members())
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
    section=_SHARED,
    expected="two answers, each with the correlationID of the request that it answers",
    needs=_READABLE,
)
async def two_open(context: CaseContext) -> None:
    """Two requests whose answers differ in content: a reading, and one of another name."""
    session = await context.session()
    known = context.roles.readable_property()
    others = [name for name in context.target.readable() if name != known]
    names = (known, others[0] if others else context.target.unknown_property())
    for _ in range(4):
        sent = [await session.send("readProperty", name=name) for name in names]
        for _ in sent:
            received = await session.next()
            if received is None:
                context.fail("only one of two requests was answered" if session.received else "no answer")
            _hold_own(context, received, sent)


def _hold_own(context: CaseContext, received: ReceivedMessage, sent: list[Sent]) -> None:
    """Fail if an answer about one of the requests is correlated with the other."""
    for one, other in (sent, sent[::-1]):
        if received.correlation != other.correlation:
            continue
        if received.kind == "propertyReading" and received.name == one.name:
            context.fail(f"the reading of {one.name} has the correlationID of the request for {other.name}")


@CORRELATION.case(
    "correlation.statuses",
    "All statuses of a run have the correlationID of the request",
    section=_SHARED,
    expected="the correlationID of the request in each actionStatus of the run, the first as well as the "
    "last",
    needs="an action that takes a while",
)
async def statuses(context: CaseContext) -> None:
    call = context.roles.slow_call()
    if context.shared.dialect.is_kotlin:
        context.not_offered("to kotlin-wot's clients a run has one status")
    session = await context.session()
    correlation = session.new_id()
    sent = await session.send("invokeAction", name=call.action, correlation=correlation, **call.members())
    try:
        received = await session.answer(sent)
    except NoAnswer as why:
        context.not_offered(f"{why}: actions.pending says more")
    if received.is_final:
        return  # correlation.invoke is about these
    await leave(session, sent)
    _hold(context, received, sent)
