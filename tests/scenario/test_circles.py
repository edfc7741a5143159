"""Agents of a file that wait for each other: the run ends at that instant, and names the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenario.test_hostile_agents import OFF, project as project

if TYPE_CHECKING:
    from tests.scenario.project import Project

CAST = '''\
import trio
from lmos_actors import Agent, Ref, action

class Planner(Agent):
    """Asks the weather, which asks back."""
    weather: "Ref[Weather]"
    def started(self):
        self.nursery.start_soon(self.go)
    async def go(self):
        await trio.sleep(1)
        await self.ref.invoke(Planner.plan)
    @action
    async def plan(self) -> str:
        return await self.weather.invoke(Weather.forecast)

class Weather(Agent):
    """Asks the planner back."""
    planner: Ref[Planner]
    @action
    async def forecast(self) -> str:
        return await self.planner.invoke(Planner.plan)
'''

SCENARIO = """\
lmos: scenario/v1
name: circle
world: {world}
agents:
  planner: {{from: agent, use: "pair.py:Planner", args: {{weather: $(agents.weather)}}}}
  weather: {{from: agent, use: "pair.py:Weather", args: {{planner: $(agents.planner)}}}}
steps:
  - {{do: wait, for: 2s}}
"""

NETWORK = """\
lmos: simulation/v1
name: circle
stop: {at: 20s}
seeds: {from: 1, count: 1}
nodes: {north: [planner], south: [weather]}
network: {default: {latency: 60ms}}
population:
  - {id: planner, count: 1, use: "pair.py:Planner", args: {weather: $(agents.weather)}}
  - {id: weather, count: 1, use: "pair.py:Weather", args: {planner: $(agents.planner)}}
"""


@pytest.mark.parametrize(
    ("text", "when"),
    [(SCENARIO.format(world="memory"), "1"), (SCENARIO.format(world="wire"), "1"), (NETWORK, "1.12")],
    ids=["memory", "wire", "network"],
)
def test_a_run_ends_where_a_circle_closes(project: Project, text: str, when: str) -> None:
    project.write("pair.py", CAST)
    ran = project.command("run", project.write("circle.yaml", text), *OFF)
    shown = " ".join(ran.out.split())
    assert ran.code == 1
    assert f"saw Deadlocked: at {when} s of virtual time requests wait for each other" in shown
    assert "pair.py:14)" in shown
    assert "pair.py:21)" in shown
