"""Observations and subscriptions in cases, and the changes and events that they need."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.conformance.inputs import same
from lmos_actors.conformance.target import NewValue
from lmos_actors.conformance.wire import ConnectionGone

from ._messages import ABSENT
from ._probe import NoAnswer
from ._samples import SILENCE, put_back

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.conformance.target import Call

    from ._case import CaseContext
    from ._messages import ReceivedMessage
    from ._session import Sent, Session


async def send_and_flush(
    context: CaseContext, session: Session, kind: str, *, name: str | None = None, **members: Any
) -> tuple[Sent, ReceivedMessage | None]:
    """Send a request that need not be answered, and wait until it has been processed.

    Return the request and its answer, which is an acknowledgement, a first reading, an error, or None.
    """
    sent = await session.send(kind, name=name, **members)
    if session.dialect.is_kotlin:
        with suppress(NoAnswer):
            return sent, await session.answer(sent)
    else:
        await context.flush(session, but=name)
    received: ReceivedMessage | None = None
    with suppress(NoAnswer):
        received = await session.answer(sent, within=0)
    session.forget(sent)
    return sent, received


async def subscribed(
    context: CaseContext, event: str, *, thing: str | None = None, **members: Any
) -> Session:
    """Return a session that has subscribed to an event. Raises NotOffered if that is refused."""
    session = await context.session(thing=thing)
    await listen(context, session, "subscribeEvent", event, **members)
    return session


async def observing(context: CaseContext, name: str, *, thing: str | None = None, **members: Any) -> Session:
    """Return a session that observes a property, after its first reading.

    Raises NotOffered if that is refused.
    """
    session = await context.session(thing=thing)
    await listen(context, session, "observeProperty", name, **members)
    await readings(session, name)
    return session


async def listen(context: CaseContext, session: Session, kind: str, name: str, **members: Any) -> Sent:
    """Send a subscription or an observation, and wait until it is in effect. Raises NotOffered if refused."""
    judge = "observe.starts" if kind == "observeProperty" else "events.delivered"
    try:
        sent, received = await send_and_flush(context, session, kind, name=name, **members)
    except ConnectionGone as gone:
        context.not_offered(f"{kind} ends the connection (see {judge}): {gone}")
    if received is not None and received.kind == "error":
        context.not_offered(f"{kind} is refused (see {judge}): {received}")
    return sent


async def must_accept(
    context: CaseContext, session: Session, kind: str, *, name: str | None = None, **members: Any
) -> None:
    """Send a request that need not be answered; fail if an error answers it."""
    _, received = await send_and_flush(context, session, kind, name=name, **members)
    if received is not None and received.kind == "error":
        context.fail(f"{kind} is answered by {received}")


async def events(session: Session, event: str) -> list[ReceivedMessage]:
    """Return the events with a name that have arrived and were not returned before."""
    found: list[ReceivedMessage] = []
    while (received := await session.event(event, within=0)) is not None:
        found.append(received)
    return found


async def readings(session: Session, name: str) -> list[ReceivedMessage]:
    """Return the readings of a property that have arrived and were not claimed as answers."""
    found: list[ReceivedMessage] = []
    while (received := await session.reading(name, within=0)) is not None:
        found.append(received)
    return found


async def cause(context: CaseContext, call: Call, *, thing: str | None = None, times: int = 1) -> None:
    """Invoke the call that makes an event happen, `times` times in turn, from a new session."""
    session = await context.session(thing=thing)
    for _ in range(times):
        with suppress(*SILENCE):  # the answer does not matter here
            await session.final(await session.begin(call))


async def first_event(context: CaseContext, session: Session, event: str) -> ReceivedMessage:
    """Wait for the event that was caused. Raises NotOffered if it does not come."""
    received = await session.event(event)
    if received is None:
        context.not_offered(f"{event} does not reach its subscriber (see events.delivered)")
    return received


async def first_change(context: CaseContext, session: Session, name: str) -> ReceivedMessage:
    """Wait for the reading of a changed property. Raises NotOffered if it does not come."""
    received = await session.reading(name)
    if received is None:
        context.not_offered(f"a change of {name} does not reach its observer (see observe.change)")
    return received


@attrs.frozen(eq=False)
class EventTrial:
    """An event, the call that causes it, and a session whose subscription shows that it happened."""

    context: CaseContext
    event: str
    call: Call
    control: Session

    @classmethod
    async def begin(cls, context: CaseContext) -> EventTrial:
        """Choose an event and subscribe to it. Raises NotRun if nothing is known to cause it."""
        event = context.roles.event()
        call = await context.trigger(event)
        return cls(context, event, call, await subscribed(context, event))

    async def cause(self, *, times: int = 1) -> ReceivedMessage:
        """Cause the event, and return it as `control` received it. Raises NotOffered if none comes."""
        await cause(self.context, self.call, times=times)
        return await first_event(self.context, self.control, self.event)

    async def must_reach(self, session: Session, why: str) -> None:
        """Fail unless the event comes over another connection too."""
        if await session.event(self.event) is None:
            self.context.fail(why)

    async def must_not_reach(self, session: Session, why: str) -> None:
        """Fail if the event comes over a connection."""
        await self.context.flush(session)
        if await session.event(self.event, within=0) is not None:
            self.context.fail(why)


class Changer:
    """The repeated changes of a property over a connection. `value`: the property's present value."""

    def __init__(self, context: CaseContext, session: Session, name: str) -> None:
        self.value: Any = ABSENT
        self._context, self._session, self._name = context, session, name
        self._first: Any = ABSENT
        self._written = False

    async def begin(self) -> None:
        """Read the property's value. Raises NotOffered if that is not possible."""
        self.value = self._first = await self._read()

    async def change(self) -> Any:
        """Change the property, and return its new value. Raises NotOffered if it does not change."""
        before, how = self.value, self._context.roles.change_of(self._name, self.value)
        if isinstance(how, NewValue):
            self._written = True
            with suppress(*SILENCE):  # the answer does not matter here
                await self._session.ask("writeProperty", name=self._name, data=how.value)
        else:
            with suppress(*SILENCE):
                await self._session.ask("invokeAction", name=how.action, **how.members())
        self.value = await self._read()
        if same(self.value, before):
            self._context.not_offered(f"{self._name} could not be changed (see properties.write-kept)")
        return self.value

    async def restore(self) -> None:
        """Restore the property's first value, if another was written."""
        if self._written:
            await put_back(self._context, self._session, self._name, self._first)

    async def _read(self) -> Any:
        value: Any = ABSENT
        with suppress(*SILENCE):
            value = (await self._session.ask("readProperty", name=self._name)).value
        if value is ABSENT:
            self._context.not_offered(f"{self._name} could not be read (see properties.read)")
        return value


@asynccontextmanager
async def changing(
    context: CaseContext, name: str, session: Session | None = None
) -> AsyncGenerator[Changer]:
    """Yield a changer of a property, on a new session unless one is given; restore its value at the end."""
    changer = Changer(context, await context.session() if session is None else session, name)
    await changer.begin()
    try:
        yield changer
    finally:
        await changer.restore()
