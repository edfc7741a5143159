"""Errors for requests about what does not exist, and one answer for each request."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.session import Chapter, NoAnswer, an_error, values_of
from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent, Session

ERRORS = Chapter()

_ERROR: Final = lmos("error")
_ANSWERS: Final = ("propertyReading", "propertyReadings", "actionStatus", "error", "acknowledgement")


@ERRORS.case(
    "errors.unknown-thing",
    "A request to a thing that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a readProperty with another thingID",
)
async def unknown_thing(context: CaseContext) -> None:
    session = await context.session()
    name = next(iter(context.target.readable()), None) or context.target.unknown_property()
    context.expect(
        await session.ask("readProperty", name=name, thing=context.target.unknown_thing()), "error"
    )


@ERRORS.case(
    "errors.unknown-property",
    "Reading a property that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a readProperty with a name that is not in the description",
)
async def unknown_property(context: CaseContext) -> None:
    session = await context.session()
    context.expect(await session.ask("readProperty", name=context.target.unknown_property()), "error")


@ERRORS.case(
    "errors.unknown-write",
    "Writing a property that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a writeProperty with a name that is not in the description",
)
async def unknown_write(context: CaseContext) -> None:
    session = await context.session()
    context.expect(
        await session.ask("writeProperty", name=context.target.unknown_property(), data=1), "error"
    )


@ERRORS.case(
    "errors.unknown-action",
    "Invoking an action that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to an invokeAction with an action that is not in the description",
)
async def unknown_action(context: CaseContext) -> None:
    session = await context.session()
    context.expect(await session.ask("invokeAction", name=context.target.unknown_action()), "error")


@ERRORS.case(
    "errors.unknown-event",
    "Subscribing to an event that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a subscribeEvent with an event that is not in the description: silence "
    "would be taken for a success",
)
async def unknown_event(context: CaseContext) -> None:
    session = await context.session()
    sent = await session.send("subscribeEvent", name=context.target.unknown_event())
    context.expect(await session.answer(sent), "error")


@ERRORS.case(
    "errors.blame",
    "An error about what is not there has a status from 400 to 499",
    section=_ERROR,
    expected="a status such as 404: those from 500 to 599 say that the server is at fault, and to try again",
)
async def blame(context: CaseContext) -> None:
    sent, received = await an_error(context)
    if received.status is not None and received.status.startswith("5"):
        context.differs("error-blames-server", f"{sent.kind} of {sent.name!r}: {received}")


@ERRORS.case(
    "errors.stays",
    "The connection stays after errors",
    section=_ERROR,
    expected="an answer to a readProperty after several requests that were answered by errors",
)
async def stays(context: CaseContext) -> None:
    session = await context.session()
    for _ in range(3):
        for kind, name in (
            ("readProperty", context.target.unknown_property()),
            ("invokeAction", context.target.unknown_action()),
        ):
            with suppress(NoAnswer):
                await session.ask(kind, name=name)
    name = next(iter(context.target.readable()), None) or context.target.unknown_property()
    await session.ask("readProperty", name=name)


@ERRORS.case(
    "answers.once",
    "A request has one final answer",
    section=lmos("Request-Reply"),
    expected="one answer to a read, a write, a run and a request in error, and nothing that nobody asked for",
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
            context.fail(f"an answer too many: {received}")


async def _ask_everything(context: CaseContext, session: Session) -> list[tuple[Sent, ReceivedMessage]]:
    """Ask something of every kind; return what was answered."""
    found: list[tuple[Sent, ReceivedMessage]] = []
    known = next(iter(context.target.readable()), None) or context.target.unknown_property()
    for kind, name, thing in (
        ("readProperty", known, None),
        ("readProperty", context.target.unknown_property(), None),
        ("readProperty", known, context.target.unknown_thing()),
        ("invokeAction", context.target.unknown_action(), None),
    ):
        found += await _answered(session, await session.send(kind, name=name, thing=thing))
    for name, value in (await values_of(context, session, context.target.restorable())).items():
        found += await _answered(session, await session.send("writeProperty", name=name, data=value))
    with suppress(NotOffered, NotRun):
        call = context.roles.safe_call()
        found += await _answered(
            session, await session.send("invokeAction", name=call.action, **call.members())
        )
    return found


async def _answered(session: Session, sent: Sent) -> list[tuple[Sent, ReceivedMessage]]:
    try:
        return [(sent, await session.final(sent))]
    except (NoAnswer, ConnectionGone):
        return []
