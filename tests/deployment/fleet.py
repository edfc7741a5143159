"""A fleet of clients that ask two agents again and again, and keep account of what became of each request.

Real processes import their agents from a copy of this file.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from lmos_actors import Agent, AgentUnavailable, NotFound, OutcomeUnknown, action

if TYPE_CHECKING:
    from random import Random

    from lmos_actors import Ref

if "BREAK" in os.environ:
    import_module("a_library_that_is_not_there")

WAIT = 50.0
"""Seconds after which a request without an answer has ended in silence."""


class Weather(Agent):
    """Answers after a while. What it has accepted is in a list, or in a file if it is given one."""

    begun: list[int] | None = None
    file: str = ""

    @action(concurrency=100)
    async def forecast(self, number: int, seconds: float) -> int:
        if self.begun is not None:
            self.begun.append(number)
        if self.file:
            descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, f"{number}\n".encode())
            os.close(descriptor)
        await trio.sleep(seconds)
        return number


class Counter(Agent, durable=True):
    """Counts, and goes on counting in its next life."""

    total: int = 0

    @action
    def add(self) -> int:
        self.total += 1
        return self.total

    @action(safe=True)
    def read_total(self) -> int:
        return self.total

    @action(safe=True)
    def pid(self) -> int:
        return os.getpid()


class Fleet:
    """Clients that ask until they are told to end, and what became of each request."""

    def __init__(
        self,
        weather: Ref[Weather],
        counter: Ref[Counter],
        random: Random,
        seconds: float = 0.2,
        *,
        rest: float = 0.0,
    ) -> None:
        self.seconds = seconds
        """The longest that a request takes."""
        self.rest = rest
        """Seconds between two increments, about as many as one takes; without it, one follows the other."""
        self.weather = weather
        self.counter = counter
        self.random = random
        self.outcomes: Tally[str] = Tally()
        self.ended: dict[int, str] = {}
        """What became of each request, by its number."""
        self.added = 0
        self.ending = False
        self._wanted = (0, 0)
        self._more = trio.Event()

    async def ask(self, first: int) -> None:
        """Ask until the end; of a hundred clients each has numbers of its own."""
        number = first
        while not self.ending:
            with trio.fail_after(WAIT):
                outcome = await self._asked(number)
            assert number not in self.ended
            self.ended[number] = outcome
            self.outcomes[outcome] += 1
            self._look()
            number += 100

    async def go_on(self) -> None:
        """Wait until both agents have answered some more requests."""
        self._wanted, self._more = (self.outcomes["answered"] + 20, self.added + 2), trio.Event()
        with trio.fail_after(WAIT):
            await self._more.wait()

    def _look(self) -> None:
        answered, added = self._wanted
        if self.outcomes["answered"] >= answered and self.added >= added:
            self._more.set()

    async def _asked(self, number: int) -> str:
        try:
            answer = await self.weather.invoke(Weather.forecast, number, self.random.random() * self.seconds)
        except OutcomeUnknown:
            return "unknown"
        except AgentUnavailable as error:
            await trio.sleep(error.retry_in or self.seconds / 4)
            return "unavailable"
        except NotFound:  # a directory that has begun anew knows nobody yet
            await self.weather.ready()
            return "not found"
        assert answer == number
        return "answered"

    async def add(self) -> None:
        """Increment until the end, each time until it is known to be done."""
        while not self.ending:
            key = f"add-{self.added}" if self.added % 2 else None  # or one that it makes itself
            view = self.counter.retrying(attempts=None, seconds=WAIT, key=key)
            with trio.fail_after(WAIT):
                while not await self._is_added(view):
                    await self.counter.ready()
            self.added += 1
            self._look()
            await trio.sleep(self.rest)

    async def _is_added(self, view: Ref[Counter]) -> bool:
        try:
            await view.invoke(Counter.add)
        except NotFound:  # its node has left the directory, and the next one is not there yet
            return False
        return True
