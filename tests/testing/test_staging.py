"""Replacements and faults hold wherever in a node an agent is started."""

from __future__ import annotations

import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Pool, SupervisorSpec, action, simulate
from lmos_actors.testing import FaultPlan, Probe, fake, open_test_node
from tests.testing.classes import Counter, Weather


class Parent(Agent):
    """Has children, some always, some on request."""

    def supervises(self) -> SupervisorSpec:
        return SupervisorSpec("children", [ChildSpec("always", Weather)])

    @action
    async def begin(self) -> str:
        child = await self.start(Weather, key="x")
        return await child.invoke(Weather.forecast, "Bonn")


async def test_children_of_agents_are_replaced(virtual_clock) -> None:
    plan = FaultPlan()
    fault = plan.on(Weather.forecast, call=2, raises=ActionFailed("planned"))
    async with open_test_node(replace={Weather: fake(Weather, forecast="sun")}, faults=plan) as node:
        parent = await node.start(Parent)
        assert await parent.invoke(Parent.begin) == "sun"
        always = node.find(Weather, "parent/always")
        with pytest.raises(ActionFailed, match="planned"):
            await always.invoke(Weather.forecast, "Bonn")
        assert fault.times == 1
        node.faults.on(Weather.forecast, call=1, raises=ActionFailed("again"), agent="parent/always")
        with pytest.raises(ActionFailed, match="again"):
            await always.invoke(Weather.forecast, "Bonn")


async def test_members_of_pools_are_replaced_and_go_wrong(virtual_clock) -> None:
    async with open_test_node(replace={Counter: fake(Counter, add=7)}) as node:
        pool = await node.start_pool(Pool(Counter, 3, name="counters"))
        node.faults.on(Counter.add, call=2, raises=ActionFailed("planned"))
        got: list[object] = []
        for _ in range(4):
            try:
                got.append(await pool.invoke(Counter.add))
            except ActionFailed as exc:
                got.append(str(exc))
        assert got == [7, "planned", 7, 7]


async def test_one_probe_may_be_several_agents(virtual_clock) -> None:
    weather: Probe[Weather] = Probe(Weather)
    async with open_test_node(replace={Weather: weather}) as node:
        pool = await node.start_pool(Pool(Weather, 2, name="w"))
        weather.set(Weather.units, "kelvin")
        for member in pool.members:
            assert await member.read(Weather.units) == "kelvin"
            member.tell_nowait(Weather.note, "x")
            assert (await weather.expect(Weather.note, "x")).agent == member.path
        assert weather.ref.path == "w/w-2"


def test_inside_a_simulation_the_rest_is_the_same() -> None:
    async def main() -> tuple[int, float]:
        async with open_test_node(replace={Weather: fake(Weather, forecast="sun")}) as node:
            weather = await node.start(Weather)
            fault = node.faults.on(Weather.forecast, rate=0.5, raises=ActionFailed)
            for _ in range(20):
                try:
                    await weather.invoke(Weather.forecast, "Bonn")
                except ActionFailed:
                    await trio.sleep(1)
            return fault.times, trio.current_time()

    runs = [simulate(main, seed=seed) for seed in (1, 1, 2, 3)]
    assert runs[0] == runs[1]
    assert len(set(runs)) > 1
