"""Which answer belongs to which request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.session import Chapter, NoAnswer, leave, restorable_values
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Heard, Sent, Visit

CHAPTER = Chapter()

_SHARED: Final = lmos("Common Message Requirements")
_EXPECTED: Final = "the correlationID of the request in the answer to it"
_READABLE: Final = "a property that can be read"


def _hold(visit: Visit, heard: Heard, sent: Sent) -> None:
    found = heard.correlation
    if found == sent.correlation:
        return
    if found is None:
        visit.differs("correlation-missing", f"{heard.kind} has no correlationID")
    elif found == sent.message_id:
        visit.differs(
            "correlation-by-messageID", f"{heard.kind} has the messageID of the request in its place"
        )
    else:
        visit.fail(f"{heard.kind} has the correlationID {found!r}, and the request has {sent.correlation!r}")


@CHAPTER.case(
    "correlation.read",
    "A reading has the correlationID of the request",
    section=lmos("propertyReading"),
    expected=_EXPECTED,
    needs=_READABLE,
)
async def read(visit: Visit) -> None:
    talk = await visit.talk()
    name = visit.roles.readable_property()
    sent = await talk.send("readProperty", name=name, correlation=talk.new_id())
    _hold(visit, await talk.answer(sent), sent)


@CHAPTER.case(
    "correlation.write",
    "The answer to a write has the correlationID of the request",
    section=_SHARED,
    expected=_EXPECTED,
    needs="a property that can be read and written",
)
async def write(visit: Visit) -> None:
    talk = await visit.talk()
    name, value = next(iter((await restorable_values(visit, talk)).items()))
    sent = await talk.send("writeProperty", name=name, data=value, correlation=talk.new_id())
    _hold(visit, await talk.answer(sent), sent)


@CHAPTER.case(
    "correlation.invoke",
    "The status of a run has the correlationID of the request",
    section=_SHARED,
    expected=_EXPECTED,
    needs="an action that may be invoked",
)
async def invoke(visit: Visit) -> None:
    call = visit.roles.safe_call()
    talk = await visit.talk()
    correlation = talk.new_id()
    sent = await talk.send("invokeAction", name=call.action, correlation=correlation, **call.members())
    _hold(visit, await talk.final(sent), sent)


@CHAPTER.case(
    "correlation.error",
    "An error has the correlationID of the request",
    section=lmos("error, Example Response"),
    expected="the correlationID of the request in the error that answers it",
)
async def error(visit: Visit) -> None:
    talk = await visit.talk()
    sent = await talk.send("readProperty", name=visit.target.unknown_property(), correlation=talk.new_id())
    try:
        heard = await talk.answer(sent)
    except (NoAnswer, ConnectionGone) as why:
        visit.not_offered(f"{why}: errors.unknown-property says more")
    if heard.kind != "error":
        visit.not_offered(f"{heard}: errors.unknown-property says more")
    _hold(visit, heard, sent)


@CHAPTER.case(
    "correlation.by-message-id",
    "Without a correlationID, the answer has the messageID of the request in its place, or none",
    section=lmos("actionStatus, Example Response"),
    expected="the messageID of the request as correlationID, as the examples of invokeAction and "
    "actionStatus have it, or none, since it is optional",
    needs="an action that may be invoked, or a property that can be read",
)
async def by_message_id(visit: Visit) -> None:
    talk = await visit.talk()
    if visit.target.safe_actions():
        call = visit.roles.safe_call()
        sent = await talk.send("invokeAction", name=call.action, correlation=None, **call.members())
    else:
        sent = await talk.send("readProperty", name=visit.roles.readable_property(), correlation=None)
    heard = await talk.final(sent)
    if heard.correlation is None:
        visit.not_offered(f"{heard.kind} has no correlationID, which is optional: requests need to have one")
    elif heard.correlation != sent.message_id:
        visit.fail(
            f"{heard.kind} has the correlationID {heard.correlation!r}, and the request {sent.message_id!r}"
        )


@CHAPTER.case(
    "correlation.two-open",
    "Of two requests at once, each gets its own answer",
    section=_SHARED,
    expected="two answers, each with the correlationID of the request that it answers",
    needs=_READABLE,
)
async def two_open(visit: Visit) -> None:
    """Two requests whose answers can be told apart by what is in them: a reading, and one of another name."""
    talk = await visit.talk()
    known = visit.roles.readable_property()
    others = [name for name in visit.target.readable() if name != known]
    names = (known, others[0] if others else visit.target.unknown_property())
    for _ in range(4):
        sent = [await talk.send("readProperty", name=name) for name in names]
        for _ in sent:
            heard = await talk.next()
            if heard is None:
                visit.fail("only one of two requests was answered" if talk.heard else "no answer")
            _hold_own(visit, heard, sent)


def _hold_own(visit: Visit, heard: Heard, sent: list[Sent]) -> None:
    """Fail if an answer about one of the requests is correlated with the other."""
    for one, other in (sent, sent[::-1]):
        if heard.correlation != other.correlation:
            continue
        if heard.kind == "propertyReading" and heard.name == one.name:
            visit.fail(f"the reading of {one.name} has the correlationID of the request for {other.name}")


@CHAPTER.case(
    "correlation.statuses",
    "All statuses of a run have the correlationID of the request",
    section=_SHARED,
    expected="the correlationID of the request in each actionStatus of the run, the first as well as the "
    "last",
    needs="an action that takes a while",
)
async def statuses(visit: Visit) -> None:
    call = visit.roles.slow_call()
    if visit.ground.speech.is_kotlin:
        visit.not_offered("to kotlin-wot's clients a run has one status")
    talk = await visit.talk()
    correlation = talk.new_id()
    sent = await talk.send("invokeAction", name=call.action, correlation=correlation, **call.members())
    try:
        heard = await talk.answer(sent)
    except NoAnswer as why:
        visit.not_offered(f"{why}: actions.pending says more")
    if heard.is_final:
        return  # correlation.invoke is about these
    await leave(talk, sent)
    _hold(visit, heard, sent)
