"""A plan of an agent that thinks in a scenario whose node is killed: the same verdict in each world."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project
from tests.scenario.steps import inject, passed, reads, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

PLANS = """\
from __future__ import annotations

import trio

from lmos_actors import Agent, Property, Ref, action, prop
from lmos_actors.llm import Model
from lmos_actors.thinking import ThinkingAgent

class Shop(Agent, durable=True):
    \"\"\"Takes orders.\"\"\"

    orders: Property[int] = prop(default=0)

    @action
    def order(self, item: str) -> str:
        \"\"\"Order something.\"\"\"
        self.orders += 1
        return f"{item} ordered"

class Courier(Agent, tool=True):
    \"\"\"Brings things.\"\"\"

    @action
    async def bring(self, item: str) -> str:
        \"\"\"Bring something.\"\"\"
        await trio.sleep(20)
        return f"{item} is there"

class Buyer(ThinkingAgent):
    \"\"\"You buy.\"\"\"

    tools = (Shop, Courier)

class Idler(ThinkingAgent):
    \"\"\"You buy.\"\"\"

    tools = (Courier,)

class Careless(Idler):
    \"\"\"You buy.\"\"\"

    resumes = False
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("plans.py", PLANS)
    yield made
    sys.path[:] = path
    sys.modules.pop("plans", None)


def story(world: str, cls: str = "Buyer") -> str:
    def call(tool: str) -> dict[str, Any]:
        return {"call": {"tool": tool, "arguments": {"item": "chair"}}}

    has_shop = cls == "Buyer"
    first = [call("order")] if has_shop else [call("bring")]
    rules = [
        {"when": {"match": {"$.text": "A chair, please."}}, "reply": [{"chunk": "I order."}, *first]},
        *([{"when": {"after": "order"}, "reply": [call("bring")]}] if has_shop else []),
        {
            "when": {"match": {"$.errors.bring": {"contains": "OutcomeUnknown"}}},
            "output": "It is ordered, and may be there.",
        },
    ]
    agents = {
        "model": {"from": "mock", "speaks": "model", "rules": rules},
        "courier": {"from": "agent", "use": "plans.py:Courier"},
        "buyer": {"from": "agent", "use": f"plans.py:{cls}"},
    }
    if has_shop:
        agents["shop"] = {"from": "agent", "use": "plans.py:Shop"}
    buyer = {"do": "invoke", "target": "buyer", "id": "history", "action": "history"}
    steps = [
        {
            "do": "stream",
            "id": "ask",
            "target": "buyer",
            "action": "chat",
            "input": {"content": "A chair, please.", "session": "s", "new": True},
            "wait": False,
            "error": {"is": "OutcomeUnknown"},
        },
        wait(5),
        inject("restart", down="1s"),
        {**buyer, "input": {"session": "s", "settled": True}},
        {
            "do": "expect",
            "that": "output",
            "of": "history",
            "match": {
                "$.output[0].text": "A chair, please.",
                "$.output[1].text": "I order.\n\nIt is ordered, and may be there.",
            },
        },
        *(reads("shop", "orders", 1) if has_shop else []),
    ]
    whole = {"lmos": "scenario/v1", "name": "plan", "world": world, "store": {"latency": "2ms"}}
    return json.dumps({**whole, "agents": agents, "steps": steps}, indent=1)


@pytest.mark.parametrize("cls", ["Buyer", "Idler"])
@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_plan_goes_on_after_its_node_was_killed(project: Project, world: str, cls: str) -> None:
    resolved = load_scenario(project.root / project.write("story.yaml", story(world, cls)))
    (cell,) = resolved.cells
    passed(run_cell(resolved, cell, 1, real_limit=20))


def test_a_store_is_for_agents_that_keep_something(project: Project) -> None:
    with pytest.raises(FileError, match='"store" does nothing: no agent of the file is durable'):
        load_scenario(project.root / project.write("story.yaml", story("memory", "Careless")))
