"""The system of a deployment file in scenario files: the same agents and groups, told a story."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.reports import FileResult, as_data, note_lines
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.steps import inject, invoke

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

CODE = """
from lmos_actors import Agent, Ref, action

class Weather(Agent):
    sky: str = "sunny"

    @action(safe=True)
    def forecast(self, city: str) -> str:
        return f"{self.sky} in {city}"

class Desk(Agent):
    weather: Ref[Weather]

    @action(concurrency=8)
    async def ask(self, city: str) -> str:
        return await self.weather.retrying().invoke(Weather.forecast, city)
"""

SYSTEM = """\
lmos: deployment/v1
name: desk
vars:
  sky: {type: string, default: grey}
agents:
  weather: {from: agent, use: deployed:Weather, args: {sky: $(vars.sky)}}
  desk: {from: agent, use: deployed:Desk, args: {weather: $(agents.weather)}}
groups:
  registry: {directory: true}
  weather: {agents: [weather], register: registry, replicas: 2, store: "memory:"}
  front: {agents: [desk], register: registry, metrics: true}
"""

ASKED = [
    invoke("ask", "desk", city="Bonn", id="asked"),
    {"do": "expect", "that": "output", "of": "asked", "equals": "grey in Bonn"},
]
CUT: list[dict[str, Any]] = [
    {"do": "inject", "id": "cut", "fault": {"kind": "partition", "sides": [["weather"], "rest"]}},
    invoke("ask", "desk", city="Bonn", id="asked", wait=False),
    {"do": "wait", "for": "5s"},
    {"do": "query", "of": "asked", "save": {"then": "$.status"}},
    {"do": "expect", "that": "value", "of": "$(saved.then)", "equals": "in progress"},
    {"do": "heal", "of": "cut"},
    ASKED[1],
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("systems")
    (root / "deployed.py").write_text(CODE)
    return root


def written(folder: Path, *, deployed: str = SYSTEM, steps: Any = ASKED, **keys: Any) -> Path:
    (folder / "desk.yaml").write_text(deployed)
    file = folder / "story.json"
    file.write_text(
        json.dumps({"lmos": "scenario/v1", "name": "s", "system": "desk.yaml", "steps": steps} | keys)
    )
    return file


def run(file: Path) -> RunResult:
    resolved = load_scenario(file)
    (cell,) = resolved.cells
    return run_cell(resolved, cell, 1)


def mistakes(file: Path) -> list[str]:
    with pytest.raises(FileError) as caught:
        load_scenario(file)
    folder = f"{file.parent}/"
    return [f"{each.place}: {each.message}".replace(folder, "") for each in caught.value.mistakes]


@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
def test_its_agents_are_those_of_the_deployment(project: Path, world: str) -> None:
    result = run(written(project, world=world))
    assert result.failures == ()
    assert result.ok


@pytest.mark.parametrize("world", ["memory", "wire"])
@pytest.mark.parametrize("network", [{}, {"directory": {}}])
def test_its_groups_are_the_nodes_of_the_network(project: Path, world: str, network: Any) -> None:
    result = run(written(project, world=world, network=network, steps=CUT))
    assert result.failures == ()
    assert result.ok


def test_its_directory_is_on_the_node_of_its_group(project: Path) -> None:
    away = [{"do": "inject", "fault": {"kind": "restart", "of": "registry"}}, *ASKED]
    result = run(written(project, network={"directory": {}}, steps=away))
    assert result.failures == ()
    assert [restarted.agents for fault in result.faults for restarted in fault.restarted] == [("directory",)]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("deployed:Weather", "deployed:Wether", 'desk.yaml:6:31: no class "Wether" in deployed'),
        ("args: {sky: $(vars.sky)}", "args: {sky: 7}", "desk.yaml:6:61:"),
        ("front: {agents: [desk]", "front: {agents: [dsk]", 'desk.yaml:11:20: no agent "dsk"'),
        ("metrics: true", "metric: true", 'desk.yaml:11:47: unknown key "metric"'),
        ("default: grey", "defalt: grey", "desk.yaml:4:"),
        ("lmos: deployment/v1", "lmos: scenario/v1", "desk.yaml:1:7: "),
    ],
)
def test_mistakes_of_the_system_are_at_its_own_place(project: Path, old: str, new: str, place: str) -> None:
    assert SYSTEM.count(old) == 1
    found = mistakes(written(project, deployed=SYSTEM.replace(old, new)))
    assert [each for each in found if each.startswith(place)], found


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"agents": {}}, '"agents" is what "system" stands for'),
        ({"tree": {"use": "deployed:tree"}}, '"tree" is what "system" stands for'),
        ({"nodes": {"a": ["desk"]}}, '"nodes" is what "system" stands for'),
        ({"system": "dsk.yaml"}, 'no such file, did you mean "desk.yaml"?'),
        ({"system": 7}, "expected text"),
        ({"steps": [invoke("ask", "dsk", city="Bonn")]}, 'no agent "dsk", did you mean "desk"?'),
        ({"steps": [invoke("ask", "desk", town="Bonn")]}, 'no parameter "town"'),
        ({"network": {}, "steps": [{**CUT[0], "fault": {**CUT[0]["fault"], "sides": [["wether"], "rest"]}}]},
         'no node "wether", did you mean "weather"?'),
    ],
)  # fmt: skip
def test_mistakes_of_the_story(project: Path, keys: Any, why: str) -> None:
    found = mistakes(written(project, **keys))
    assert any(each.startswith("story.json:") and why in each for each in found), found


@pytest.mark.parametrize(
    ("linked", "place"), [(False, "desk.yaml:11:20"), (True, "stories/../desk.yaml:11:20")]
)
def test_mistakes_of_a_system_in_the_folder_above_are_at_its_plain_path(
    tmp_path: Path, linked: bool, place: str
) -> None:
    """Behind a link `..` is the folder above the place to which that leads."""
    (tmp_path / "deployed.py").write_text(CODE)
    (tmp_path / "elsewhere/stories").mkdir(parents=True)
    above = tmp_path / "elsewhere" if linked else tmp_path
    (above / "desk.yaml").write_text(SYSTEM.replace("[desk]", "[dsk]"))
    stories = tmp_path / "stories"
    if linked:
        stories.symlink_to("elsewhere/stories")
    else:
        stories.mkdir()
    file = written(stories, system="../desk.yaml")
    with pytest.raises(FileError) as caught:
        load_scenario(file)
    assert f"{tmp_path}/{place}" in {each.place for each in caught.value.mistakes}


INSIDE = "in world: process steps are outside of the agents"


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (
            {"network": {"delivery": "datagram"}},
            "datagrams are of world: memory; in process messages go over",
        ),
        ({"network": {"default": {"reorder": 0.1}}}, '"reorder" is of datagrams'),
        ({"network": {"links": [{"between": ["wether", "front"], "loss": 0.1}]}}, 'no node "wether"'),
        ({"store": {"latency": "1ms"}}, '"store" is for simulated nodes and disks'),
        ({"relay": {}}, '"relay" in a group of the deployment'),
        ({"measure": {"every": "1s", "series": {"a": {"agg": "sum", "of": "desk", "expr": "1"}}}}, INSIDE),
        ({"checks": [{"check": "restarts", "of": "desk", "equals": 0}]}, f'{INSIDE}, and "check: restarts"'),
        ({"checks": [{"check": "trace", "single_trace": True}]}, f'{INSIDE}, and "check: trace"'),
        ({"steps": [{"do": "stop", "target": "desk"}]}, f'{INSIDE}, and "do: stop"'),
        ({"steps": [{**ASKED[0], "as": "weather"}]}, f"{INSIDE}, and are those of user"),
        (
            {"steps": [inject("crash", target="desk")]},
            f'{INSIDE}, and "kind: crash" is inside: memory, wire and websocket have it',
        ),
        (
            {"steps": [inject("clock_skew", target="desk", skew="1s", duration="1s")]},
            f'{INSIDE}, and "kind: clock_skew" is inside: memory and wire have it',
        ),
        (
            {"steps": [inject("partition", sides=[["weather"], ["front"]])]},
            '"kind: partition" needs a network, which the file has not',
        ),
        (
            {"network": {}, "steps": [inject("partition", sides=[["weather"], ["registry"]])]},
            'no node "registry"',
        ),
        (
            {"steps": [inject("kill", of="weather/3")]},
            '"weather" has 2 processes, weather/1 to weather/2',
        ),
        ({"steps": [inject("restart", of=["front/0"])]}, '"front" has one process'),
        ({"steps": [inject("restart")]}, 'a restart is of groups: "of" names them'),
        ({"steps": [inject("restart", of="weather", writes="lost")]}, '"writes" is for simulated nodes'),
        ({"steps": [inject("kill", of="wether")]}, 'no group or agent "wether", did you mean "weather"?'),
        ({"steps": [inject("stop", of="desk", duration="0s")]}, "a fault of no duration does nothing"),
    ],
)
def test_mistakes_of_a_story_of_processes(project: Path, keys: Any, why: str) -> None:
    found = mistakes(written(project, world="process", **keys))
    assert any(each.startswith("story.json:") and why in each for each in found), found


def test_processes_are_of_a_deployment(project: Path) -> None:
    file = written(project, world="process")
    data = json.loads(file.read_text())
    del data["system"]
    file.write_text(json.dumps(data | {"agents": {"desk": {"from": "agent", "use": "deployed:Weather"}}}))
    found = mistakes(file)
    assert any('"system: FILE" names its file' in each for each in found), found


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_kill_is_a_restart_of_a_simulated_node(project: Path, world: str) -> None:
    result = run(written(project, world=world, network={}, steps=[inject("kill", of="weather"), *ASKED]))
    assert result.failures == ()
    assert [(fault.kind, fault.targets) for fault in result.faults] == [("restart", ("weather",))]


@pytest.mark.parametrize("kind", ["kill", "restart"])
def test_single_processes_are_those_of_processes(project: Path, kind: str) -> None:
    found = mistakes(written(project, network={}, steps=[inject(kind, of="weather/2"), *ASKED]))
    why = '"weather/2" is one process of a group: world: process; here "weather" is one node'
    assert any(why in each for each in found), found


@pytest.mark.parametrize("kind", ["stop", "cont"])
def test_simulated_nodes_are_not_stopped_by_signals(project: Path, kind: str) -> None:
    found = mistakes(written(project, network={}, steps=[inject(kind, of="weather"), *ASKED]))
    assert any(f'"kind: {kind}" is of real processes: world: process' in each for each in found), found


def test_both_files_are_of_one_project(project: Path) -> None:
    file = written(project)
    other = project.parent / "other"
    other.mkdir()
    (other / "elsewhere.py").write_text(CODE)
    written(other, deployed=SYSTEM.replace("deployed:", "elsewhere:"))
    file.write_text(file.read_text().replace('"desk.yaml"', '"../other/desk.yaml"'))
    (found,) = mistakes(file)
    assert "both are of one" in found


def test_one_note_says_what_is_not_opened(project: Path) -> None:
    resolved = load_scenario(written(project, matrix={"world": ["memory", "wire"]}))
    (note,) = {cell.note for cell in resolved.cells}
    assert note.endswith(
        "desk.yaml: checked, and opened in world: process alone: listeners, the directory, stores, metrics; "
        "each group is there once (2 of weather as processes)"
    )
    result = FileResult("story.json", "s", 1.0, 1, 2, notes=(note,))
    assert note_lines(result) == [f" note: {note}"]
    assert as_data(result)["notes"] == [note]
