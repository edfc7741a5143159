"""The fault `swizzle`: links that are cut one by one, and healed in another order."""

from __future__ import annotations

import json
import sys
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.reports import records
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult

AGENTS = """\
from __future__ import annotations

from lmos_actors import Agent, Property, Ref, action, every, prop


class Peer(Agent):
    neighbours: tuple[Ref[Peer], ...]
    heard: Property[int] = prop(default=0)

    @every(0.1)
    def greet(self) -> None:
        for neighbour in self.neighbours:
            self.send(neighbour, Peer.hear)

    @action
    def hear(self) -> None:
        self.heard += 1
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("crowd.py", AGENTS)
    yield made
    sys.path[:] = path
    sys.modules.pop("crowd", None)


def file(project: Project, count: int = 4, seed: int = 1, **fault: Any) -> str:
    swizzle = {"kind": "swizzle", "of": "peer", "every": "100ms", "duration": "2s", **fault}
    whole = {
        "lmos": "simulation/v1",
        "name": "swizzled",
        "seeds": [seed],
        "stop": {"at": "10s"},
        "network": {"default": {"latency": "10ms"}},
        "population": [{"id": "peer", "count": count, "use": "crowd.py:Peer"}],
        "topology": {"kind": "complete", "of": "peer"},
        "measure": {"every": "1s", "series": {"heard": {"agg": "min", "of": "peer", "expr": "state.heard"}}},
        "timeline": [{"at": "1s", "do": "fault", "id": "storm", **swizzle}],
        "checks": [
            {"check": "eventually", "name": "over", "expr": "series.heard > 20", "by": "10s"},
            {
                "check": "converges",
                "of": "peer",
                "field": "state.heard",
                "after": "storm.healed",
                "within": "5s",
            },
        ],
    }
    return str(project.root / project.write("swizzled.yaml", json.dumps(whole, indent=1)))


def run(project: Project, seed: int, **fault: Any) -> RunResult:
    resolved = load_scenario(file(project, seed=seed, **fault))
    return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


def said(result: RunResult, kind: str) -> list[tuple[str, ...]]:
    """Return the links that the log names, in the order of its records of a kind."""
    found = [record for record in records(result.log) if record.kind == kind]
    assert {record.get("fault") for record in found} == {"swizzle"}
    return [tuple(sorted(name for side in record.get("sides") for name in side)) for record in found]


def test_each_link_is_cut_once_and_healed_in_another_order(project: Project) -> None:
    orders: list[Any] = []
    for seed in 1, 2:
        result = run(project, seed)
        faults = result.faults
        assert {fault.id for fault in faults} == {"storm"}
        assert {fault.kind for fault in faults} == {"swizzle"}
        links = [tuple(sorted(fault.targets)) for fault in faults]
        assert sorted(links) == list(combinations([f"peer/{number}" for number in range(4)], 2))
        assert [fault.begin for fault in faults] == [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
        ends = sorted((fault.end or 0.0, link) for fault, link in zip(faults, links, strict=True))
        assert [end for end, _ in ends] == [2.5, 2.6, 2.7, 2.8, 2.9, 3.0]
        healed = [link for _, link in ends]
        assert healed != links
        orders.append((links, healed))
        assert said(result, "fault") == links
        assert said(result, "healed") == healed
    assert orders[0] != orders[1]  # chance is that of the seed


def test_the_same_seed_cuts_the_same(project: Project) -> None:
    first, second = (run(project, 3).faults for _ in range(2))
    assert first == second


def test_what_was_cut_off_is_heard_in_the_end(project: Project) -> None:
    result = run(project, 1, of=["peer/0", "peer/1", "peer/2"])
    assert result.failures == ()
    assert len(result.faults) == 3


def test_a_node_that_is_named_twice_is_one(project: Project) -> None:
    result = run(project, 1, of=["peer/1", "peer", "peer/2"], duration="1100ms")
    assert len(result.faults) == 6


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"of": "pear"}, 'no node "pear", did you mean "peer"'),
    ({"of": "peer/1"}, "one node has no links that could be cut"),
    ({"every": "0s"}, "links are cut one after the other, not all at once"),
    ({"duration": "1s"}, "to cut and to heal 6 links, one every 100ms, takes more than 1s"),
    ({"count": 50}, "there are 1225 links among 50 nodes, at most 1000 are cut one by one"),
    ({"sides": [["peer/1"], ["peer/2"]]}, '"sides" does not apply to "kind: swizzle"'),
    ({"target": "peer/1"}, '"target" does not apply to "kind: swizzle", which is of links between nodes'),
]


@pytest.mark.parametrize(("fault", "message"), MISTAKES)
def test_mistakes(project: Project, fault: dict[str, Any], message: str) -> None:
    with pytest.raises(FileError) as caught:
        load_scenario(file(project, **fault))
    assert any(mistake.message.startswith(message) for mistake in caught.value.mistakes), str(caught.value)
