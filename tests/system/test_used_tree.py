"""A tree of the project in a file, and pools in a file: who is in it, and what may take their place."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.reports import RunResult

OFFICE = '''\
from functools import partial

from lmos_actors import (
    ActionFailed, Agent, ChildSpec, Pool, Property, Ref, SupervisorSpec, action, prop, sibling,
)
from lmos_actors.testing import fake


class Weather(Agent):
    town: str = "Bonn"
    units: Property[str] = prop(default="celsius")

    @action
    def forecast(self) -> str:
        return f"sunny in {self.town}"


class Clerk(Agent):
    weather: Ref[Weather]
    mood: Property[str] = prop(default="good")
    seen: Property[int] = prop(default=0)

    @action
    async def serve(self, customer: str) -> str:
        self.seen += 1
        forecast = await self.weather.invoke(Weather.forecast)
        return f"{self.path.rpartition('/')[2]} serves {customer}: {forecast}"

    @action
    def count(self) -> int:
        return self.seen

    @action
    def refuse(self) -> None:
        raise ActionFailed("no")


class Desk(Agent):
    clerks: Ref[Clerk]
    weather: Ref[Weather]

    @action
    async def serve(self, customer: str) -> str:
        return await self.clerks.invoke(Clerk.serve, customer)

    @action
    async def look(self) -> str:
        return await self.find(Weather).invoke(Weather.forecast)


class Rude(Desk):
    word: str = "no"

    @action
    async def serve(self, customer: str) -> str:
        return f"{self.word}, {customer}: {await self.weather.invoke(Weather.forecast)}"


class Other(Agent):
    """Something else, which does nothing by itself and looks for nobody."""

    @action
    def rest(self) -> None:
        pass


Sunny = fake(Weather, forecast="a fake forecast")

tree = SupervisorSpec(
    "office",
    [
        ChildSpec("desk", partial(Desk, clerks=sibling("back/clerks"), weather=sibling("weather"))),
        SupervisorSpec(
            "back",
            [
                Pool(
                    partial(Clerk, weather=sibling("../weather")),
                    2, name="clerks", by="key", key="customer",
                ),
                ChildSpec("archive", Weather, restart="temporary"),
            ],
            strategy="rest_for_one",
        ),
        ChildSpec("weather", Weather),
    ],
    max_restarts=7,
)

api = SupervisorSpec("api", [ChildSpec("x", Weather)])
taken = SupervisorSpec("office", [ChildSpec("search", Weather), api])
made = SupervisorSpec(
    "office",
    [
        ChildSpec("weather", lambda: Weather()),
        ChildSpec("desk", partial(Desk, clerks=sibling("weather"), weather=sibling("weather"))),
        ChildSpec("rude", partial(Rude, clerks=sibling("weather"), weather=sibling("weather"))),
    ],
)
deep = SupervisorSpec("s", [ChildSpec("weather", Weather)])
for _ in range(400):
    deep = SupervisorSpec("s", [deep])
number = 7
'''

USING = """\
lmos: scenario/v1
name: using
tree: {use: OFFICE:tree}
steps:
  - {do: invoke, id: asked, target: desk, action: serve, input: {customer: Ada}}
  - {do: expect, that: output, of: asked, contains: "serves Ada: sunny in Bonn"}
"""

REPLACING = """\
lmos: scenario/v1
name: replacing
agents:
  weather:
    from: mock
    rules:
      - {when: {action: forecast, from: back/clerks}, output: a mocked forecast}
tree: {use: OFFICE:tree}
steps:
  - {do: invoke, id: asked, target: desk, action: serve, input: {customer: Ada}}
  - {do: expect, that: output, of: asked, contains: a mocked forecast}
