"""Invoking actions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import lmos, td
from lmos_actors.conformance.inputs import fits, samples
from lmos_actors.conformance.session import ABSENT, SILENCE, Chapter, NoAnswer, leave, must_be_meant_to_fail
from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.inputs import Sample
    from lmos_actors.conformance.session import Heard, Talk, Visit
    from lmos_actors.conformance.target import Call

CHAPTER = Chapter()

_AFFORDANCE: Final = td("5.3.1.4 ActionAffordance")
_INVOCABLE: Final = "an action that may be invoked"
_WITH_INPUT: Final = "an action with an input that may be invoked"
_MOST: Final = 12
_HARD_TO_TELL: Final = ("400", "422")
_ONE_STATUS: Final = "to kotlin-wot's clients a run has one status"
_AFTER: Final = 0.2
_RANKS: Final = {"pending": 0, "in progress": 1}


@CHAPTER.case(
    "actions.completed",
    "An action can be invoked",
    section=lmos("Request-Reply"),
    expected="an actionStatus completed for each action that may be invoked",
    needs=_INVOCABLE,
)
async def completed(visit: Visit) -> None:
    calls = visit.roles.safe_calls()[:_MOST]
    talk = await visit.talk()
    refused: list[str] = []
    for call in calls:
        heard = await visit.invoke(talk, call)
        if heard.kind == "actionStatus" and heard.status == "completed":
            continue
        told = f"{call.action}: {heard}"
        given = not call.has_input or call.action in visit.ground.hints.inputs
        if given and call.action in visit.target.safe_actions():
            visit.fail(told)
        refused.append(told)  # an input that was invented, or what may not be done at the moment
    if len(refused) == len(calls):
        visit.not_run(f"nothing invented would do: name inputs that will, --hints ({refused[0]})")


@CHAPTER.case(
    "actions.output",
    "The output of an action fits its schema",
    section=_AFFORDANCE,
    expected="an output that matches the data schema of the description, in the actionStatus completed",
    needs="an action with an output that may be invoked",
)
async def output(visit: Visit) -> None:
    visit.roles.safe_call(output=True)
    talk = await visit.talk()
    for call in visit.roles.safe_calls()[:_MOST]:
        schema = visit.target.actions[call.action].output
        if not schema:
            continue
        heard = await _quietly(visit, talk, call)
        if heard is None or heard.kind != "actionStatus" or heard.status != "completed":
            continue
        found = heard.get("output")
        why = "it has no output" if found is ABSENT else fits(schema, found)
        if why is not None:
            visit.fail(f"{call.action}: {why}")


async def _quietly(visit: Visit, talk: Talk, call: Call) -> Heard | None:
    """Invoke an action; None if nothing answers that, which is the subject of other cases."""
    try:
        return await visit.invoke(talk, call)
    except NoAnswer:
        return None


@CHAPTER.case(
    "actions.boundary-input",
    "Inputs that fit are taken, those at the bounds too",
    section=_AFFORDANCE,
    expected="no error 400 or 422 for an input that matches the data schema of the description",
    needs=_WITH_INPUT,
)
async def boundary_input(visit: Visit) -> None:
    talk = await visit.talk()
    for action, sample in _inputs(visit, "boundary", "valid"):
        heard = await _tried(talk, action, sample.value)
        if heard is not None and heard.kind == "error" and heard.status in _HARD_TO_TELL:
            visit.differs("refuses-valid-input", f"{action}: {sample.value!r} ({sample.why}) gave {heard}")


@CHAPTER.case(
    "actions.wrong-input",
    "Inputs that do not fit are refused",
    section=_AFFORDANCE,
    expected="an error, or an actionStatus failed, for an input that does not match the data schema",
    needs=_WITH_INPUT,
)
async def wrong_input(visit: Visit) -> None:
    inputs = _inputs(visit, "invalid")
    if not inputs:
        visit.not_offered("no action that may be invoked has an input that could be wrong")
    talk = await visit.talk()
    for action, sample in inputs:
        heard = await talk.ask("invokeAction", name=action, input=sample.value)
        if not _is_refusal(heard):
            visit.differs("takes-wrong-input", f"{action}: {sample.value!r} ({sample.why}) gave {heard}")


def _inputs(visit: Visit, *kinds: str) -> list[tuple[str, Sample]]:
    """Invent inputs of these kinds, six for each action that may be invoked and takes no time."""
    visit.roles.safe_call(input=True)
    found: list[tuple[str, Sample]] = []
    for call in visit.roles.safe_calls()[:_MOST]:
        affordance = visit.target.actions[call.action]
        if affordance.input is None or affordance.synchronous is False:
            continue
        made = samples(affordance.input, visit.random)
        fitting = sorted(
            (each for each in made if each.kind in kinds), key=lambda each: kinds.index(each.kind)
        )
        found += [(call.action, each) for each in fitting[:6]]
    return found


async def _tried(talk: Talk, action: str, value: Any) -> Heard | None:
    try:
        return await talk.ask("invokeAction", name=action, input=value)
    except NoAnswer:
        return None


def _is_refusal(heard: Heard) -> bool:
    return heard.kind == "error" or heard.status == "failed"


@CHAPTER.case(
    "actions.missing-input",
    "An action that needs an input is not carried out without",
    section=_AFFORDANCE,
    expected="an error, or an actionStatus failed, for an invokeAction without input, where the data "
    "schema allows neither an empty object nor null",
    needs=_WITH_INPUT,
)
async def missing_input(visit: Visit) -> None:
    visit.roles.safe_call(input=True)
    talk = await visit.talk()
    tried = False
    for call in visit.roles.safe_calls()[:_MOST]:
        schema = visit.target.actions[call.action].input
        if not schema or fits(schema, {}) is None or fits(schema, None) is None:
            continue
        tried = True
        heard = await talk.ask("invokeAction", name=call.action)
        if not _is_refusal(heard):
            visit.differs("takes-wrong-input", f"{call.action}: no input gave {heard}")
    if not tried:
        visit.not_offered("no action that may be invoked needs an input")


@CHAPTER.case(
    "actions.failing",
    "An action that fails is answered so",
    section=lmos("Request-Reply"),
    expected="an actionStatus failed, or an error, for a run that fails",
    needs="an action that fails, --hints",
)
async def failing(visit: Visit) -> None:
    call = visit.roles.failing_call()
    heard = await visit.invoke(await visit.talk(), call)
    if _is_refusal(heard):
        return
    must_be_meant_to_fail(visit, call, heard)
    visit.fail(heard)


@CHAPTER.case(
    "actions.pending",
    "A run that takes a while is answered at once",
    section=lmos("Request-Reply"),
    expected="an actionStatus pending or in progress, for an action that is not synchronous",
    needs="an action that takes a while",
)
async def pending(visit: Visit) -> None:
    call = visit.roles.slow_call()
    if visit.ground.speech.is_kotlin:
        visit.not_offered(_ONE_STATUS)
    talk = await visit.talk()
    sent = await talk.send("invokeAction", name=call.action, **call.members())
    try:
        heard = await talk.answer(sent)
    except NoAnswer as why:
        visit.differs("no-pending", why)
        return
    finally:
        await leave(talk, sent)
    visit.expect(heard, "actionStatus")


@CHAPTER.case(
    "actions.status-order",
    "The statuses of a run go forward",
    section=lmos("One Request-Multiple Responses"),
    expected="pending, then in progress, then completed or failed, and none of the first two after that",
    needs=_INVOCABLE,
)
async def status_order(visit: Visit) -> None:
    await _hold_order(visit, visit.roles.safe_call(), long=False)
    if not visit.ground.speech.is_kotlin:
        with suppress(NotOffered, NotRun):
            await _hold_order(visit, visit.roles.slow_call(), long=True)


async def _hold_order(visit: Visit, call: Call, *, long: bool) -> None:
    """Go through a run, which is cancelled after its first statuses if it takes long."""
    talk = await visit.talk()
    sent = await talk.send("invokeAction", name=call.action, **call.members())
    try:
        heard = await talk.answer(sent)
        if long and not heard.is_final:
            await talk.send("cancelAction", name=call.action, correlation=sent.message_id)
    except NoAnswer:
        return
    except ConnectionGone as why:
        visit.not_offered(f"{why}: actions.completed says more")
    await visit.settle(talk)
    found = [heard, *await talk.drain(_AFTER)]
    seen = [each.status for each in found if each.kind == "actionStatus" and "inReplyTo" not in each.data]
    ranks = [_RANKS.get(status or "", 2) for status in seen]
    if ranks != sorted(ranks):
        visit.fail(f"{call.action}: {', '.join(str(status) for status in seen)}")


@CHAPTER.case(
    "actions.concurrent",
    "An action can be invoked while a run of it goes on",
    section=lmos("invokeAction"),
    expected="an answer to each of two invokeAction of the same action, be it pending or an error",
    needs="an action that takes a while and is answered at once",
)
async def concurrent(visit: Visit) -> None:
    call = visit.roles.slow_call()
    if visit.ground.speech.is_kotlin:
        visit.not_offered(_ONE_STATUS)
    talk = await visit.talk()
    try:
        sent = await talk.send("invokeAction", name=call.action, **call.members())
        await talk.answer(sent)
    except SILENCE as why:
        visit.not_offered(f"{why}: actions.pending says more")
    second = await talk.send("invokeAction", name=call.action, **call.members())
    while (heard := await talk.next()) is not None:
        if heard.kind in ("actionStatus", "error") and heard.correlation != sent.correlation:
            await leave(talk, sent)
            await leave(talk, second)
            return
    visit.differs("no-pending", "the second was not answered while the first went on")
