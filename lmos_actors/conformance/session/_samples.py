"""What cases look at again and again: a message of each kind, got in the easiest way, and values."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from ._messages import ABSENT
from ._session import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmos_actors.conformance.target import Call
    from lmos_actors.protocol.td import Form

    from ._case import Visit
    from ._messages import Heard
    from ._session import Sent, Talk

SILENCE: Final = (NoAnswer, ConnectionGone, Refused)
"""What a server does that gives no answer."""

_MOST: Final = 20
_SOCKETS: Final = ("ws:", "wss:")


async def a_reading(visit: Visit) -> tuple[Sent, Heard]:
    """Get a `propertyReading` in answer to a `readProperty`. Raises NotOffered where none can be got."""
    visit.roles.readable_property()
    talk = await visit.talk()
    for name in visit.target.readable()[:_MOST]:
        try:
            sent = await talk.send("readProperty", name=name)
            heard = await talk.answer(sent)
        except ConnectionGone:
            break
        except NoAnswer:
            continue
        if heard.kind == "propertyReading":
            return sent, heard
    raise NotOffered("no property was answered by a propertyReading: properties.read says more")


async def a_status(visit: Visit) -> tuple[Sent, Heard]:
    """Get the final `actionStatus` of a quick run. Raises NotOffered where none can be got, and NotRun."""
    for call in visit.roles.safe_calls()[:_MOST]:
        try:
            talk = await visit.talk()
            sent = await talk.send("invokeAction", name=call.action, **call.members())
            heard = await talk.final(sent)
        except SILENCE:
            continue
        if heard.kind == "actionStatus":
            return sent, heard
    raise NotOffered("no action was answered by an actionStatus: actions.completed says more")


async def an_error(visit: Visit) -> tuple[Sent, Heard]:
    """Get an `error`, by asking for what is not there. Raises NotOffered where none can be got."""
    requests: tuple[tuple[str, str, str | None], ...] = (
        ("readProperty", visit.target.unknown_property(), None),
        ("invokeAction", visit.target.unknown_action(), None),
        ("readProperty", visit.target.unknown_property(), visit.target.unknown_thing()),
    )
    for kind, name, thing in requests:
        try:
            talk = await visit.talk()
            sent = await talk.send(kind, name=name, thing=thing)
            heard = await talk.final(sent)
        except SILENCE:
            continue
        if heard.kind == "error":
            return sent, heard
    raise NotOffered("nothing was answered by an error: errors.* say more")


async def one_of_each(visit: Visit) -> list[tuple[Sent, Heard]]:
    """Get a reading, a status and an error, as far as they can be got. Raises NotOffered if none can."""
    found: list[tuple[Sent, Heard]] = []
    why: NotOffered | NotRun | None = None
    for get in (a_reading, an_error, a_status):
        try:
            found.append(await get(visit))
        except (NotOffered, NotRun) as error:
            why = error
    if not found and why is not None:
        raise why
    return found


async def values_of(visit: Visit, talk: Talk, names: Iterable[str]) -> dict[str, Any]:
    """Read properties; return the values of those that a reading came for. Raises ConnectionGone."""
    found: dict[str, Any] = {}
    for name in list(names)[:_MOST]:
        try:
            heard = await talk.ask("readProperty", name=name)
        except NoAnswer:
            continue
        if heard.kind == "propertyReading" and heard.value is not ABSENT:
            found[name] = heard.value
    return found


async def restorable_values(visit: Visit, talk: Talk) -> dict[str, Any]:
    """Read what can be read and written. Raises NotOffered if there is nothing, and ConnectionGone."""
    visit.roles.writable_property()
    found = await values_of(visit, talk, visit.target.restorable())
    if not found:
        raise NotOffered("no property that can be written could be read: properties.read says more")
    return found


async def put_back(visit: Visit, talk: Talk, name: str, value: Any) -> None:
    """Write to a property what it was, over a new connection if need be. No interrupt prevents that."""
    with trio.move_on_after(3 * visit.ground.patience, shield=True), suppress(*SILENCE, Unreachable):
        try:
            await talk.ask("writeProperty", name=name, data=value)
        except SILENCE:
            again = await visit.talk(talk.speech, thing=talk.thing)
            await again.ask("writeProperty", name=name, data=value)


def is_offered(forms: Iterable[Form] | None, op: str) -> bool:
    """Whether a form for LMOS names an operation, such as `queryaction`."""
    return any(
        op in form.ops and (form.subprotocol == "lmosprotocol" or form.href.lower().startswith(_SOCKETS))
        for form in forms or ()
    )


def must_be_meant_to_fail(visit: Visit, call: Call, heard: Heard) -> None:
    """End the case where a run was only taken for one that fails, by its name, and has succeeded."""
    if heard.status == "completed" and visit.ground.hints.fails is None:
        visit.not_run(f"{call.action} does not fail: name one that does as fails, --hints ({heard})")


async def leave(talk: Talk, run: Sent) -> None:
    """Let a run that goes on be cancelled, if the server can: the kit is done with it."""
    if not talk.speech.is_kotlin:
        with suppress(ConnectionGone):
            await talk.send("cancelAction", name=run.name, correlation=run.message_id)