"""

POOLED = """\
lmos: scenario/v1
name: pooled
agents:
  desk: {from: agent, use: OFFICE:Desk, args: {clerks: $(agents.clerks), weather: $(agents.weather)}}
  clerks:
    from: pool
    use: OFFICE:Clerk
    size: 3
    by: key
    key: customer
    args: {weather: $(agents.weather)}
    state: {mood: fine}
    mailbox: {size: 5, when_full: reject}
    service_time: 10ms
    restart: transient
    shutdown: 1s
    max_restarts: 9
    max_seconds: 20s
    backoff: {initial: 100ms, jitter: 0}
  weather: {from: agent, use: OFFICE:Weather}
tree:
  root:
    children: [desk, {name: back, children: [clerks]}, weather]
steps:
  - {do: invoke, id: asked, target: desk, action: serve, input: {customer: Ada}}
  - {do: invoke, id: again, target: clerks, action: serve, input: {customer: Ada}, save: {said: $.output}}
  - {do: expect, that: output, of: asked, equals: $(saved.said)}
  - {do: inject, id: fall, fault: {kind: crash, target: clerks}}
  - {do: wait, until: {agent: clerks/clerks-2, is: restarting}, within: 1ms}
  - {do: wait, until: {agent: clerks/clerks-2, is: running}, within: 300ms}
  - {do: invoke, target: clerks, action: serve, input: {customer: Ada}}
checks:
  - {check: restarts, of: clerks, equals: 3}
  - {check: restarts, of: clerks/clerks-1, equals: 1}
  - {check: never, when: {expr: "state.seen > 2"}, of: clerks}
  - {check: statistics, of: clerks, counter: handled, equals: 3}
"""


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pyproject.toml").write_text("")
        (root / "office_tree.py").write_text(OFFICE)

    def file(self, text: str) -> Path:
        file = self.root / "file.yaml"
        file.write_text(text.replace("OFFICE", "office_tree"))
        return file

    def run(self, text: str, world: str = "memory") -> RunResult:
        resolved = load_scenario(self.file(text), settings={"world": world})
        return run_cell(resolved, resolved.cells[0], 1)

    def mistakes(self, text: str) -> list[tuple[str, str]]:
        """What is wrong: the text from its place on to the end of the line, and the message."""
        lines = self.file(text).read_text().split("\n")
        try:
            load_scenario(self.root / "file.yaml")
        except FileError as error:
            found = error.mistakes
            return [(lines[each.line - 1][each.column - 1 :], each.message) for each in found]
        return []

    def notes(self, text: str) -> list[str]:
        return [note.message for note in load_scenario(self.file(text)).notes]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    yield Project(tmp_path_factory.mktemp("trees"))
    sys.path[:] = path
    sys.modules.pop("office_tree", None)


WORLDS = ("memory", "wire", "websocket")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("text", [USING, REPLACING], ids=["using", "replacing"])
def test_a_tree_of_the_project_is_the_same_in_all_worlds(project: Project, text: str, world: str) -> None:
    result = project.run(text, world)
    assert result.ended == "passed", result.failures
    shown = "\n".join(result.tree)
    assert re.search(r"office one_for_one +0 restarts, 7 allowed", shown)
    assert "back rest_for_one" in shown


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_pool_of_a_file_is_what_a_pool_is_in_python(project: Project, world: str) -> None:
    result = project.run(POOLED, world)
    assert result.ended == "passed", result.failures


def test_a_pool_in_real_time(project: Project) -> None:
    text = POOLED.replace("within: 1ms", "within: 1s").replace("within: 300ms", "within: 5s")
    result = project.run(text, "websocket")
    assert result.ended == "passed", result.failures


def test_a_simulation_uses_a_tree_too(project: Project) -> None:
    text = """\
lmos: simulation/v1
name: crowd
stop: {at: 1s}
tree: {use: OFFICE:tree, children: [more]}
agents:
  more: {from: pool, use: OFFICE:Clerk, size: 2, args: {weather: $(agents.weather)}}
  weather: {from: agent, use: OFFICE:Sunny}
population:
  - {id: peer, count: 3, use: OFFICE:Clerk, args: {weather: $(agents.weather)}}
