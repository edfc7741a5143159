"""Agents that the tests of this folder put on trial."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    Down,
    Event,
    Progress,
    Property,
    Secret,
    SupervisorSpec,
    action,
    event,
    every,
    prop,
)


class Weather(Agent):
    """Needs a key, a lifespan and its clock; a fake of it needs none."""

    key: str
    units: Property[str] = prop(default="celsius")
    station: Property[str] = prop()
    asked: Event[str] = event()
    lived: int = 0

    def started(self) -> None:
        raise AssertionError("a double has not the original's first turn")

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        raise AssertionError("a double has not the original's lifespan")
        yield

    @every(1.0)
    def tick(self) -> None:
        raise AssertionError("a double has not the original's periodic turns")

    @action
    def forecast(self, city: str, days: int = 1) -> str:
        raise AssertionError("not reached")

    @action
    async def measure(self, progress: Progress[float], *, place: str) -> float:
        raise AssertionError("not reached")

    @action
    async def report(self, first: int) -> AsyncIterator[int]:
        raise AssertionError("not reached")
        yield 0

    @action
    def note(self, text: str) -> None:
        raise AssertionError("not reached")


class Concierge(Agent):
    """Asks whatever weather there is."""

    noted: tuple[str, ...] = ()

    @action
    async def advise(self, city: str) -> str:
        said = await self.find(Weather).invoke(Weather.forecast, city)
        return "umbrella" if said == "rain" else "hat"

    @action
    def remark(self, text: str) -> None:
        self.send(self.find(Weather), Weather.note, text)


class Counter(Agent):
    """Counts, in a step and in time."""

    count: Property[int] = prop(default=0)

    @action
    def add(self, n: int = 1) -> int:
        self.count += n
        return self.count

    @action
    async def add_slowly(self, n: int = 1) -> int:
        await trio.sleep(1)
        self.count += n
        return self.count

    @action
    async def upto(self, n: int) -> AsyncIterator[int]:
        for one in range(n):
            yield one

    @action
    def refuse(self) -> None:
        raise ActionFailed("no")


class Everything(Agent, history=8, trap_exits=True, serial=True, behaviours=("closed", "open")):
    """Uses what a class may use; nothing of it is left in a double."""

    level: Property[int] = prop(default=0)

    def on_exit(self, down: Down) -> None:
        raise AssertionError("a double has not the original's turn for exits")

    def supervises(self) -> SupervisorSpec:
        raise AssertionError("a double has not the original's children")

    @action(when=("open",))
    def enter(self) -> int:
        raise AssertionError("not reached")

    @action(when=("open",), postpone=True)
    async def wait(self) -> int:
        raise AssertionError("not reached")

    @action
    def login(self, password: Secret[str]) -> None:
        raise AssertionError("not reached")


class Door(Agent, behaviours=("closed", "open")):
    """Lets people in while it is open."""

    entered: int = 0

    @action
    def unlock(self) -> None:
        self.become("open")

    @action(when=("open",), postpone=True)
    def enter(self) -> int:
        self.entered += 1
        return self.entered
