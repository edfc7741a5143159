"""Spellings of members: in the tables of the specification, and in its examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import Level, lmos
from lmos_actors.conformance.session import SILENCE, Chapter, a_reading, one_of_each

if TYPE_CHECKING:
    from lmos_actors.conformance.session import CaseContext, Dialect

SPELLING: Final[Chapter[CaseContext]] = Chapter(
    section=lmos("Common Message Members Table"), needs="a property that can be read"
)


async def understood(context: CaseContext, dialect: Dialect) -> str | None:
    """Read a property in a dialect; return None if that succeeds, else the answer as text.

    Raises NotOffered.
    """
    name = context.roles.readable_property()
    try:
        session = await context.session(dialect)
        received = await session.ask("readProperty", name=name)
    except SILENCE as why:
        return str(why)
    return None if received.kind == "propertyReading" else str(received)


async def _hold(context: CaseContext, dialect: Dialect, key: str, *, refusable: bool = False) -> None:
    """Note the deviation `key` unless a property can be read in a dialect.

    `refusable`: an error is also accepted, since the specification has another spelling, too.
    """
    seen = await understood(context, dialect)
    if seen is None:
        return
    if dialect == context.shared.dialect or await understood(context, context.shared.dialect) is not None:
        context.not_offered("its property cannot be read in any spelling (see properties.read)")
    if refusable and seen.startswith("error "):
        context.not_offered(f"it follows the tables, and refuses the spelling of the examples: {seen}")
    context.differs(key, seen)


@SPELLING.case(
    "spelling.table-ids",
    "Requests are understood with thingID, messageID, correlationID",
    expected="a propertyReading in answer to a readProperty that is spelt as in the tables",
)
async def table_ids(context: CaseContext) -> None:
    await _hold(context, attrs.evolve(context.shared.dialect, ids="ID"), "table-spelling-unread")


@SPELLING.case(
    "spelling.example-ids",
    "Requests are understood with thingId, messageId, correlationId",
    section=lmos("invokeAction, Example Request"),
    expected="a propertyReading in answer to a readProperty that is spelt as most examples are, or an error: "
    "the tables demand the other spelling",
)
async def example_ids(context: CaseContext) -> None:
    dialect = attrs.evolve(context.shared.dialect, ids="Id")
    await _hold(context, dialect, "example-spelling-unread", refusable=True)


@SPELLING.case(
    "spelling.answer-ids",
    "Answers have thingID, messageID, correlationID",
    expected="answers spelt as in the tables, to requests that are spelt so",
    needs="",
)
async def answer_ids(context: CaseContext) -> None:
    if context.shared.dialect.ids == "Id" and context.shared.options.level is not Level.KOTLIN_WOT:
        context.not_offered("it understands no requests spelt as in the tables (see spelling.table-ids)")
    for _, received in await one_of_each(context):
        context.judge(received, "ids-spelled-Id")


@SPELLING.case(
    "spelling.reading-members",
    "A reading has its name in `name` and its value in `value`",
    section=lmos("propertyReading"),
    expected="a propertyReading with the members name and value, in answer to a request with name",
)
async def reading_members(context: CaseContext) -> None:
    _, received = await a_reading(context)
    context.judge(received, "names-spelled-property", "value-spelled-data")
