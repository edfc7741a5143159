"""Queries and cancellations of runs.

The specification identifies a run by its action alone. Where there may be several, the kit selects one by the
`correlationID` that the messages of one operation share: the `messageID` of the `invokeAction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension, lmos
from lmos_actors.conformance.session import Chapter, NoAnswer, cancel_run, is_offered
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Run, Sent, Session


_QUERY: Final = lmos("queryAction")
_LASTING: Final = "an action that takes a while"
_GOING: Final = ("pending", "in progress")
_LONGER: Final = "name a longer one as slow, --hints"
_UNKNOWN: Final = "an error or an actionStatus, and a connection that stays"

RUNS: Final[Chapter[CaseContext]] = Chapter(section=lmos("cancelAction"), needs=_LASTING)


async def _begin(context: CaseContext, session: Session) -> Sent:
    """Begin a run that takes a while."""
    call = context.roles.slow_call()
    sent = await session.begin(call)
    if session.dialect.is_kotlin:
        return sent  # such clients get one status, at its end
    try:
        received = await session.answer(sent)
    except NoAnswer:
        return sent  # judged by actions.pending
    if received.is_final:
        context.not_run(f"the run was over at once ({received}): {_LONGER}")
    return sent


async def _ask(
    context: CaseContext, session: Session, kind: str, action: str, correlation: str | None, **members: Any
) -> ReceivedMessage:
    """Query or cancel a run, and wait for the reply.

    A refusal is a failure only if a form of the action offers the operation.
    """
    offered = is_offered(context.target.actions[action].forms, kind.lower())
    try:
        sent = await session.send(kind, name=action, correlation=correlation, **members)
        received = await _reply(session, sent)
    except (NoAnswer, ConnectionGone) as why:
        if offered:
            context.fail(why)
        context.not_offered(f"no form of {action} has the operation {kind.lower()}, and {why}")
    if received.kind == "error" and received.status in ("400", "405", "501") and not offered:
        context.not_offered(
            f"no form of {action} has the operation {kind.lower()}, and the answer was {received}"
        )
    return received


async def _about(context: CaseContext, session: Session, kind: str, run: Sent) -> ReceivedMessage:
    """Query or cancel a run by its id."""
    return await _ask(context, session, kind, run.name or "", run.message_id)


async def _reply(session: Session, sent: Sent) -> ReceivedMessage:
    """Wait for the reply to a query or a cancellation. Raises NoAnswer.

    No specification defines the correlation of the reply: the request's, the run's or `inReplyTo` is
    accepted. The reply to a cancellation is the final status of the run, or another reply if there is none.
    """
    found: ReceivedMessage | None = None
    while (received := await session.next()) is not None:
        if sent.message_id in (received.correlation, received.data.get("inReplyTo")):
            return received
        if received.kind not in ("actionStatus", "error"):
            continue
        if not session.dialect.is_kotlin and (received.is_final or sent.kind == "queryAction"):
            return received
        found = found or received
    if found is None:
        raise NoAnswer(f"no answer to {sent.kind} within {session.patience:g} s")
    return found


@RUNS.case(
    "query.running",
    "A run can be queried while it is going on",
    section=_QUERY,
    expected="an actionStatus pending or in progress",
)
async def query_running(context: CaseContext) -> None:
    session = await context.session()
    run = await _begin(context, session)
    received = await _about(context, session, "queryAction", run)
    if received.kind == "actionStatus" and received.is_final:
        # a run that ended just then sends its end and the reply; else the reply is wrong
        while (later := await session.next()) is not None:
            if later.kind in ("actionStatus", "error"):
                context.not_run(f"the run was over before the query ({received}): {_LONGER}")
        context.fail(
            f"nothing but {received}, the end of the run without an answer to queryAction, or a wrong answer"
        )
    await cancel_run(session, run)
    if received.kind != "actionStatus" or received.status not in _GOING:
        context.fail(received)


@RUNS.case(
    "query.by-name",
    "A query without a correlationID is about the last run of the action",
    section=_QUERY,
    expected="an actionStatus of the run that goes on",
)
async def query_by_name(context: CaseContext) -> None:
    session = await context.session()
    run = await _begin(context, session)
    received = await _ask(context, session, "queryAction", run.name or "", None)
    await cancel_run(session, run)
    if received.kind != "actionStatus":
        context.fail(received)


async def _finished(context: CaseContext, session: Session, op: str) -> tuple[Sent, ReceivedMessage]:
    """Run an action to its end, and return the request and the final answer.

    An action whose forms offer the operation is preferred.
    """
    calls = context.roles.safe_calls()
    offering = (call for call in calls if is_offered(context.target.actions[call.action].forms, op))
    call = next(offering, calls[0])
    sent = await session.begin(call)
    try:
        return sent, await session.final(sent)
    except NoAnswer as why:
        context.not_offered(f"{why} (see actions.completed)")


def _holds_forms(context: CaseContext, run: Sent, op: str, error: ReceivedMessage) -> None:
    """End the case after an error, unless a form of the action offers the operation."""
    if not is_offered(context.target.actions[run.name or ""].forms, op):
        context.not_offered(f"no form of {run.name} has the operation {op}, and the answer was {error}")


@RUNS.case(
    "query.finished",
    "A run can be queried when it is over",
    section=_QUERY,
    expected="an actionStatus completed: the latest status of a previously invoked action",
    needs="an action that may be invoked",
)
async def query_finished(context: CaseContext) -> None:
    session = await context.session()
    sent, over = await _finished(context, session, "queryaction")
    if over.status != "completed":
        context.not_offered(f"{over} (see actions.completed)")
    received = await _about(context, session, "queryAction", sent)
    if received.kind == "error":
        _holds_forms(context, sent, "queryaction", received)
        context.differs("run-forgotten", received)
    elif received.status != "completed":
        context.fail(received)


def _unknown(kind: str) -> Run:
    """Make a case of a request about a run that never existed."""

    async def run(context: CaseContext) -> None:
        action = next(iter(context.target.actions), None)
        if action is None:
            context.not_offered("it describes no action")
        session = await context.session()
        received = await _ask(context, session, kind, action, session.new_id())
        context.expect(received, "actionStatus", "error")
        await context.flush(session)

    return run


RUNS.add(
    "query.unknown",
    "A query about an unknown run is answered",
    _unknown("queryAction"),
    section=_QUERY,
    expected=_UNKNOWN,
    needs="an action",
)


def _cancelled(*, by_name: bool = False, **members: str) -> Run:
    """Make a case in which a run that has not ended is cancelled."""

    async def run(context: CaseContext) -> None:
        session = await context.session()
        run = await _begin(context, session)
        correlation = None if by_name else run.message_id
        received = await _ask(context, session, "cancelAction", run.name or "", correlation, **members)
        if received.kind == "error":
            context.differs("cancel-error", received)

    return run


RUNS.add(
    "cancel.running",
    "A run can be cancelled, or the answer says that it cannot",
    _cancelled(reason="the kit tries it"),
    expected="an actionStatus",
)
RUNS.add(
    "cancel.by-name",
    "A cancel without a correlationID is about the last run of the action",
    _cancelled(by_name=True),
    expected="an actionStatus",
)


@RUNS.case(
    "cancel.stays",
    "A cancelled run stays cancelled",
    expected="no actionStatus completed for the run after the cancel was confirmed, and none in progress",
)
async def cancel_stays(context: CaseContext) -> None:
    session = await context.session()
    run = await _begin(context, session)
    received = await _about(context, session, "cancelAction", run)
    if received.kind != "actionStatus" or received.status not in ("failed", "cancelled"):
        context.not_offered(f"the run was not cancelled: {received}")
    for each in await session.drain():
        if each.kind == "actionStatus" and each.status in ("completed", *_GOING):
            context.fail(f"after the cancel: {each}")


@RUNS.case(
    "cancel.finished",
    "A cancel of a finished run is answered",
    expected="an actionStatus: the action could not be cancelled, as it was already completed",
    needs="an action that may be invoked",
)
async def cancel_finished(context: CaseContext) -> None:
    session = await context.session()
    sent, over = await _finished(context, session, "cancelaction")
    if over.kind == "error":
        context.not_offered(f"{over} (see actions.completed)")
    received = await _about(context, session, "cancelAction", sent)
    if received.kind == "error":
        _holds_forms(context, sent, "cancelaction", received)
        context.differs("cancel-error", received)


RUNS.add(
    "cancel.unknown",
    "A cancel of an unknown run is answered",
    _unknown("cancelAction"),
    expected=_UNKNOWN,
    needs="an action",
)


@RUNS.case(
    "cancel.other-run",
    "A cancel ends its own run, and no other",
    section=extension("Members, Queries and cancels"),
    expected="of two runs of an action, the one without the correlationID of the cancelAction goes on",
    needs=f"{_LASTING}, and lmosx:offers: LMOS does not define which of several runs is meant",
)
async def cancel_other_run(context: CaseContext) -> None:
    if not context.target.offers:
        context.not_offered(
            "it offers none of the extensions, and LMOS does not define which of several runs is meant"
        )
    session = await context.session()
    first = await _begin(context, session)
    second = await _begin(context, session)
    ended = await _about(context, session, "cancelAction", first)
    if ended.kind != "actionStatus":
        context.not_offered(f"the run was not cancelled: {ended}")
    received = await _about(context, session, "queryAction", second)
    await cancel_run(session, second)
    if received.kind == "actionStatus" and received.status not in _GOING:
        context.differs("cancels-other-run", f"the other run is now {received}")
