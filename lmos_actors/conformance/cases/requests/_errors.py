"""Cases of errors for requests about unknown names, and of the rule that each request has one answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.session import Chapter, NoAnswer, an_error, values_of
from lmos_actors.conformance.target import NotOffered, NotRun, Target
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Run, Sent, Session

ERRORS: Final[Chapter[CaseContext]] = Chapter(section=lmos("error"))

_ANSWERS: Final = ("propertyReading", "propertyReadings", "actionStatus", "error", "acknowledgement")
_UNDESCRIBED: Final = "that is not in the description"


def _answered_by_error(
    kind: str,
    name: Callable[[Target], str],
    *,
    thing: Callable[[Target], str] | None = None,
    **members: Any,
) -> Run:
    """Make a case of one request that must be answered by an error."""

    async def run(context: CaseContext) -> None:
        session, target = await context.session(), context.target
        whose = thing and thing(target)
        context.expect(await session.ask(kind, name=name(target), thing=whose, **members), "error")

    return run


ERRORS.add(
    "errors.unknown-thing",
    "A request to an unknown thing is answered by an error",
    _answered_by_error("readProperty", Target.any_property, thing=Target.unknown_thing),
    expected="an error in answer to a readProperty with another thingID",
)
ERRORS.add(
    "errors.unknown-property",
    "Reading an unknown property is answered by an error",
    _answered_by_error("readProperty", Target.unknown_property),
    expected=f"an error in answer to a readProperty with a name {_UNDESCRIBED}",
)
ERRORS.add(
    "errors.unknown-write",
    "Writing an unknown property is answered by an error",
    _answered_by_error("writeProperty", Target.unknown_property, data=1),
    expected=f"an error in answer to a writeProperty with a name {_UNDESCRIBED}",
)
ERRORS.add(
    "errors.unknown-action",
    "Invoking an unknown action is answered by an error",
    _answered_by_error("invokeAction", Target.unknown_action),
    expected=f"an error in answer to an invokeAction with an action {_UNDESCRIBED}",
)
ERRORS.add(
    "errors.unknown-event",
    "Subscribing to an unknown event is answered by an error",
    _answered_by_error("subscribeEvent", Target.unknown_event),
    expected=f"an error in answer to a subscribeEvent with an event {_UNDESCRIBED}: silence would be taken "
    "for a success",
)


@ERRORS.case(
    "errors.blame",
    "An error about an unknown name has a status from 400 to 499",
    expected="a status such as 404: those from 500 to 599 blame the server, and invite a retry",
)
async def blame(context: CaseContext) -> None:
    sent, received = await an_error(context)
    if received.status is not None and received.status.startswith("5"):
        context.differs("error-blames-server", f"{sent.kind} of {sent.name!r}: {received}")


@ERRORS.case(
    "errors.stays",
    "The connection stays open after errors",
    expected="an answer to a readProperty after several requests that were answered by errors",
)
async def stays(context: CaseContext) -> None:
    session, target = await context.session(), context.target
    for _ in range(3):
        for kind, name in (
            ("readProperty", target.unknown_property()),
            ("invokeAction", target.unknown_action()),
        ):
            with suppress(NoAnswer):
                await session.ask(kind, name=name)
    await session.ask("readProperty", name=target.any_property())


@ERRORS.case(
    "answers.once",
    "A request has one final answer",
    section=lmos("Request-Reply"),
    expected="one answer to a read, a write, a run and a request in error, and no unsolicited message",
)
async def once(context: CaseContext) -> None:
    session = await context.session()
    answered = await _ask_everything(context, session)
    ids = {sent.message_id: sent for sent, _ in answered}
    for received in await session.drain():
        if received.kind not in _ANSWERS or not received.is_final:
            continue
        sent = ids.get(str(received.correlation))
        if sent is not None:
            context.fail(f"a second answer to {sent.kind}: {received}")
        if received.correlation is None and received.kind in [first.kind for _, first in answered]:
            context.fail(f"an extra answer: {received}")


async def _ask_everything(context: CaseContext, session: Session) -> list[tuple[Sent, ReceivedMessage]]:
    """Send requests of several kinds, one by one; return those that were answered, with their answers."""
    found: list[tuple[Sent, ReceivedMessage]] = []
    target = context.target
    known, unknown = target.any_property(), target.unknown_property()
    for kind, name, thing in (
        ("readProperty", known, None),
        ("readProperty", unknown, None),
        ("readProperty", known, target.unknown_thing()),
        ("invokeAction", target.unknown_action(), None),
    ):
        found += await _answered(session, await session.send(kind, name=name, thing=thing))
    for name, value in (await values_of(context, session, target.restorable())).items():
        found += await _answered(session, await session.send("writeProperty", name=name, data=value))
    with suppress(NotOffered, NotRun):
        call = context.roles.safe_call()
        sent = await session.begin(call)
        found += await _answered(session, sent)
    return found


async def _answered(session: Session, sent: Sent) -> list[tuple[Sent, ReceivedMessage]]:
    try:
        return [(sent, await session.final(sent))]
    except (NoAnswer, ConnectionGone):
        return []
