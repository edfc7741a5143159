"""Agents of a file that wait for each other: the run ends at that instant, and names the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenario.test_guard import OFF, project as project

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


# ---- files that say what happens then

FAILS = """\
lmos: scenario/v1
name: circle
world: {world}
circles: fail
agents:
  planner: {{from: agent, use: "pair.py:Planner", args: {{weather: $(agents.weather)}}}}
  weather: {{from: agent, use: "pair.py:Weather", args: {{planner: $(agents.planner)}}}}
steps:
  - {{do: invoke, target: planner, action: plan, id: asked}}
  - {{do: expect, that: output, of: asked, equals: "refused: 2 waits"}}
"""

REFUSED = (
    CAST.replace("Agent, Ref, action", "Agent, Ref, action\nfrom lmos_actors.errors import WouldDeadlock")
    .replace("        self.nursery.start_soon(self.go)", "        pass")
    .replace(
        "        return await self.planner.invoke(Planner.plan)",
        """\
        try:
            return await self.planner.invoke(Planner.plan)
        except WouldDeadlock as error:
            return f"refused: {len(error.circle)} waits\"""",
    )
)

DEPLOYMENT = """\
lmos: deployment/v1
name: pair
agents:
  planner: {from: agent, use: "pair.py:Planner", args: {weather: $(agents.weather)}}
  weather: {from: agent, use: "pair.py:Weather", args: {planner: $(agents.planner)}}
groups:
  one: {agents: [planner, weather], circles: fail}
"""


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_file_may_have_the_request_fail_that_closes_it(project: Project, world: str) -> None:
    project.write("pair.py", REFUSED)
    ran = project.command("run", project.write("circle.yaml", FAILS.format(world=world)), *OFF)
    assert ran.code == 0, ran.out


def of_the_system(project: Project, world: str, circles: str = "") -> str:
    """Write a story of the deployment, and return its path."""
    project.write("pair.py", REFUSED)
    project.write("pair.yaml", DEPLOYMENT)
    head, _, steps = FAILS.partition("agents:\n")
    head = head.format(world=world).replace("circles: fail\n", circles)
    return project.write("circle.yaml", f"{head}system: pair.yaml\n{steps[steps.index('steps:') :].format()}")


@pytest.mark.slow
def test_a_group_of_a_deployment_says_it_too(project: Project) -> None:
    ran = project.command("run", of_the_system(project, "process"))
    assert ran.code == 0, ran.out


def test_a_story_of_processes_leaves_it_to_their_groups(project: Project) -> None:
    ran = project.command("validate", of_the_system(project, "process", "circles: fail\n"))
    assert ran.code == 2
    assert ':4:1: "circles" in a group of the deployment is for its agents' in ran.out + ran.err


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [("circle.yaml", FAILS.format(world="memory"), "4:10"), ("pair.yaml", DEPLOYMENT, "7:46")],
    ids=["scenario", "deployment"],
)
def test_another_word_is_a_mistake_of_the_file(project: Project, name: str, text: str, place: str) -> None:
    project.write("pair.py", REFUSED)
    file = project.write(name, text.replace("circles: fail", "circles: maybe"))
    ran = project.command("validate", file)
    assert ran.code == 2
    assert f'{name}:{place}: unknown word "maybe" (known: warn, fail)' in ran.out + ran.err
