"""Every verb of a far ref, cancelled at each of its checkpoints: nothing is left behind, on either side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from lmos_actors import action
from lmos_actors.actors import slot_of
from lmos_actors.bindings import consume, remote_ref
from tests.bindings.client_connections import Weather, peers_of, quiet, two_nodes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Ref

MOST: Final = 60
"""Checkpoints that a verb has at most."""


class Nth(trio.abc.Instrument):
    """Cancels a scope before the n-th step of the task that entered it."""

    def __init__(self, number: int) -> None:
        self.scope = trio.CancelScope()
        self.steps = 0
        self._number = number
        self._task = trio.lowlevel.current_task()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.steps += 1
            if self.steps == self._number:
                self.scope.cancel()


class Talker(Weather):
    """Takes input streams as well."""

    @action
    async def total(self, numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])

    @action
    async def first(self, numbers: AsyncIterator[int]) -> int:
        return await anext(numbers)

    @action
    async def doubled(self, numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield 2 * number


class Numbers:
    """A source that counts how many of its kind are open."""

    open = 0

    async def __aiter__(self) -> AsyncGenerator[int]:
        Numbers.open += 1
        try:
            for number in range(20):
                if number % 6 == 5:
                    await trio.sleep(0.01)
                yield number
        finally:
            Numbers.open -= 1


async def entering(manager: Any, *then: str) -> None:
    async with manager as found:
        for name in then:
            await getattr(found, name)()


VERBS: dict[str, Callable[[Ref[Talker]], Awaitable[object]]] = {
    "invoke": lambda ref: ref.invoke(Weather.turn, "Bonn"),
    "run": lambda ref: ref.invoke(Weather.forecast, "Bonn"),
    "within": lambda ref: ref.within(0.2).invoke(Weather.sleep),
    "retrying": lambda ref: ref.retrying().invoke(Weather.turn, "Bonn"),
    "read": lambda ref: ref.read(Weather.units),
    "write": lambda ref: ref.write(Weather.units, "kelvin"),
    "write many": lambda ref: ref.write_many(Weather.units.to("x"), Weather.limit.to(3)),
    "read all": lambda ref: ref.read_all(),
    "tell": lambda ref: ref.tell(Weather.turn, "Bonn"),
    "ready": lambda ref: ref.ready(),
    "begin": lambda ref: entering(ref.begin(Weather.forecast, "Bonn"), "query", "result"),
    "cancel": lambda ref: entering(ref.begin(Weather.forecast, "Bonn"), "query", "cancel"),
    "stream": lambda ref: entering(ref.stream(Weather.hours, 3), "__anext__", "__anext__"),
    "observe": lambda ref: entering(ref.observe(Weather.units), "receive"),
    "subscribe": lambda ref: entering(ref.subscribe(Weather.asked)),
    "subscribe all": lambda ref: entering(ref.subscribe_all()),
    "monitor": lambda ref: entering(ref.monitor()),
    "input stream": lambda ref: ref.invoke(Talker.total, Numbers()),
    "input stream not taken": lambda ref: ref.invoke(Talker.first, Numbers()),
    "input stream of begin": lambda ref: entering(ref.begin(Talker.total, Numbers()), "query", "result"),
    "streams both ways": lambda ref: entering(ref.stream(Talker.doubled, Numbers()), *["__anext__"] * 5),
}


@pytest.mark.parametrize("verb", list(VERBS))
async def test_cancelled_anywhere_nothing_is_left(autojump_clock: Any, verb: str) -> None:
    async with two_nodes(Talker) as (server, client):
        peers = peers_of(client)
        ref = remote_ref(peers, Talker, "ws://server/agents/weather")
        await ref.ready()
        (near,) = server.agents()
        for number in range(1, MOST):
            nth = Nth(number)
            trio.lowlevel.add_instrument(nth)
            try:
                with nth.scope, trio.move_on_after(50):
                    await attempted(VERBS[verb](ref))
            finally:
                trio.lowlevel.remove_instrument(nth)
            await quiet()
            await trio.sleep(1)
            assert peers.statistics() == {"peers": 1, "connected": 1, "open": 0}
            counts = slot_of(near).statistics()
            assert (counts.waiting, counts.running) == (0, 0)
            assert not Numbers.open
            assert slot_of(near).sinks().by_key == {}
            if nth.steps < number:
                break
        else:
            raise AssertionError("it never came to its end")
        assert await ref.invoke(Weather.turn, "Bonn") == "Bonn 1"


async def attempted(doing: Awaitable[object]) -> None:
    """Wait for what may end with its own deadline."""
    try:
        await doing
    except TimeoutError:
        return


async def test_consuming_cancelled_anywhere_leaves_no_connection(autojump_clock: Any) -> None:
    async with two_nodes() as (server, client):
        peers = peers_of(client)
        for number in range(1, MOST):
            nth = Nth(number)
            trio.lowlevel.add_instrument(nth)
            done = False
            try:
                with nth.scope:
                    await consume(peers, Weather, "http://server/agents/weather")
                    done = True
            finally:
                trio.lowlevel.remove_instrument(nth)
            await quiet()
            await trio.sleep(20)
            if done:
                break
            assert peers.statistics()["peers"] == 0
            assert server.connections == 0
        assert done