timeline:
  - {do: invoke, id: served, at: 100ms, target: peer/1, action: serve, input: {customer: Ada}}
  - {do: invoke, at: 200ms, target: back/clerks, action: serve, input: {customer: Ben}}
  - {do: invoke, at: 300ms, target: more, action: serve, input: {customer: Ben}}
  - {do: fault, at: 400ms, kind: crash, target: back/clerks}
measure: {every: 100ms, series: {seen: {agg: sum, of: "back/clerks", expr: state.seen}}}
checks:
  - {check: restarts, of: back/clerks, equals: 2}
  - {check: eventually, of: more, expr: state.seen == 1, by: 900ms}
"""
    for world in ("memory", "wire"):
        result = project.run(text.replace("expr: state.seen == 1", "expr: state.seen <= 1"), world)
        assert result.ended == "passed", result.failures
        assert result.metrics["seen.max"] == 1


def test_a_fake_takes_the_place_of_an_agent_and_keeps_what_the_tree_gives_it(project: Project) -> None:
    text = USING.replace(
        "tree:",
        "agents:\n"
        "  weather: {from: agent, use: OFFICE:Sunny}\n"
        "  desk: {from: agent, use: OFFICE:Rude, args: {word: never}}\n"
        "tree:",
    ).replace("serves Ada: sunny in Bonn", "never, Ada: a fake forecast")
    for world in ("memory", "wire"):
        result = project.run(text, world)
        assert result.ended == "passed", result.failures


def test_a_mock_takes_the_place_of_a_pool(project: Project) -> None:
    text = USING.replace(
        "tree:",
        "agents:\n"
        "  back/clerks: {from: mock, rules: [{when: {action: serve}, output: a mock serves}]}\n"
        "tree:",
    ).replace("serves Ada: sunny in Bonn", "a mock serves")
    assert project.run(text).ended == "passed"


def test_a_replay_takes_the_place_of_an_agent_and_is_recorded_from_it(project: Project) -> None:
    resolved = load_scenario(project.file(USING))
    log = run_cell(resolved, resolved.cells[0], 1).log
    (project.root / "tape.jsonl").write_text("".join(line + "\n" for line in log))
    text = USING.replace("tree:", "agents:\n  back/clerks: {from: replay, log: tape.jsonl}\ntree:")
    weather = text.replace(
        "back/clerks: {from: replay, log: tape.jsonl}", "weather: {from: replay, log: tape.jsonl}"
    )
    result = project.run(weather)
    assert result.ended == "passed", result.failures
    recorded = load_scenario(project.file(weather), recording=True)
    assert run_cell(recorded, recorded.cells[0], 1).ended == "passed"


def test_further_children_stand_after_those_of_the_tree(project: Project) -> None:
    text = USING.replace(
        "{use: OFFICE:tree}", "{use: OFFICE:tree, children: [{name: extra, children: [more]}]}"
    )
    text = (
        text.replace(
            "tree:", "agents:\n  more: {from: agent, use: OFFICE:Weather, args: {town: Rome}}\ntree:"
        )
        .replace("target: desk", "target: more")
        .replace("action: serve, input: {customer: Ada}", "action: forecast")
    )
    result = project.run(text.replace("serves Ada: sunny in Bonn", "sunny in Rome"))
    assert result.ended == "passed", result.failures
    labels = [line.split()[0] for line in result.tree[1:]]
    assert labels == [
        "office",
        "desk",
        "back",
        "clerks",
        "clerks-1",
        "clerks-2",
        "archive",
        "weather",
        "extra",
        "more",
    ]


def test_an_agent_that_a_function_makes_is_asked_though_nobody_knows_its_class(project: Project) -> None:
    text = USING.replace("OFFICE:tree", "OFFICE:made").replace("target: desk", "target: weather")
    text = text.replace("action: serve, input: {customer: Ada}", "action: forecast").replace(
        "serves Ada: ", ""
    )
    text += "  - {do: invoke, target: rude, action: serve, input: {customer: Ada}}\n"
    for world in ("memory", "wire"):
        result = project.run(text, world)
        assert result.ended == "passed", result.failures


def test_a_tree_may_be_of_any_depth(project: Project) -> None:
    text = USING.replace("OFFICE:tree", "OFFICE:deep").replace("target: desk", f"target: {'s/' * 400}weather")
    text = text.replace("action: serve, input: {customer: Ada}", "action: forecast").replace(
        "serves Ada: ", ""
    )
    result = project.run(text)
    assert result.ended == "passed", result.failures


def test_settings_of_a_matrix_choose_the_tree(project: Project) -> None:
    text = USING.replace("tree:", "matrix: {which: [tree]}\ntree:").replace(
        "OFFICE:tree", "OFFICE:$(matrix.which)"
    )
    assert project.run(text).ended == "passed"


# ---- mistakes

WRONG = {
    "a path": (
        USING.replace("target: desk", "target: dask"),
        "dask",
        'no agent "dask", did you mean "desk"?',
    ),
    "a name without its path": (
        USING.replace("target: desk", "target: archive"),
        "archive",
        'no agent "archive", did you mean "back/archive"?',
    ),
    "no such member": (
        USING + "  - {do: wait, until: {agent: back/clerks/clerks-3, is: running}}\n",
        "back/clerks/clerks-3",
        'no "back/clerks/clerks-3": the pool "back/clerks" has 2, the last is "back/clerks/clerks-2"',
    ),
    "a member that is asked": (
        USING.replace("target: desk", "target: back/clerks/clerks-1"),
        "back/clerks/clerks-1",
        '"back/clerks/clerks-1" is a member of a pool, which is turned to as a whole: "back/clerks"',
    ),
    "a pool that is waited for": (
        USING + "  - {do: wait, until: {agent: back/clerks, is: running}}\n",
        "back/clerks",
        '"back/clerks" is a pool; one of its agents is "back/clerks/clerks-1"',
    ),
    "a property of a pool": (
        USING + "  - {do: read, target: back/clerks, property: mood}\n",
        "back/clerks",
        '"back/clerks" is a pool, and each of its agents has its own properties',
    ),
    "what takes no place": (
        REPLACING.replace("  weather:", "  wether:"),
        "wether:",
        'office_tree:tree has no agent "wether", did you mean "weather"?',
    ),
    "what is placed nowhere": (
        USING.replace("tree:", "agents:\n  zzz: {from: agent, use: OFFICE:Weather}\ntree:"),
        "zzz:",
        '; the file\'s own stand in "children" of its tree',
    ),
    "a child of the tree": (
        USING.replace("OFFICE:tree}", "OFFICE:tree, children: [desk]}"),
        "desk]",
        '"desk" is in the tree already: office_tree:tree has it',
    ),
    "the module": (
        USING.replace("OFFICE:tree", "ofice:tree"),
        "ofice:tree",
        'no module "ofice" in ',
    ),
    "the name in it": (
        USING.replace("OFFICE:tree", "OFFICE:tre"),
        "office_tree:tre",
        'no SupervisorSpec "tre" in office_tree, did you mean "tree"?',
    ),
    "a class": (
        USING.replace("OFFICE:tree", "OFFICE:Desk"),
        "office_tree:Desk",
        '"Desk" in office_tree is not a SupervisorSpec',
    ),
    "a number": (
        USING.replace("OFFICE:tree", "OFFICE:number"),
        "office_tree:number",
        '"number" in office_tree is not a SupervisorSpec',
    ),
    "a tree for a class": (
        REPLACING.replace("from: mock\n", "from: mock\n    use: OFFICE:tree\n"),
        "office_tree:tree",
        '"tree" in office_tree is a tree, not a class',
    ),
    "both": (
        USING.replace("OFFICE:tree}", "OFFICE:tree, root: {children: []}}"),
        "tree:",
        'a tree has exactly one of "root" and "use"',
    ),
    "another class": (
        USING.replace("tree:", "agents:\n  weather: {from: agent, use: OFFICE:Other}\ntree:", 1),
        "office_tree:Other",
        'what takes the place of "weather" is a Weather, Other is none',
    ),
    "what the tree says": (
        REPLACING.replace("from: mock\n", "from: mock\n    restart: temporary\n"),
        "restart:",
        '"restart" of "weather" is as office_tree:tree has it',
    ),
    "a remote agent": (
        USING.replace("tree:", "agents:\n  weather: {from: remote, url: ws://localhost:1}\ntree:", 1),
        "remote",
        "a mock, a replay or an agent can take its place, no remote",
    ),
    "a reserved name": (
        USING.replace("OFFICE:tree", "OFFICE:taken"),
        "office_tree:taken",
        'the agent cannot be called "search": a node serves something else at /search',
    ),
    "a reserved name of the file": (
        POOLED.replace("weather: {from", "events: {from")
        .replace("agents.weather", "agents.events")
        .replace("weather]", "events]"),
        "events:",
        'an agent at the top of the tree cannot be called "events": a node serves something else at /events',
    ),
    "no agents": (
        USING.replace("tree: {use: OFFICE:tree}\n", ""),
        "lmos:",
        'no agents: the file has "agents", or a "tree" that it uses',
    ),
    "the key of a pool": (
        POOLED.replace("key: customer\n", "key: custmer\n"),
        "custmer",
        "'custmer' is a parameter of no action of the agents, did you mean 'customer'?",
    ),
    "a key without by": (
        POOLED.replace("    by: key\n", ""),
        "customer",
        "goes with by='key', not with 'round_robin'",
    ),
    "restart of a pool": (
        POOLED.replace("restart: transient", "restart: temporary"),
        "temporary",
        'unknown word "temporary"',
    ),
    "an argument of a pool": (
        POOLED.replace("    args: {weather: $(agents.weather)}\n", ""),
        "clerks:",
        "Clerk needs weather in args",
    ),
    "a back-off": (
        POOLED.replace("initial: 100ms", "initial: 100ms, max: 10ms"),
        "10ms",
        "expected at least 100ms, its initial",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_at_its_place(project: Project, case: str) -> None:
    text, place, message = WRONG[case]
    found = project.mistakes(text)
    assert any(where.startswith(place) and message in said for where, said in found), found


def test_a_supervisor_at_the_top_may_have_a_name_that_agents_may_not_have(project: Project) -> None:
    text = USING.replace("OFFICE:tree", "OFFICE:taken").replace("target: desk", "target: api/x")
    assert "api" not in str(project.mistakes(text))


def test_a_tree_that_cannot_be_imported_is_said_with_its_line(project: Project) -> None:
    (project.root / "broken_tree.py").write_text("from lmos_actors import sibling\n\nsibling('')\n")
    ((place, message),) = project.mistakes(USING.replace("OFFICE:tree", "broken_tree:tree"))
    assert place.startswith("broken_tree:tree")
    assert "at broken_tree.py:3: ConfigError" in message


# ---- what nothing uses

ALONE = "  idle: {from: agent, use: OFFICE:Other}\n"


def test_an_agent_that_nobody_names_is_an_error_where_nobody_looks_around(project: Project) -> None:
    text = POOLED.replace("OFFICE:Desk", "OFFICE:Clerk").replace("clerks: $(agents.clerks), ", "")
    text = text.replace("  weather: {from", ALONE + "  weather: {from").replace("[desk,", "[desk, idle,")
    assert project.mistakes(text)[-1][1] == 'nothing uses the agent "idle", and it does nothing by itself'


def test_it_is_a_warning_where_an_agent_finds_others(project: Project) -> None:
    text = POOLED.replace("  weather: {from", ALONE + "  weather: {from").replace("[desk,", "[desk, idle,")
    assert project.notes(text) == ['nothing in the file names the agent "idle"; perhaps Desk finds it']


def test_agents_of_a_used_tree_need_not_be_named(project: Project) -> None:
    assert project.notes(USING) == []


def test_the_shipped_travel_desk_validates() -> None:
    assert load_scenario(ROOT / "scenarios/travel.yaml").notes == ()
