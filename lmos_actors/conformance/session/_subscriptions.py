"""What cases about observations and subscriptions have in common: listening, and making something to hear."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.target import NewValue
from lmos_actors.conformance.wire import ConnectionGone

from ._messages import ABSENT
from ._samples import SILENCE, put_back
from ._session import NoAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.conformance.target import Call

    from ._case import Visit
    from ._messages import Heard
    from ._session import Sent, Talk


async def tell(
    visit: Visit, talk: Talk, kind: str, *, name: str | None = None, **members: Any
) -> tuple[Sent, Heard | None]:
    """Send a request that need not be answered, and be sure that it has been taken in.

    Give it, and what answered it, if anything did: an acknowledgement, a first reading, an error.
    """
    sent = await talk.send(kind, name=name, **members)
    if talk.speech.is_kotlin:
        with suppress(NoAnswer):
            return sent, await talk.answer(sent)
    else:
        await visit.settle(talk, but=name)
    heard: Heard | None = None
    with suppress(NoAnswer):
        heard = await talk.answer(sent, within=0)
    talk.forget(sent)
    return sent, heard


async def subscribed(visit: Visit, event: str, *, thing: str | None = None, **members: Any) -> Talk:
    """Open a connection that has subscribed to an event. Raises NotOffered where that is refused."""
    talk = await visit.talk(thing=thing)
    await listen(visit, talk, "subscribeEvent", event, **members)
    return talk


async def observing(visit: Visit, name: str, *, thing: str | None = None, **members: Any) -> Talk:
    """Open a connection that observes a property; its first reading is past. Raises NotOffered likewise."""
    talk = await visit.talk(thing=thing)
    await listen(visit, talk, "observeProperty", name, **members)
    await readings(talk, name)
    return talk


async def listen(visit: Visit, talk: Talk, kind: str, name: str, **members: Any) -> Sent:
    """Subscribe or observe, and be sure that it stands. Raises NotOffered where that is refused."""
    judge = "observe.starts" if kind == "observeProperty" else "events.delivered"
    try:
        sent, heard = await tell(visit, talk, kind, name=name, **members)
    except ConnectionGone as gone:
        visit.not_offered(f"{kind} ends the connection, of which {judge} says more: {gone}")
    if heard is not None and heard.kind == "error":
        visit.not_offered(f"{kind} is refused, of which {judge} says more: {heard}")
    return sent


async def events(talk: Talk, event: str) -> list[Heard]:
    """Return the events of a name that have come by now."""
    found: list[Heard] = []
    while (heard := await talk.event(event, within=0)) is not None:
        found.append(heard)
    return found


async def readings(talk: Talk, name: str) -> list[Heard]:
    """Return the readings of a property that have come by now, and that are nobody's answer."""
    found: list[Heard] = []
    while (heard := await talk.reading(name, within=0)) is not None:
        found.append(heard)
    return found


async def happen(visit: Visit, call: Call, *, thing: str | None = None, times: int = 1) -> None:
    """Invoke what makes an event happen, from a connection of its own, one time after the other."""
    talk = await visit.talk(thing=thing)
    for _ in range(times):
        with suppress(*SILENCE):  # that it is answered is not what is looked at
            await talk.ask("invokeAction", name=call.action, **call.members())


async def first_event(visit: Visit, talk: Talk, event: str) -> Heard:
    """Wait for the event that was made to happen. Raises NotOffered where it does not come."""
    heard = await talk.event(event)
    if heard is None:
        visit.not_offered(f"{event} does not come to who has subscribed: events.delivered says more")
    return heard


async def first_change(visit: Visit, talk: Talk, name: str) -> Heard:
    """Wait for the reading of a property that was changed. Raises NotOffered where it does not come."""
    heard = await talk.reading(name)
    if heard is None:
        visit.not_offered(f"a change of {name} does not come to who observes it: observe.change says more")
    return heard


class Changer:
    """Changes a property over a connection, again and again. `value`: what the property is now."""

    def __init__(self, visit: Visit, talk: Talk, name: str) -> None:
        self.value: Any = ABSENT
        self._visit, self._talk, self._name = visit, talk, name
        self._first: Any = ABSENT
        self._written = False

    async def begin(self) -> None:
        """Read what the property is. Raises NotOffered where that is not possible."""
        self.value = self._first = await self._read()

    async def change(self) -> Any:
        """Change it, and return what it is now. Raises NotOffered where it does not change."""
        before, how = self.value, self._visit.roles.change_of(self._name, self.value)
        if isinstance(how, NewValue):
            self._written = True
            with suppress(*SILENCE):  # whether that is answered is not looked at
                await self._talk.ask("writeProperty", name=self._name, data=how.value)
        else:
            with suppress(*SILENCE):
                await self._talk.ask("invokeAction", name=how.action, **how.members())
        self.value = await self._read()
        if same(self.value, before):
            self._visit.not_offered(f"{self._name} could not be changed: properties.write-kept says more")
        return self.value

    async def restore(self) -> None:
        """Put back what it was at first, if it was written."""
        if self._written:
            await put_back(self._visit, self._talk, self._name, self._first)

    async def _read(self) -> Any:
        value: Any = ABSENT
        with suppress(*SILENCE):
            value = (await self._talk.ask("readProperty", name=self._name)).value
        if value is ABSENT:
            self._visit.not_offered(f"{self._name} could not be read: properties.read says more")
        return value


@asynccontextmanager
async def changing(visit: Visit, name: str, talk: Talk | None = None) -> AsyncGenerator[Changer]:
    """Change a property, over a connection of its own if none is given, and put it back at the end."""
    changer = Changer(visit, await visit.talk() if talk is None else talk, name)
    await changer.begin()
    try:
        yield changer
    finally:
        await changer.restore()
