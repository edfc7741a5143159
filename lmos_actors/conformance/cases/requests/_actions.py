"""Invocations of actions: outputs, inputs, statuses."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import lmos, td
from lmos_actors.conformance.inputs import fits, samples
from lmos_actors.conformance.session import (
    ABSENT,
    SILENCE,
    Chapter,
    NoAnswer,
    cancel_run,
    must_be_meant_to_fail,
    pending_call,
)
from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.inputs import Sample
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Session
    from lmos_actors.conformance.target import Call

ACTIONS: Final[Chapter[CaseContext]] = Chapter()

_AFFORDANCE: Final = td("5.3.1.4 ActionAffordance")
_INVOCABLE: Final = "an action that may be invoked"
_WITH_INPUT: Final = "an action with an input that may be invoked"
_MOST: Final = 12
_HARD_TO_TELL: Final = ("400", "422")
_RANKS: Final = {"pending": 0, "in progress": 1}


@ACTIONS.case(
    "actions.completed",
    "An action can be invoked",
    section=lmos("Request-Reply"),
    expected="an actionStatus completed for each action that may be invoked",
    needs=_INVOCABLE,
)
async def completed(context: CaseContext) -> None:
    calls = context.roles.safe_calls()[:_MOST]
    session = await context.session()
    refused: list[str] = []
    for call in calls:
        received = await context.invoke(session, call)
        if received.kind == "actionStatus" and received.status == "completed":
            continue
        message = f"{call.action}: {received}"
        given = not call.has_input or call.action in context.shared.hints.inputs
        if given and call.action in context.target.safe_actions():
            context.fail(message)
        refused.append(message)  # it may refuse an invented input, or what is not possible at the moment
    if len(refused) == len(calls):
        context.not_run(f"nothing invented would do: name inputs that will, --hints ({refused[0]})")


@ACTIONS.case(
    "actions.output",
    "The output of an action matches its schema",
    section=_AFFORDANCE,
    expected="an output that matches the data schema of the description, in the actionStatus completed",
    needs="an action with an output that may be invoked",
)
async def output(context: CaseContext) -> None:
    context.roles.safe_call(output=True)
    session = await context.session()
    for call in context.roles.safe_calls()[:_MOST]:
        schema = context.target.actions[call.action].output
        if not schema:
            continue
        received = await _quietly(context, session, call)
        if received is None or received.kind != "actionStatus" or received.status != "completed":
            continue
        found = received.get("output")
        why = "it has no output" if found is ABSENT else fits(schema, found)
        if why is not None:
            context.fail(f"{call.action}: {why}")


async def _quietly(context: CaseContext, session: Session, call: Call) -> ReceivedMessage | None:
    """Return the final answer of an action, or None if there is none, as other cases judge that."""
    try:
        return await context.invoke(session, call)
    except NoAnswer:
        return None


@ACTIONS.case(
    "actions.boundary-input",
    "Inputs that match the schema are accepted, those at the bounds too",
    section=_AFFORDANCE,
    expected="no error 400 or 422 for an input that matches the data schema of the description",
    needs=_WITH_INPUT,
)
async def boundary_input(context: CaseContext) -> None:
    session = await context.session()
    for action, sample in _inputs(context, "boundary", "valid"):
        received = await _tried(session, action, sample.value)
        if received is not None and received.kind == "error" and received.status in _HARD_TO_TELL:
            context.differs(
                "refuses-valid-input", f"{action}: {sample.value!r} ({sample.why}) gave {received}"
            )


@ACTIONS.case(
    "actions.wrong-input",
    "Inputs that do not match the schema are refused",
    section=_AFFORDANCE,
    expected="an error, or an actionStatus failed, for an input that does not match the data schema",
    needs=_WITH_INPUT,
)
async def wrong_input(context: CaseContext) -> None:
    inputs = _inputs(context, "invalid")
    if not inputs:
        context.not_offered("no action that may be invoked has an input that could be wrong")
    session = await context.session()
    for action, sample in inputs:
        received = await session.ask("invokeAction", name=action, input=sample.value)
        if not _is_refusal(received):
            context.differs("takes-wrong-input", f"{action}: {sample.value!r} ({sample.why}) gave {received}")


def _inputs(context: CaseContext, *kinds: str) -> list[tuple[str, Sample]]:
    """Return invented inputs of the given kinds, up to six for each action.

    Actions that may not be invoked or that take a while are left out.
    """
    context.roles.safe_call(input=True)
    found: list[tuple[str, Sample]] = []
    for call in context.roles.safe_calls()[:_MOST]:
        affordance = context.target.actions[call.action]
        if affordance.input is None or affordance.synchronous is False:
            continue
        made = samples(affordance.input, context.random)
        fitting = sorted(
            (each for each in made if each.kind in kinds), key=lambda each: kinds.index(each.kind)
        )
        found += [(call.action, each) for each in fitting[:6]]
    return found


async def _tried(session: Session, action: str, value: Any) -> ReceivedMessage | None:
    try:
        return await session.ask("invokeAction", name=action, input=value)
    except NoAnswer:
        return None


def _is_refusal(received: ReceivedMessage) -> bool:
    return received.kind == "error" or received.status == "failed"


@ACTIONS.case(
    "actions.missing-input",
    "An action that needs an input is not carried out without it",
    section=_AFFORDANCE,
    expected="an error, or an actionStatus failed, for an invokeAction without input, where the data "
    "schema allows neither an empty object nor null",
    needs=_WITH_INPUT,
)
async def missing_input(context: CaseContext) -> None:
    context.roles.safe_call(input=True)
    session = await context.session()
    tried = False
    for call in context.roles.safe_calls()[:_MOST]:
        schema = context.target.actions[call.action].input
        if not schema or fits(schema, {}) is None or fits(schema, None) is None:
            continue
        tried = True
        received = await session.ask("invokeAction", name=call.action)
        if not _is_refusal(received):
            context.differs("takes-wrong-input", f"{call.action}: no input gave {received}")
    if not tried:
        context.not_offered("no action that may be invoked needs an input")


@ACTIONS.case(
    "actions.failing",
    "A failing action is reported as failed",
    section=lmos("Request-Reply"),
    expected="an actionStatus failed, or an error, for a run that fails",
    needs="an action that fails, --hints",
)
async def failing(context: CaseContext) -> None:
    call = context.roles.failing_call()
    received = await context.invoke(await context.session(), call)
    if _is_refusal(received):
        return
    must_be_meant_to_fail(context, call, received)
    context.fail(received)


@ACTIONS.case(
    "actions.pending",
    "A run that takes a while has a status at once",
    section=lmos("Request-Reply"),
    expected="an actionStatus pending or in progress, for an action that is not synchronous",
    needs="an action that takes a while",
)
async def pending(context: CaseContext) -> None:
    call = pending_call(context)
    session = await context.session()
    sent = await session.begin(call)
    try:
        received = await session.answer(sent)
    except NoAnswer as why:
        context.differs("no-pending", why)
        return
    finally:
        await cancel_run(session, sent)
    context.expect(received, "actionStatus")


@ACTIONS.case(
    "actions.status-order",
    "The statuses of a run come in their order",
    section=lmos("One Request-Multiple Responses"),
    expected="pending, then in progress, then completed or failed, and none of the first two after that",
    needs=_INVOCABLE,
)
async def status_order(context: CaseContext) -> None:
    await _hold_order(context, context.roles.safe_call(), long=False)
    if not context.shared.dialect.is_kotlin:
        with suppress(NotOffered, NotRun):
            await _hold_order(context, context.roles.slow_call(), long=True)


async def _hold_order(context: CaseContext, call: Call, *, long: bool) -> None:
    """Fail if the statuses of a run come out of order; a `long` run is cancelled after its first status."""
    session = await context.session()
    sent = await session.begin(call)
    try:
        received = await session.answer(sent)
        if long and not received.is_final:
            await session.send("cancelAction", name=call.action, correlation=sent.message_id)
    except NoAnswer:
        return
    except ConnectionGone as why:
        context.not_offered(f"{why} (see actions.completed)")
    await context.flush(session)
    found = [received, *await session.drain(0.2)]
    seen = [each.status for each in found if each.kind == "actionStatus" and "inReplyTo" not in each.data]
    ranks = [_RANKS.get(status or "", 2) for status in seen]
    if ranks != sorted(ranks):
        context.fail(f"{call.action}: {', '.join(str(status) for status in seen)}")


@ACTIONS.case(
    "actions.concurrent",
    "An action can be invoked while a run of it goes on",
    section=lmos("invokeAction"),
    expected="an answer to each of two invokeAction of the same action, be it pending or an error",
    needs="an action that takes a while and is answered at once",
)
async def concurrent(context: CaseContext) -> None:
    call = pending_call(context)
    session = await context.session()
    with context.left_to("actions.pending", SILENCE):
        sent = await session.begin(call)
        await session.answer(sent)
    second = await session.begin(call)
    while (received := await session.next()) is not None:
        if received.kind in ("actionStatus", "error") and received.correlation != sent.correlation:
            await cancel_run(session, sent)
            await cancel_run(session, second)
            return
    context.differs("no-pending", "the second was not answered while the first went on")
