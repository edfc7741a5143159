"""One of everything that LMOS has, to try clients and kits with through our own server.

`lmos-actors serve agents/conformance.py:Conformance agents/conformance.py:ConformanceB` serves two things
like those of `lmos-actors conform --serve`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

import trio
from msgspec import Meta, Struct

from lmos_actors import ActionFailed, Agent, Event, Progress, Property, Unit, action, event, every, prop

MANY = 64  # runs of one action at a time

Level = Annotated[int, Meta(ge=0, le=100)]
Label = Annotated[str, Meta(min_length=1, max_length=40)]
Seconds = Annotated[float, Meta(ge=0), Unit("s")]
Addend = Annotated[int, Meta(ge=-1000, le=1000)]
Times = Annotated[int, Meta(ge=1, le=3)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Settings(Struct, frozen=True):
    """An object to be set as a whole."""

    mode: Literal["a", "b", "c"]
    ratio: Annotated[float, Meta(ge=0, le=1)]


class Text(Struct, frozen=True):
    """What `echo` gives back."""

    text: str


class Waited(Struct, frozen=True):
    """How long `wait` has waited, in seconds."""

    waited: float


class Rang(Struct, frozen=True):
    """What `ring` was invoked with, and how many times it has been."""

    note: str
    number: Annotated[int, Meta(ge=1)]


class Conformance(Agent):
    """Offers one of everything, to try LMOS clients and kits with."""

    level: Property[Level] = prop(default=20, doc="A whole number to be set.")
    label: Property[Label] = prop(default="new", doc="A short text to be set.")
    settings: Property[Settings] = prop(
        default=Settings("a", 0.5), observable=False, doc="An object to be set as a whole."
    )
    version: Property[str] = prop(
        default="1.0", read_only=True, observable=False, doc="A text that never changes."
    )
    secret: Property[str] = prop(default="none", write_only=True, doc="A text that is never given away.")
    uptime: Property[Seconds] = prop(
        default=0.0, read_only=True, doc="How long it has been there; it is told every second."
    )
    rang: Event[Rang] = event(doc="`ring` was invoked: its note, and how many times that was so.")
    alarm: Event[str] = event(doc="`raise_alarm` was invoked.")
    rung: int = 0

    @every(1.0)
    def tick(self) -> None:
        """Tell the time."""
        self.uptime += 1.0

    @action(safe=True, idempotent=True)
    def echo(self, text: str, times: Times = 1) -> Text:
        """Gives the text back, as many times as wanted."""
        return Text(text * times)

    @action(safe=True, idempotent=True)
    def add(self, a: Addend, b: Addend) -> int:
        """Gives the sum of two numbers."""
        return a + b

    @action(safe=True, synchronous=False, concurrency=MANY)
    async def wait(self, progress: Progress[Share], seconds: Annotated[float, Meta(ge=0, le=60)]) -> Waited:
        """Is pending at once, tells how far it is, and is completed after so many seconds."""
        first = min(0.5, seconds / 2)
        await trio.sleep(first)
        if seconds:
            progress.report(first / seconds)
        await trio.sleep(seconds - first)
        return Waited(seconds)

    @action(safe=True)
    def fail(self) -> None:
        """Fails, always."""
        raise ActionFailed({"why": "it always fails"})

    @action(safe=True)
    def ring(self, note: str) -> None:
        """Makes the event `rang` happen, with the note, before it answers."""
        self.rung += 1
        self.rang.emit(Rang(note, self.rung))

    @action(safe=True)
    def raise_alarm(self) -> None:
        """Makes the event `alarm` happen, before it answers."""
        self.alarm.emit("the alarm was raised")

    @action
    def reset(self) -> None:
        """Puts all properties back as they were at first."""
        self.level, self.label = 20, "new"
        self.settings, self.secret = Settings("a", 0.5), "none"

    @action(safe=True, concurrency=MANY)
    async def count(self, to: Annotated[int, Meta(ge=0, le=1000)]) -> AsyncIterator[int]:
        """Gives the whole numbers from 0 to the one before `to`, one by one."""
        for number in range(to):
            yield number

    @action(safe=True, concurrency=MANY)
    async def total(self, numbers: AsyncIterator[int]) -> int:
        """Gives the sum of the whole numbers that come as a stream."""
        return sum([number async for number in numbers])

    @action(safe=True, concurrency=MANY)
    async def repeat(self, said: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Gives each item of a stream of bytes back, as it comes."""
        async for item in said:
            yield item


class ConformanceB(Agent):
    """Stands on the same socket as the conformance thing, with a state of its own."""

    level: Property[Level] = prop(default=20, doc="A whole number to be set.")
    rang: Event[Rang] = event(doc="`ring` was invoked: its note, and how many times that was so.")
    rung: int = 0

    @action(safe=True, idempotent=True)
    def echo(self, text: str, times: Times = 1) -> Text:
        """Gives the text back, as many times as wanted."""
        return Text(text * times)

    @action(safe=True)
    def ring(self, note: str) -> None:
        """Makes the event `rang` happen, with the note, before it answers."""
        self.rung += 1
        self.rang.emit(Rang(note, self.rung))
