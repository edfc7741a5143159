"""Asking how runs stand, and cancelling them.

The text names a run by its action alone. Where there may be several the kit says which one it means by the
`correlationID` that the messages of one operation share: the `messageID` of the `invokeAction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import extension, lmos
from lmos_actors.conformance.session import Chapter, NoAnswer, is_offered, leave
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Heard, Sent, Talk, Visit

CHAPTER = Chapter()

_QUERY: Final = lmos("queryAction")
_CANCEL: Final = lmos("cancelAction")
_LASTING: Final = "an action that takes a while"
_GOING: Final = ("pending", "in progress")
_LONGER: Final = "name a longer one as slow, --hints"
_UNKNOWN: Final = "an error or an actionStatus, and a connection that stays"


async def _begin(visit: Visit, talk: Talk) -> Sent:
    """Begin a run that takes a while."""
    call = visit.roles.slow_call()
    sent = await talk.send("invokeAction", name=call.action, **call.members())
    if talk.speech.is_kotlin:
        return sent  # to such clients nothing is said of it until it is over
    try:
        heard = await talk.answer(sent)
    except NoAnswer:
        return sent  # that it says nothing at first is another case's
    if heard.is_final:
        visit.not_run(f"the run was over at once ({heard}): {_LONGER}")
    return sent


async def _ask(
    visit: Visit, talk: Talk, kind: str, action: str, correlation: str | None, **members: Any
) -> Heard:
    """Query or cancel, and wait for the reply. That it cannot be done only counts if the forms offer it."""
    offered = is_offered(visit.target.actions[action].forms, kind.lower())
    try:
        sent = await talk.send(kind, name=action, correlation=correlation, **members)
        heard = await _reply(talk, sent)
    except (NoAnswer, ConnectionGone) as why:
        if offered:
            visit.fail(why)
        visit.not_offered(f"no form of {action} has the operation {kind.lower()}, and {why}")
    if heard.kind == "error" and heard.status in ("400", "405", "501") and not offered:
        visit.not_offered(f"no form of {action} has the operation {kind.lower()}, and the answer was {heard}")
    return heard


async def _reply(talk: Talk, sent: Sent) -> Heard:
    """Wait for the reply. No text says how it is correlated: as the request, as the run, or by `inReplyTo`.

    To a cancel, it is the final status of the run, or another if that does not come.
    """
    found: Heard | None = None
    while (heard := await talk.next()) is not None:
        if sent.message_id in (heard.correlation, heard.data.get("inReplyTo")):
            return heard
        if heard.kind not in ("actionStatus", "error"):
            continue
        if not talk.speech.is_kotlin and (heard.is_final or sent.kind == "queryAction"):
            return heard
        found = found or heard
    if found is None:
        raise NoAnswer(f"no answer to {sent.kind} within {talk.patience:g} s")
    return found


@CHAPTER.case(
    "query.running",
    "A run can be asked about while it goes on",
    section=_QUERY,
    expected="an actionStatus pending or in progress",
    needs=_LASTING,
)
async def query_running(visit: Visit) -> None:
    talk = await visit.talk()
    run = await _begin(visit, talk)
    heard = await _ask(visit, talk, "queryAction", run.name or "", run.message_id)
    if heard.kind == "actionStatus" and heard.is_final:
        await _both_ends(visit, talk, heard)
    await leave(talk, run)
    if heard.kind != "actionStatus" or heard.status not in _GOING:
        visit.fail(heard)


async def _both_ends(visit: Visit, talk: Talk, end: Heard) -> None:
    """Tell a run that ended just then, so that its end and the reply say the same, from a wrong reply."""
    while (heard := await talk.next()) is not None:
        if heard.kind in ("actionStatus", "error"):
            visit.not_run(f"the run was over before it was asked about ({end}): {_LONGER}")
    visit.fail(f"nothing but {end}, the end of the run without an answer to queryAction, or a wrong answer")


@CHAPTER.case(
    "query.by-name",
    "A query without a correlationID is about the last run of the action",
    section=_QUERY,
    expected="an actionStatus of the run that goes on",
    needs=_LASTING,
)
async def query_by_name(visit: Visit) -> None:
    talk = await visit.talk()
    run = await _begin(visit, talk)
    heard = await _ask(visit, talk, "queryAction", run.name or "", None)
    await leave(talk, run)
    if heard.kind != "actionStatus":
        visit.fail(heard)


async def _finished(visit: Visit, talk: Talk, op: str) -> tuple[Sent, Heard]:
    """Let a run end, of an action whose forms offer the operation if there is one; return how it ended."""
    calls = visit.roles.safe_calls()
    offering = (call for call in calls if is_offered(visit.target.actions[call.action].forms, op))
    call = next(offering, calls[0])
    sent = await talk.send("invokeAction", name=call.action, **call.members())
    try:
        return sent, await talk.final(sent)
    except NoAnswer as why:
        visit.not_offered(f"{why}: actions.completed says more")


def _holds_forms(visit: Visit, run: Sent, op: str, error: Heard) -> None:
    """Hold an error against nobody whose forms do not say that the operation can be done."""
    if not is_offered(visit.target.actions[run.name or ""].forms, op):
        visit.not_offered(f"no form of {run.name} has the operation {op}, and the answer was {error}")


@CHAPTER.case(
    "query.finished",
    "A run can be asked about when it is over",
    section=_QUERY,
    expected="an actionStatus completed: the latest status of a previously invoked action",
    needs="an action that may be invoked",
)
async def query_finished(visit: Visit) -> None:
    talk = await visit.talk()
    sent, over = await _finished(visit, talk, "queryaction")
    if over.status != "completed":
        visit.not_offered(f"{over}: actions.completed says more")
    heard = await _ask(visit, talk, "queryAction", sent.name or "", sent.message_id)
    if heard.kind == "error":
        _holds_forms(visit, sent, "queryaction", heard)
        visit.differs("run-forgotten", heard)
    elif heard.status != "completed":
        visit.fail(heard)


@CHAPTER.case(
    "query.unknown",
    "A query about no run is answered",
    section=_QUERY,
    expected=_UNKNOWN,
    needs="an action",
)
async def query_unknown(visit: Visit) -> None:
    await _about_none(visit, "queryAction")


async def _about_none(visit: Visit, kind: str) -> None:
    action = next(iter(visit.target.actions), None)
    if action is None:
        visit.not_offered("it describes no action")
    talk = await visit.talk()
    heard = await _ask(visit, talk, kind, action, talk.new_id())
    visit.expect(heard, "actionStatus", "error")
    await visit.settle(talk)


@CHAPTER.case(
    "cancel.running",
    "A run can be cancelled, or the answer says that it cannot",
    section=_CANCEL,
    expected="an actionStatus",
    needs=_LASTING,
)
async def cancel_running(visit: Visit) -> None:
    talk = await visit.talk()
    run = await _begin(visit, talk)
    await _cancel(visit, talk, run.name or "", run.message_id, reason="the kit tries it")


async def _cancel(visit: Visit, talk: Talk, action: str, correlation: str | None, **members: Any) -> Heard:
    heard = await _ask(visit, talk, "cancelAction", action, correlation, **members)
    if heard.kind == "error":
        visit.differs("cancel-error", heard)
    return heard


@CHAPTER.case(
    "cancel.by-name",
    "A cancel without a correlationID is about the last run of the action",
    section=_CANCEL,
    expected="an actionStatus",
    needs=_LASTING,
)
async def cancel_by_name(visit: Visit) -> None:
    talk = await visit.talk()
    run = await _begin(visit, talk)
    await _cancel(visit, talk, run.name or "", None)


@CHAPTER.case(
    "cancel.stays",
    "A run that was cancelled stays so",
    section=_CANCEL,
    expected="no actionStatus completed for the run after the cancel was confirmed, and none in progress",
    needs=_LASTING,
)
async def cancel_stays(visit: Visit) -> None:
    talk = await visit.talk()
    run = await _begin(visit, talk)
    heard = await _ask(visit, talk, "cancelAction", run.name or "", run.message_id)
    if heard.kind != "actionStatus" or heard.status not in ("failed", "cancelled"):
        visit.not_offered(f"the run was not cancelled: {heard}")
    for each in await talk.drain():
        if each.kind == "actionStatus" and each.status in ("completed", *_GOING):
            visit.fail(f"after the cancel: {each}")


@CHAPTER.case(
    "cancel.finished",
    "A cancel of a run that is over is answered",
    section=_CANCEL,
    expected="an actionStatus: the action could not be cancelled, as it was already completed",
    needs="an action that may be invoked",
)
async def cancel_finished(visit: Visit) -> None:
    talk = await visit.talk()
    sent, over = await _finished(visit, talk, "cancelaction")
    if over.kind == "error":
        visit.not_offered(f"{over}: actions.completed says more")
    heard = await _ask(visit, talk, "cancelAction", sent.name or "", sent.message_id)
    if heard.kind == "error":
        _holds_forms(visit, sent, "cancelaction", heard)
        visit.differs("cancel-error", heard)


@CHAPTER.case(
    "cancel.unknown",
    "A cancel of no run is answered",
    section=_CANCEL,
    expected=_UNKNOWN,
    needs="an action",
)
async def cancel_unknown(visit: Visit) -> None:
    await _about_none(visit, "cancelAction")


@CHAPTER.case(
    "cancel.other-run",
    "A cancel ends the run that it is about, and no other",
    section=extension("Members, Queries and cancels"),
    expected="of two runs of an action the one goes on whose correlationID the cancelAction does not have",
    needs=f"{_LASTING}, and lmosx:offers: LMOS does not say which of several runs is meant",
)
async def cancel_other_run(visit: Visit) -> None:
    if not visit.target.offers:
        visit.not_offered(
            "it offers none of the extensions, and LMOS does not say which of several runs is meant"
        )
    talk = await visit.talk()
    first = await _begin(visit, talk)
    second = await _begin(visit, talk)
    ended = await _ask(visit, talk, "cancelAction", first.name or "", first.message_id)
    if ended.kind != "actionStatus":
        visit.not_offered(f"the run was not cancelled: {ended}")
    heard = await _ask(visit, talk, "queryAction", first.name or "", second.message_id)
    await leave(talk, second)
    if heard.kind == "actionStatus" and heard.status not in _GOING:
        visit.differs("cancels-other-run", f"the other run is now {heard}")
