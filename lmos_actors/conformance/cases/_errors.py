"""What is answered to requests for what is not there, and that each request has one answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import lmos
from lmos_actors.conformance.session import Chapter, NoAnswer, an_error, values_of
from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Heard, Sent, Talk, Visit

CHAPTER = Chapter()

_ERROR: Final = lmos("error")
_ANSWERS: Final = ("propertyReading", "propertyReadings", "actionStatus", "error", "acknowledgement")


@CHAPTER.case(
    "errors.unknown-thing",
    "A request to a thing that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a readProperty with another thingID",
)
async def unknown_thing(visit: Visit) -> None:
    talk = await visit.talk()
    name = next(iter(visit.target.readable()), None) or visit.target.unknown_property()
    visit.expect(await talk.ask("readProperty", name=name, thing=visit.target.unknown_thing()), "error")


@CHAPTER.case(
    "errors.unknown-property",
    "Reading a property that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a readProperty with a name that is not in the description",
)
async def unknown_property(visit: Visit) -> None:
    talk = await visit.talk()
    visit.expect(await talk.ask("readProperty", name=visit.target.unknown_property()), "error")


@CHAPTER.case(
    "errors.unknown-write",
    "Writing a property that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a writeProperty with a name that is not in the description",
)
async def unknown_write(visit: Visit) -> None:
    talk = await visit.talk()
    visit.expect(await talk.ask("writeProperty", name=visit.target.unknown_property(), data=1), "error")


@CHAPTER.case(
    "errors.unknown-action",
    "Invoking an action that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to an invokeAction with an action that is not in the description",
)
async def unknown_action(visit: Visit) -> None:
    talk = await visit.talk()
    visit.expect(await talk.ask("invokeAction", name=visit.target.unknown_action()), "error")


@CHAPTER.case(
    "errors.unknown-event",
    "Subscribing to an event that is not there is answered by an error",
    section=_ERROR,
    expected="an error in answer to a subscribeEvent with an event that is not in the description: silence "
    "would be taken for a success",
)
async def unknown_event(visit: Visit) -> None:
    talk = await visit.talk()
    sent = await talk.send("subscribeEvent", name=visit.target.unknown_event())
    visit.expect(await talk.answer(sent), "error")


@CHAPTER.case(
    "errors.blame",
    "An error about what is not there has a status from 400 to 499",
    section=_ERROR,
    expected="a status such as 404: those from 500 to 599 say that the server is at fault, and to try again",
)
async def blame(visit: Visit) -> None:
    sent, heard = await an_error(visit)
    if heard.status is not None and heard.status.startswith("5"):
        visit.differs("error-blames-server", f"{sent.kind} of {sent.name!r}: {heard}")


@CHAPTER.case(
    "errors.stays",
    "The connection stays after errors",
    section=_ERROR,
    expected="an answer to a readProperty after several requests that were answered by errors",
)
async def stays(visit: Visit) -> None:
    talk = await visit.talk()
    for _ in range(3):
        for kind, name in (
            ("readProperty", visit.target.unknown_property()),
            ("invokeAction", visit.target.unknown_action()),
        ):
            with suppress(NoAnswer):
                await talk.ask(kind, name=name)
    name = next(iter(visit.target.readable()), None) or visit.target.unknown_property()
    await talk.ask("readProperty", name=name)


@CHAPTER.case(
    "answers.once",
    "A request has one final answer",
    section=lmos("Request-Reply"),
    expected="one answer to a read, a write, a run and a request in error, and nothing that nobody asked for",
)
async def once(visit: Visit) -> None:
    talk = await visit.talk()
    answered = await _ask_everything(visit, talk)
    ids = {sent.message_id: sent for sent, _ in answered}
    for heard in await talk.drain():
        if heard.kind not in _ANSWERS or not heard.is_final:
            continue
        sent = ids.get(str(heard.correlation))
        if sent is not None:
            visit.fail(f"a second answer to {sent.kind}: {heard}")
        if heard.correlation is None and heard.kind in [first.kind for _, first in answered]:
            visit.fail(f"an answer too many: {heard}")


async def _ask_everything(visit: Visit, talk: Talk) -> list[tuple[Sent, Heard]]:
    """Ask something of every kind; return what was answered."""
    found: list[tuple[Sent, Heard]] = []
    known = next(iter(visit.target.readable()), None) or visit.target.unknown_property()
    for kind, name, thing in (
        ("readProperty", known, None),
        ("readProperty", visit.target.unknown_property(), None),
        ("readProperty", known, visit.target.unknown_thing()),
        ("invokeAction", visit.target.unknown_action(), None),
    ):
        found += await _answered(talk, await talk.send(kind, name=name, thing=thing))
    for name, value in (await values_of(visit, talk, visit.target.restorable())).items():
        found += await _answered(talk, await talk.send("writeProperty", name=name, data=value))
    with suppress(NotOffered, NotRun):
        call = visit.roles.safe_call()
        found += await _answered(talk, await talk.send("invokeAction", name=call.action, **call.members()))
    return found


async def _answered(talk: Talk, sent: Sent) -> list[tuple[Sent, Heard]]:
    try:
        return [(sent, await talk.final(sent))]
    except (NoAnswer, ConnectionGone):
        return []
