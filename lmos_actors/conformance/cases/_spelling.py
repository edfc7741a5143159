"""How members are spelt: the text has two spellings, its tables' and its examples'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import Level, lmos
from lmos_actors.conformance.session import SILENCE, Chapter, a_reading, one_of_each

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Speech, Visit

CHAPTER = Chapter()

_READABLE: Final = "a property that can be read"


async def understood(visit: Visit, speech: Speech) -> str | None:
    """Read a property in a speech; return None if a reading came, else what came. Raises NotOffered."""
    name = visit.roles.readable_property()
    try:
        talk = await visit.talk(speech)
        heard = await talk.ask("readProperty", name=name)
    except SILENCE as why:
        return str(why)
    return None if heard.kind == "propertyReading" else str(heard)


async def _hold(visit: Visit, speech: Speech, key: str, *, refusable: bool = False) -> None:
    """`refusable`: the text has another spelling too, so that an error is as right an answer."""
    seen = await understood(visit, speech)
    if seen is None:
        return
    if speech == visit.ground.speech or await understood(visit, visit.ground.speech) is not None:
        visit.not_offered("its property cannot be read in any spelling: properties.read says more")
    if refusable and seen.startswith("error "):
        visit.not_offered(f"it goes by the tables, and refuses what is spelt as the examples: {seen}")
    visit.differs(key, seen)


@CHAPTER.case(
    "spelling.table-ids",
    "Requests are understood with thingID, messageID, correlationID",
    section=lmos("Common Message Members Table"),
    expected="a propertyReading in answer to a readProperty that is spelt as in the tables",
    needs=_READABLE,
)
async def table_ids(visit: Visit) -> None:
    await _hold(visit, attrs.evolve(visit.ground.speech, ids="ID"), "table-spelling-unread")


@CHAPTER.case(
    "spelling.example-ids",
    "Requests are understood with thingId, messageId, correlationId",
    section=lmos("invokeAction, Example Request"),
    expected="a propertyReading in answer to a readProperty that is spelt as most examples are, or an error: "
    "the tables demand the other spelling",
    needs=_READABLE,
)
async def example_ids(visit: Visit) -> None:
    speech = attrs.evolve(visit.ground.speech, ids="Id")
    await _hold(visit, speech, "example-spelling-unread", refusable=True)


@CHAPTER.case(
    "spelling.answer-ids",
    "Answers have thingID, messageID, correlationID",
    section=lmos("Common Message Members Table"),
    expected="answers spelt as in the tables, to requests that are spelt so",
)
async def answer_ids(visit: Visit) -> None:
    if visit.ground.speech.ids == "Id" and visit.ground.level is not Level.KOTLIN_WOT:
        visit.not_offered("it understands no requests spelt as in the tables: spelling.table-ids says more")
    for _, heard in await one_of_each(visit):
        visit.judge(heard, "ids-spelled-Id")


@CHAPTER.case(
    "spelling.reading-members",
    "A reading has its name in `name` and its value in `value`",
    section=lmos("propertyReading"),
    expected="a propertyReading with the members name and value, in answer to a request with name",
    needs=_READABLE,
)
async def reading_members(visit: Visit) -> None:
    _, heard = await a_reading(visit)
    visit.judge(heard, "names-spelled-property", "value-spelled-data")
