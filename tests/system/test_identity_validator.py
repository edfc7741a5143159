"""Keys of the stored state of agents of a file: where its state is found, and what a key cannot be."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.deployment.files import load_deployment
from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project
from tests.scenario.steps import inject

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENTS = """\
from lmos_actors import Agent, ChildSpec, SupervisorSpec, action


class Ledger(Agent, durable=True):
    total: int = 0

    @action
    def add(self) -> int:
        self.total += 1
        return self.total


class Plain(Agent):
    @action
    def add(self) -> int:
        return 0


TREE = SupervisorSpec("root", [ChildSpec("book", Ledger, key="42")])
"""
BOOK = {"from": "agent", "use": "keyed.py:Ledger"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("keyed.py", AGENTS)
    yield made
    sys.path[:] = path
    sys.modules.pop("keyed", None)


def scenario(project: Project, agents: dict[str, Any], *steps: Any, **more: Any) -> Any:
    whole = {"lmos": "scenario/v1", "name": "keys", "agents": agents, "steps": list(steps), **more}
    return load_scenario(project.root / project.write("keys.yaml", json.dumps(whole, indent=1)))


def deployment(project: Project, **more: Any) -> Any:
    whole = {"lmos": "deployment/v1", "name": "keys", **more}
    return load_deployment(project.root / project.write("up.yaml", json.dumps(whole, indent=1)))


@pytest.mark.parametrize("world", ["memory", "wire"])
@pytest.mark.parametrize(
    "more", [{"agents": {"book": {**BOOK, "key": "42"}}}, {"agents": {}, "tree": {"use": "keyed.py:TREE"}}]
)
def test_state_is_found_by_the_key_after_a_restart(project: Project, world: str, more: Any) -> None:
    add = {"do": "invoke", "id": "last", "target": "book", "action": "add"}
    resolved = scenario(
        project,
        more["agents"],
        {**add, "id": "first"},
        {"do": "expect", "that": "output", "of": "first", "equals": 1},
        inject("restart"),
        add,
        {"do": "expect", "that": "output", "of": "last", "equals": 2},
        world=world,
        **{key: value for key, value in more.items() if key != "agents"},
    )
    result = run_cell(resolved, resolved.cells[0], 1, real_limit=20)
    assert result.failures == ()


@pytest.mark.parametrize(
    ("agents", "place", "why"),
    [
        ({"a": {"use": "keyed.py:Plain", "from": "agent", "key": "42"}}, "8:11", "Plain is not durable"),
        ({"a": {**BOOK, "key": "4\u00002"}}, "8:11", "must be a text of 1 to 500 printable characters"),
        ({"a": {**BOOK, "key": 42}}, "8:11", "expected text"),
        ({"a": {**BOOK, "key": ""}}, "8:11", "expected text, not empty"),
        ({"a": {**BOOK, "key": "42"}, "b": {**BOOK, "key": "42"}}, "13:11", "this key is given twice"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be(project: Project, agents: Any, place: str, why: str) -> None:
    add = {"do": "invoke", "target": "a", "action": "add"}
    with pytest.raises(FileError) as caught:
        scenario(project, agents, add)
    assert f"keys.yaml:{place}" in str(caught.value)
    assert why in str(caught.value)


@pytest.mark.parametrize("of_tree", [False, True])
def test_processes_that_would_each_run_the_agent_of_a_key(project: Project, of_tree: bool) -> None:
    system: Any = {"agents": {"book": {**BOOK, "key": "42"}}}
    if of_tree:
        system = {"tree": {"use": "keyed.py:TREE"}}
    group = {"agents": ["book"], "store": "sqlite:$(replica).db"}
    deployment(project, **system, groups={"books": group})
    with pytest.raises(FileError, match=r'2 processes of the group "books" would each run .* the key "42"'):
        deployment(project, **system, groups={"books": {**group, "replicas": 2}})
