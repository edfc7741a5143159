"""One-way messages under credit: an extension, and no LMOS text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors.conformance.card import extension
from lmos_actors.conformance.session import Chapter, Talk

from ._extension import needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.conformance.session import Heard, Sent, Visit

CHAPTER = Chapter()

_TELLS: Final = extension("One-way messages")
_OFFERED: Final = "lmosx:offers with tells, and an action that may be invoked"
_WINDOW: Final = 16
"""Messages that may always be sent to one thing before credit has come back."""
_TIMES: Final = 8


def _begun(visit: Visit, heard: Heard) -> set[int]:
    """Return the numbers of messages that a `tellCredit` names."""
    found: set[int] = set()
    pairs: Any = heard.get("begun")
    if not isinstance(pairs, list):
        visit.fail(f"tellCredit without the array begun: {heard}")
    for pair in cast("list[object]", pairs):
        match pair:
            case [int(first), int(last)] if 0 < first <= last <= first + _WINDOW:
                found.update(range(first, last + 1))
            case _:
                visit.fail(f"begun has {pair!r}, which is no pair of numbers of messages")
    return found


async def _credited(visit: Visit, talk: Talk, sent: Sequence[Sent], numbers: set[int]) -> None:
    """Wait until the credit of all numbers has come back; no message may be answered meanwhile."""
    ids = {each.correlation for each in sent}
    while numbers:
        heard = await talk.next()
        if heard is None:
            visit.fail(
                f"the credit of {len(numbers)} messages does not come back, such as of number {min(numbers)}"
            )
        if heard.kind == "tellCredit":
            numbers.difference_update(_begun(visit, heard))
        elif heard.correlation in ids:
            visit.fail(heard)


@CHAPTER.case(
    "extension.tell",
    "A one-way message is not answered, and its credit comes back",
    section=_TELLS,
    expected="no answer to invokeAction with `tell`, and a tellCredit that names its number",
    needs=_OFFERED,
)
async def one_way(visit: Visit) -> None:
    needs(visit, "tells")
    call, talk = visit.roles.safe_call(), await visit.talk()
    sent = await talk.send("invokeAction", name=call.action, tell=1, **call.members())
    talk.forget(sent)
    await _credited(visit, talk, [sent], {1})
    await visit.settle(talk)
    for heard in talk.heard:
        if heard.kind != "tellCredit" and heard.correlation == sent.correlation:
            visit.fail(heard)


@CHAPTER.case(
    "extension.tell-refused",
    "A one-way message that does not begin is answered",
    section=_TELLS,
    expected="an error, in answer to invokeAction with `tell` of an action that is not described",
    needs="lmosx:offers with tells",
)
async def refused(visit: Visit) -> None:
    needs(visit, "tells")
    talk = await visit.talk()
    sent = await talk.send("invokeAction", name=visit.target.unknown_action(), tell=1)
    visit.expect(await talk.answer(sent), "error")


@CHAPTER.case(
    "extension.tell-number",
    "Numbers of one-way messages only grow",
    section=_TELLS,
    expected="an error 400 with the path $.tell, in answer to a `tell` that is not above all before",
    needs=_OFFERED,
)
async def number(visit: Visit) -> None:
    needs(visit, "tells")
    call, talk = visit.roles.safe_call(), await visit.talk()
    first = await talk.send("invokeAction", name=call.action, tell=7, **call.members())
    talk.forget(first)
    sent = await talk.send("invokeAction", name=call.action, tell=7, **call.members())
    heard = visit.expect(await talk.answer(sent), "error")
    if heard.status not in ("400", 400) or heard.data.get("path") != "$.tell":
        visit.fail(heard)


@CHAPTER.case(
    "extension.tell-credit",
    "As many one-way messages as there is credit for are taken",
    section=_TELLS,
    expected="no answer to 16 messages at once, nor to 16 more each time that their credit has come back",
    needs=_OFFERED,
)
async def credit(visit: Visit) -> None:
    needs(visit, "tells")
    call, talk = visit.roles.safe_call(), await visit.talk()
    for first in range(1, _TIMES * _WINDOW, _WINDOW):
        sent: list[Sent] = []
        numbers = set(range(first, first + _WINDOW))
        for number in sorted(numbers):
            sent.append(await talk.send("invokeAction", name=call.action, tell=number, **call.members()))
            talk.forget(sent[-1])
        await _credited(visit, talk, sent, numbers)
