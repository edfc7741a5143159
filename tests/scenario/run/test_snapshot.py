"""The snapshot of a run at a stop point: what it says of each agent, and what it leaves out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import StopInstrument, StopPoint, run_cell
from tests.scenario.project import Project, story

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = '''\
from __future__ import annotations

import trio

from lmos_actors import Agent, Property, Ref, Secret, action, prop


class Store(Agent):
    """Sells what it has, one thing after another."""

    stock: Property[int] = prop(default=5)
    key: Secret[str] = "geheim"
    notes: str = "n" * 3_000

    @action
    async def buy(self, count: int, pin: Secret[str] = "") -> int:
        await trio.sleep(1.0)
        self.stock -= count
        return self.stock


class Buyer(Agent):
    """Knows the store."""

    store: Ref[Store]
'''
STORE = {"from": "agent", "use": "snapped_agents.py:Store"}
BUYER = {"from": "agent", "use": "snapped_agents.py:Buyer", "args": {"store": "$(agents.store)"}}


def test_a_snapshot_has_what_agents_hold_and_what_waits_for_them(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("snapped_agents.py", AGENTS)
    buys = [
        {"do": "invoke", "target": "store", "action": "buy", "input": {"count": count, "pin": "1234"},
         "wait": False}
        for count in range(1, 17)
    ]  # fmt: skip
    down = {"do": "stop", "target": "buyer"}
    file = project.write("story.yaml", story(down, *buys, agents={"store": STORE, "buyer": BUYER}))
    resolved = load_scenario(str(tmp_path / file))
    stop = StopInstrument(StopPoint(at=1.5))
    run_cell(resolved, resolved.cells[0], 1, stop=stop)
    found = stop.snapshot
    assert found is not None
    assert found.at == 1.5
    assert len(found.recent) == 20
    assert json.loads(found.recent[-1])["n"] == found.n
    assert found.tree[1].startswith("root")
    store, buyer = sorted(found.agents, key=lambda agent: agent.path, reverse=True)
    assert (store.path, store.class_name, store.status, store.incarnation) == ("store", "Store", "running", 1)
    assert store.state is not None
    assert store.state["stock"] == 4
    assert store.state["notes"] == f'"{"n" * 1_999}...'
    (run,) = store.running
    assert (run["verb"], run["affordance"], run["from"], run["input"]["count"]) == (
        "invoke",
        "buy",
        "user",
        2,
    )
    assert store.waiting == 14
    said = json.dumps([store.state, store.messages, store.running])
    assert "geheim" not in said
    assert "1234" not in said
    assert (buyer.path, buyer.state, buyer.messages) == ("buyer", None, ())


def test_a_ref_is_shown_by_its_path(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("snapped_refs.py", AGENTS)
    agents = json.loads(
        json.dumps({"store": STORE, "buyer": BUYER}).replace("snapped_agents", "snapped_refs")
    )
    up = {"do": "wait", "until": {"agent": "buyer", "is": "stopped"}}
    file = project.write("story.yaml", story(up, agents=agents))
    resolved = load_scenario(str(tmp_path / file))
    stop = StopInstrument(StopPoint(at=1.0))
    run_cell(resolved, resolved.cells[0], 1, stop=stop)
    assert stop.snapshot is not None
    (buyer,) = (agent for agent in stop.snapshot.agents if agent.path == "buyer")
    assert buyer.state is not None
    assert "store" in json.dumps(buyer.state["store"])
