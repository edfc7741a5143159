"""`observe`, `listen` and `monitor`: what an agent elsewhere tells, until enough of it has come."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.actors import Down, Gap, Occurrence
from lmos_actors.bindings import RemoteCrash
from lmos_actors.errors import LmosActorsError, NotAllowed

from .._answers import OutputLine, now
from ._session import ANSWERED_WITH_ERROR, OK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from lmos_actors.bindings import ConsumedThing

    from ._session import RemoteSession

TOGETHER: Final = 100
"""How many lines are written at once, where so many are waiting."""


@attrs.frozen(kw_only=True)
class _Subscription:
    """The base of the three: they continue over reconnects, and end after `count` lines."""

    count: int | None = None

    async def __call__(self, session: RemoteSession) -> int:
        """Listen. Return the exit code."""
        try:
            if await self.hear(session):
                return OK
        except LmosActorsError as error:
            return await session.fail(self.members(), error)
        session.answers.wrong(f"{session.thing.id} is gone for good: there is nothing more to come")
        return ANSWERED_WITH_ERROR

    async def hear(self, session: RemoteSession) -> bool:
        """Print what comes. Return whether that was enough; if not, there is nothing more to come."""
        async with self.feed(session) as feed:
            return await self.tell_all(session, feed)

    async def tell_all(self, session: RemoteSession, feed: Any) -> bool:
        """Print what a feed brings; return as `hear` does."""
        left = self.count
        while batch := await _batch(feed):
            left = await self._tell(session, batch, left)
            if left == 0:
                return True
        return False

    async def _tell(self, session: RemoteSession, batch: list[Any], left: int | None) -> int | None:
        lines: list[OutputLine] = []
        for each in batch:
            if isinstance(each, Gap):
                lines.append(self._gap(session, each))
                continue
            lines.append(self.line(each))
            if left is not None and (left := left - 1) == 0:
                break
        await session.answers.say(*lines)
        return left

    def _gap(self, session: RemoteSession, gap: Gap) -> OutputLine:
        missed = "some may be missing" if gap.missed is None else f"{gap.missed} missing"
        session.answers.note(f"gap: {gap.reason}, {missed}")
        return OutputLine(
            {**self.members(), "gap": gap.reason, "missed": gap.missed, "at": now()}, None, aside=True
        )

    def feed(self, session: RemoteSession) -> Any:
        """Open what is listened to. Raises ConfigError where the description has no such thing."""
        raise NotImplementedError

    def members(self) -> dict[str, Any]:
        """Return what every line begins with."""
        raise NotImplementedError

    def line(self, each: Any) -> OutputLine:
        """Return the line of what has come."""
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class PropertyObservation(_Subscription):
    """`observe`: the value of a property, and each change."""

    name: str

    def feed(self, session: RemoteSession) -> Any:
        session.about("property", self.name)
        return session.thing.observe(self.name, gaps=True)

    def members(self) -> dict[str, Any]:
        return {"property": self.name}

    def line(self, each: Any) -> OutputLine:
        return OutputLine({**self.members(), "value": each, "at": now()}, each, (_clock(),))


@attrs.frozen(kw_only=True)
class EventSubscription(_Subscription):
    """`listen`: one event of an agent, or all; each of them where the agent knows no subscription to all."""

    event: str | None = None

    async def hear(self, session: RemoteSession) -> bool:
        """See `_Subscription`."""
        try:
            return await super().hear(session)
        except NotAllowed:
            described = session.thing.description
            events = tuple((described and described.events) or ())
            if self.event is not None or not events:
                raise
        async with _each_event(session.thing, events) as feed:
            return await self.tell_all(session, feed)

    def feed(self, session: RemoteSession) -> Any:
        if self.event is None:
            return session.thing.subscribe_all(gaps=True)
        session.about("event", self.event)
        return session.thing.subscribe(self.event, gaps=True)

    def members(self) -> dict[str, Any]:
        return {"event": self.event}

    def line(self, each: Any) -> OutputLine:
        event, data = (each.event, each.data) if isinstance(each, Occurrence) else (self.event, each)
        return OutputLine({"event": event, "data": data, "at": now()}, data, (_clock(), str(event)))


@attrs.frozen(kw_only=True)
class LifecycleMonitor(_Subscription):
    """`monitor`: each end of an incarnation."""

    def feed(self, session: RemoteSession) -> Any:
        return session.thing.monitor(gaps=True)

    def members(self) -> dict[str, Any]:
        return {}

    def line(self, each: Down) -> OutputLine:
        error = each.reason.error
        text = str(error) if isinstance(error, RemoteCrash) else str(each.reason)
        reason = {"kind": each.reason.kind, "text": text}
        members = {"agent": each.agent, "incarnation": each.incarnation, "reason": reason, "at": now()}
        which = f"incarnation {each.incarnation} has ended: " if each.incarnation else ""
        return OutputLine(members, f"{which}{text}", (_clock(), each.agent))


class _Merged:
    """Several subscriptions merged into one feed; an error of one of them is raised."""

    def __init__(self, channel: trio.MemoryReceiveChannel[Any]) -> None:
        self._channel = channel

    async def receive(self) -> Any:
        """Wait for the next."""
        return self._passed(await self._channel.receive())

    def receive_nowait(self) -> Any:
        """Return what has come already."""
        return self._passed(self._channel.receive_nowait())

    @staticmethod
    def _passed(each: Any) -> Any:
        if isinstance(each, LmosActorsError):
            raise each
        return each


@asynccontextmanager
async def _each_event(thing: ConsumedThing, events: Iterable[str]) -> AsyncGenerator[_Merged]:
    """Subscribe to several events, one by one."""
    send, receive = trio.open_memory_channel[Any](TOGETHER)

    async def forward(event: str, channel: trio.MemorySendChannel[Any]) -> None:
        async with channel:
            try:
                async with thing.subscribe(event, gaps=True) as feed:
                    async for each in feed:
                        await channel.send(each if isinstance(each, Gap) else Occurrence(event, each))
            except LmosActorsError as error:
                await channel.send(error)

    async with trio.open_nursery() as nursery, receive:
        async with send:
            for event in events:
                nursery.start_soon(forward, event, send.clone())
        yield _Merged(receive)
        nursery.cancel_scope.cancel()


async def _batch(feed: Any) -> list[Any]:
    """Wait for what comes, and return with it what else has come in the meantime.

    Nothing: there is no more.
    """
    try:
        batch = [await feed.receive()]
    except trio.EndOfChannel:
        return []
    with suppress(trio.WouldBlock, trio.EndOfChannel):
        while len(batch) < TOGETHER:
            batch.append(feed.receive_nowait())
    return batch


def _clock() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")
