"""Subscriptions of `observe`, `listen` and `monitor` to a remote agent, up to a number of lines."""

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
from .._exit_codes import FAILED, OK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from lmos_actors.bindings import ConsumedThing

    from ._session import RemoteSession

TOGETHER: Final = 100
"""Maximum lines that are written at once, if many wait."""


@attrs.frozen(kw_only=True)
class Subscription:
    """The work of `observe`, `listen` and `monitor`, which continues over reconnects.

    It ends after `count` lines. `open` opens the feed, and raises ConfigError if the description does not
    have it. If the agent refuses the feed, `instead`, if given, opens another. Lines about gaps and errors
    begin with `members`.
    """

    open: Callable[[RemoteSession], Any]
    line: Callable[[Any], OutputLine]
    members: Mapping[str, Any] = attrs.Factory(dict[str, Any])
    count: int | None = None
    instead: Callable[[RemoteSession], Any] | None = None

    async def __call__(self, session: RemoteSession) -> int:
        """Print items until there are enough or the feed ends. Return the exit code."""
        try:
            if await self._print(session):
                return OK
        except LmosActorsError as error:
            return await session.fail(self.members, error)
        session.answers.wrong(f"{session.thing.id} is gone for good: nothing more will come")
        return FAILED

    async def _print(self, session: RemoteSession) -> bool:
        """Print items as they arrive. Return whether there were enough; if not, the feed has ended."""
        try:
            async with self.open(session) as feed:
                return await self._print_all(session, feed)
        except NotAllowed:
            other = None if self.instead is None else self.instead(session)
            if other is None:
                raise
        async with other as feed:
            return await self._print_all(session, feed)

    async def _print_all(self, session: RemoteSession, feed: Any) -> bool:
        left = self.count
        while batch := await _batch(feed):
            left = await self._print_batch(session, batch, left)
            if left == 0:
                return True
        return False

    async def _print_batch(self, session: RemoteSession, batch: list[Any], left: int | None) -> int | None:
        lines: list[OutputLine] = []
        for each in batch:
            if isinstance(each, Gap):
                missed = "some may be missing" if each.missed is None else f"{each.missed} missing"
                session.answers.note(f"gap: {each.reason}, {missed}")
                members = {**self.members, "gap": each.reason, "missed": each.missed, "at": now()}
                lines.append(OutputLine(members, None, aside=True))
                continue
            lines.append(self.line(each))
            if left is not None and (left := left - 1) == 0:
                break
        await session.answers.print(*lines)
        return left


def property_observation(name: str, count: int | None) -> Subscription:
    """Return the work of `observe`: the value of a property, and each change."""
    members = {"property": name}

    def opened(session: RemoteSession) -> Any:
        session.about("property", name)
        return session.thing.observe(name, gaps=True)

    def line(value: Any) -> OutputLine:
        return OutputLine({**members, "value": value, "at": now()}, value, (_clock(),))

    return Subscription(open=opened, line=line, members=members, count=count)


def event_subscription(event: str | None, count: int | None) -> Subscription:
    """Return the work of `listen`: for one event, or for all events.

    If the agent has no subscription to all events, it subscribes to each of them.
    """

    def opened(session: RemoteSession) -> Any:
        if event is None:
            return session.thing.subscribe_all(gaps=True)
        session.about("event", event)
        return session.thing.subscribe(event, gaps=True)

    def each_event(session: RemoteSession) -> Any:
        described = session.thing.description
        events = tuple((described and described.events) or ())
        return _each_event(session.thing, events) if event is None and events else None

    def line(each: Any) -> OutputLine:
        name, data = (each.event, each.data) if isinstance(each, Occurrence) else (event, each)
        return OutputLine({"event": name, "data": data, "at": now()}, data, (_clock(), str(name)))

    return Subscription(open=opened, line=line, members={"event": event}, count=count, instead=each_event)


def lifecycle_monitor(count: int | None) -> Subscription:
    """Return the work of `monitor`: each end of an incarnation."""

    def opened(session: RemoteSession) -> Any:
        return session.thing.monitor(gaps=True)

    def line(down: Down) -> OutputLine:
        error = down.reason.error
        text = str(error) if isinstance(error, RemoteCrash) else str(down.reason)
        reason = {"kind": down.reason.kind, "text": text}
        members = {"agent": down.agent, "incarnation": down.incarnation, "reason": reason, "at": now()}
        if down.restored is not None:
            members["restored"] = down.restored
        which = f"incarnation {down.incarnation} has ended: " if down.incarnation else ""
        return OutputLine(members, f"{which}{text}", (_clock(), down.agent))

    return Subscription(open=opened, line=line, count=count)


class _Merged:
    """Several subscriptions merged into one feed; an error of one of them is raised."""

    def __init__(self, channel: trio.MemoryReceiveChannel[Any]) -> None:
        self._channel = channel

    async def receive(self) -> Any:
        """Wait for the next item."""
        return self._passed(await self._channel.receive())

    def receive_nowait(self) -> Any:
        """Return an item that has already come."""
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
    """Wait for the next item, and return it with those already received; return [] at the end."""
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
