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

from .._answers import Said, now
from ._remote import ANSWERED_WITH_ERROR, OK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from lmos_actors.bindings import ConsumedThing

    from ._remote import Talk

TOGETHER: Final = 100
"""How many lines are written at once, where so many are waiting."""


@attrs.frozen(kw_only=True)
class _Listening:
    """What the three have in common: they go on over reconnects, and end after `count` lines."""

    count: int | None = None

    async def __call__(self, talk: Talk) -> int:
        """Listen. Return the exit code."""
        try:
            if await self.hear(talk):
                return OK
        except LmosActorsError as error:
            return await talk.fail(self.members(), error)
        talk.answers.wrong(f"{talk.thing.id} is gone for good: there is nothing more to come")
        return ANSWERED_WITH_ERROR

    async def hear(self, talk: Talk) -> bool:
        """Print what comes. Return whether that was enough; if not, there is nothing more to come."""
        async with self.feed(talk) as feed:
            return await self.tell_all(talk, feed)

    async def tell_all(self, talk: Talk, feed: Any) -> bool:
        """Print what a feed brings; return as `hear` does."""
        left = self.count
        while batch := await _batch(feed):
            left = await self._tell(talk, batch, left)
            if left == 0:
                return True
        return False

    async def _tell(self, talk: Talk, batch: list[Any], left: int | None) -> int | None:
        lines: list[Said] = []
        for each in batch:
            if isinstance(each, Gap):
                lines.append(self._gap(talk, each))
                continue
            lines.append(self.line(each))
            if left is not None and (left := left - 1) == 0:
                break
        await talk.answers.say(*lines)
        return left

    def _gap(self, talk: Talk, gap: Gap) -> Said:
        missed = "some may be missing" if gap.missed is None else f"{gap.missed} missing"
        talk.answers.note(f"gap: {gap.reason}, {missed}")
        return Said(
            {**self.members(), "gap": gap.reason, "missed": gap.missed, "at": now()}, None, aside=True
        )

    def feed(self, talk: Talk) -> Any:
        """Open what is listened to. Raises ConfigError where the description has no such thing."""
        raise NotImplementedError

    def members(self) -> dict[str, Any]:
        """Return what every line begins with."""
        raise NotImplementedError

    def line(self, each: Any) -> Said:
        """Return the line of what has come."""
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class Observing(_Listening):
    """`observe`: the value of a property, and each change."""

    name: str

    def feed(self, talk: Talk) -> Any:
        talk.about("property", self.name)
        return talk.thing.observe(self.name, gaps=True)

    def members(self) -> dict[str, Any]:
        return {"property": self.name}

    def line(self, each: Any) -> Said:
        return Said({**self.members(), "value": each, "at": now()}, each, (_clock(),))


@attrs.frozen(kw_only=True)
class Hearing(_Listening):
    """`listen`: one event of an agent, or all; each of them where the agent knows no subscription to all."""

    event: str | None = None

    async def hear(self, talk: Talk) -> bool:
        """See `_Listening`."""
        try:
            return await super().hear(talk)
        except NotAllowed:
            described = talk.thing.description
            events = tuple((described and described.events) or ())
            if self.event is not None or not events:
                raise
        async with _each_event(talk.thing, events) as feed:
            return await self.tell_all(talk, feed)

    def feed(self, talk: Talk) -> Any:
        if self.event is None:
            return talk.thing.subscribe_all(gaps=True)
        talk.about("event", self.event)
        return talk.thing.subscribe(self.event, gaps=True)

    def members(self) -> dict[str, Any]:
        return {"event": self.event}

    def line(self, each: Any) -> Said:
        event, data = (each.event, each.data) if isinstance(each, Occurrence) else (self.event, each)
        return Said({"event": event, "data": data, "at": now()}, data, (_clock(), str(event)))


@attrs.frozen(kw_only=True)
class Monitoring(_Listening):
    """`monitor`: each end of an incarnation."""

    def feed(self, talk: Talk) -> Any:
        return talk.thing.monitor(gaps=True)

    def members(self) -> dict[str, Any]:
        return {}

    def line(self, each: Down) -> Said:
        error = each.reason.error
        text = str(error) if isinstance(error, RemoteCrash) else str(each.reason)
        reason = {"kind": each.reason.kind, "text": text}
        members = {"agent": each.agent, "incarnation": each.incarnation, "reason": reason, "at": now()}
        which = f"incarnation {each.incarnation} has ended: " if each.incarnation else ""
        return Said(members, f"{which}{text}", (_clock(), each.agent))


class _Merged:
    """What several subscriptions bring, as one feed; an error of one of them is raised."""

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
