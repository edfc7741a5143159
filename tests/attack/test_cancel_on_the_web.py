"""Whoever uses things over HTTP, or looks for agents, is cancelled at the first, second, third ... step.

Whatever step it is, the next request is answered, and nothing is left: no task, connection in use, listener,
run or timer, here or there.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import About, ChildSpec, Node, Ref, SupervisorSpec, open_node
from lmos_actors.actors import slot_of
from lmos_actors.bindings import fetch
from lmos_actors.bindings.http._request_tracker import HttpRequestTracker
from lmos_actors.bindings.http_client._link import HttpLink
from lmos_actors.discovery import Registration
from lmos_actors.simulation import seeded_order
from lmos_actors.transport import MemoryNetwork
from tests.attack.test_cancel_everywhere import AtSteps
from tests.bindings.client_connections import Weather as Plain
from tests.bindings.http_client.test_link import web_only
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

STRIDE = few_or_all(197, 11)
"""Of so many steps one is played; which one it is differs from scenario to scenario."""


class Weather(Plain, about=About(capabilities=("weather",))):
    """Can be found."""


class World:
    """A node that uses agents of another, and what there is of both."""

    def __init__(self, client: Node, server: Node, ref: Ref[Weather], network: MemoryNetwork) -> None:
        self.client = client
        self.server = server
        self.ref = ref
        self.network = network
        self.found = client.find(Weather, capability="weather")

    def desk(self) -> HttpRequestTracker:
        return next(each for each in DESKS if each.rt is slot_of(self.near()).rt)

    def near(self) -> Ref[Weather]:
        return self.server.find(Weather, "weather")

    def left(self) -> dict[str, Any]:
        """Count what may be left."""
        pool = self.client._connections.peers.web_pool()
        more = slot_of(self.near()).extra
        return {
            "tasks": Counter(name for each in tasks() if not (name := each.name).startswith(SPARE)),
            "asked": len(self.desk().open),
            "listening": len(self.desk()._listening),
            "runs": len(more.runs) if more else 0,
            "sinks": bool(more and more.sinks and more.sinks.by_key),
            "in use": [(place.seats.max_value, place.seats.value) for place in pool._places.values()],
        }


SPARE = "runner of "  # a task that carries out the next run too

DESKS: list[HttpRequestTracker] = []


def tasks() -> list[trio.lowlevel.Task]:
    """Give all tasks of the present run."""
    found = [trio.lowlevel.current_root_task()]
    for task in found:
        if task is not None:
            found += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return [task for task in found if task is not None]


# ---- scenarios


async def values(w: World) -> None:
    await w.ref.write(Weather.units, "kelvin")
    await w.ref.read(Weather.units)
    await w.ref.write_many(Weather.units.to("x"), Weather.limit.to(9))
    await w.ref.read_all()


async def calls(w: World) -> None:
    await w.ref.invoke(Weather.turn, "Bonn")
    await w.ref.within(5).invoke(Weather.forecast, "Bonn")
    await w.ref.tell(Weather.turn, "Bonn")


async def begun(w: World) -> None:
    async with w.ref.begin(Weather.forecast, "Bonn") as call:
        await call.query()
        await call.result()
    async with w.ref.begin(Weather.sleep) as call:
        await trio.sleep(1)
        await call.cancel()


async def streamed(w: World) -> None:
    async with w.ref.stream(Weather.hours, 40) as items:
        async for _ in items:
            pass


async def heard(w: World) -> None:
    async with w.ref.observe(Weather.units) as units, w.ref.subscribe(Weather.asked) as asked:
        await units.receive()
        await w.ref.invoke(Weather.turn, "Bonn")
        await asked.receive()


async def forecast(ref: Ref[Weather]) -> None:
    await ref.invoke(Weather.forecast, "Bonn")


async def together(w: World) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(forecast, w.ref)
            nursery.start_soon(w.ref.read, Weather.units)


async def fetched(w: World) -> None:
    await fetch(w.network, "http://server/agents/weather", None)
    thing = await w.client.consume_thing("http://server/agents/weather")
    await thing.read("units")
    w.client.release(thing)


async def searched(w: World) -> None:
    await w.client.search(capability="weather")
    await w.client.discover("http://server")


async def found(w: World) -> None:
    await w.client.find(Weather, title="Weather").invoke(Weather.turn, "Bonn")
    spread = w.client.find(Weather, capability="weather", spread="round_robin")
    await spread.invoke(Weather.turn, "Bonn")


async def registered(w: World) -> None:
    where = Registration("http://server:80", ttl=30)
    async with open_node(listen="ws://third:80", network=w.network, register=where) as node:
        first = await node.start_child(ChildSpec("first", Weather))
        await trio.sleep(0.1)
        await node.root.terminate_child("first")
        await node.root.delete_child("first")
        assert first.path == "first"
        await node.start_child(ChildSpec("second", Weather))


SCENARIOS = (values, calls, begun, streamed, heard, together, fetched, searched, found, registered)


# ---- playing


async def played(fn: Callable[[World], Awaitable[None]], step: int, path: Path) -> bool:
    """Play it, cancelled at that step. Say whether it was."""
    DESKS.clear()
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("weather", Weather)])
    async with (
        open_node(tree, listen="ws://server:80", network=network, directory=True, register=True) as server,
        open_node(network=network, lookup="http://server:80") as client,
    ):
        text, _ = await fetch(network, "http://server/agents/weather", None)
        await trio.Path(path).write_text(web_only(text))
        ref = await client.consume(Weather, path)
        assert type(ref._link) is HttpLink
        w = World(client, server, ref, network)
        await ref.read(Weather.units)
        await w.found.read(Weather.units)
        await trio.sleep(120)
        before = w.left()
        with trio.CancelScope() as scope:
            steps = AtSteps({step: lambda: scope.cancel("broken off")})
            trio.lowlevel.add_instrument(steps)
            try:
                with trio.fail_after(100):
                    await fn(w)
            finally:
                trio.lowlevel.remove_instrument(steps)
        with trio.fail_after(100):
            assert await ref.invoke(Weather.turn, "Ulm") == "Ulm 1"
            assert await w.found.invoke(Weather.turn, "Ulm") == "Ulm 1"
        await trio.sleep(120)
        assert len(await client.search(capability="weather")) == 1
        await trio.sleep(120)
        after = w.left()
        wrong = {key: (before[key], value) for key, value in after.items() if value != before[key]}
        assert not wrong, (fn.__name__, step, wrong)
        return scope.cancelled_caught


@pytest.mark.parametrize("fn", SCENARIOS)
def test_cancelled_at_every_step(
    fn: Callable[[World], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = HttpRequestTracker.__init__

    def made(self: HttpRequestTracker, *args: Any) -> None:
        make(self, *args)
        DESKS.append(self)

    monkeypatch.setattr(HttpRequestTracker, "__init__", made)
    step = 0
    for step in count(1 + SCENARIOS.index(fn) % STRIDE, STRIDE):
        with seeded_order(step):
            clock = MockClock(autojump_threshold=0)
            if not trio.run(played, fn, step, tmp_path / "weather.json", clock=clock):
                break
    assert step > 22
