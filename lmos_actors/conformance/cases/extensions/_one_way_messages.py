"""One-way messages under credit: an extension of lmos_actors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.session import Chapter, Session

from ._members import needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.conformance.session import CaseContext, ReceivedMessage, Sent

ONE_WAY_MESSAGES: Final[Chapter[CaseContext]] = Chapter(
    section=extension("One-way messages"), needs="lmosx:offers with tells, and an action that may be invoked"
)

_WINDOW: Final = 2
"""Messages that may be sent to one thing before credit has come back."""
_TIMES: Final = 16


def _begun(context: CaseContext, received: ReceivedMessage) -> set[int]:
    """Return the message numbers that a `tellCredit` names."""
    found: set[int] = set()
    pairs: Any = received.get("begun")
    if not isinstance(pairs, list):
        context.fail(f"tellCredit without the array begun: {received}")
    for pair in cast("list[object]", pairs):
        match pair:
            case [int(first), int(last)] if 0 < first <= last <= first + _WINDOW:
                found.update(range(first, last + 1))
            case _:
                context.fail(f"begun has {pair!r}, which is no pair of numbers of messages")
    return found


async def _credited(context: CaseContext, session: Session, sent: Sequence[Sent], numbers: set[int]) -> None:
    """Wait until the credit of all numbers is returned; fail if a message is answered meanwhile."""
    ids = {each.correlation for each in sent}
    while numbers:
        received = await session.next()
        if received is None:
            context.fail(
                f"the credit of {len(numbers)} messages does not come back, such as of number {min(numbers)}"
            )
        if received.kind == "tellCredit":
            numbers.difference_update(_begun(context, received))
        elif received.correlation in ids:
            context.fail(received)


@ONE_WAY_MESSAGES.case(
    "extension.tell",
    "A one-way message is not answered, and its credit comes back",
    expected="no answer to invokeAction with `tell`, and a tellCredit that names its number",
)
async def one_way(context: CaseContext) -> None:
    needs(context, "tells")
    call, session = context.roles.safe_call(), await context.session()
    sent = await session.begin(call, tell=1)
    session.forget(sent)
    await _credited(context, session, [sent], {1})
    await context.flush(session)
    for received in session.received:
        if received.kind != "tellCredit" and received.correlation == sent.correlation:
            context.fail(received)


@ONE_WAY_MESSAGES.case(
    "extension.tell-refused",
    "A one-way message that does not begin is answered",
    expected="an error, in answer to invokeAction with `tell` of an action that is not described",
    needs="lmosx:offers with tells",
)
async def refused(context: CaseContext) -> None:
    needs(context, "tells")
    session = await context.session()
    sent = await session.send("invokeAction", name=context.target.unknown_action(), tell=1)
    context.expect(await session.answer(sent), "error")


@ONE_WAY_MESSAGES.case(
    "extension.tell-number",
    "Numbers of one-way messages must grow",
    expected="an error 400 with the path $.tell, in answer to a `tell` that is not above all before",
)
async def number(context: CaseContext) -> None:
    needs(context, "tells")
    call, session = context.roles.safe_call(), await context.session()
    first = await session.begin(call, tell=7)
    session.forget(first)
    sent = await session.begin(call, tell=7)
    received = context.expect(await session.answer(sent), "error")
    if received.status not in ("400", 400) or received.data.get("path") != "$.tell":
        context.fail(received)


@ONE_WAY_MESSAGES.case(
    "extension.tell-credit",
    "One-way messages are accepted as far as the credit goes",
    expected="no answer to 2 messages at once, nor to 2 more each time that their credit has come back",
)
async def credit(context: CaseContext) -> None:
    needs(context, "tells")
    call, session = context.roles.safe_call(), await context.session()
    for first in range(1, _TIMES * _WINDOW, _WINDOW):
        sent: list[Sent] = []
        numbers = set(range(first, first + _WINDOW))
        for number in sorted(numbers):
            sent.append(await session.begin(call, tell=number))
            session.forget(sent[-1])
        await _credited(context, session, sent, numbers)
