"""Networks of agents: who is whose neighbour, for every kind, and the same for the same seed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.scenario.format import neighbours_of
from lmos_actors.system.model import TOPOLOGY_KEYS, Topology
from tests.system.test_value_validator import project as project

if TYPE_CHECKING:
    from tests.system.test_value_validator import Project


def network(count: int, seed: int = 1, **keys: Any) -> list[tuple[int, ...]]:
    return neighbours_of(Topology(of="peer", **keys), count, seed)


def file_with(count: int, keys: dict[str, Any]) -> str:
    """A simulation of so many agents, whose network has these keys."""
    return (
        "lmos: simulation/v1\nname: network\nstop: {at: 1s}\n"
        f"population: [{{id: peer, count: {count}, use: 'troupe:Peer'}}]\n"
        f"topology: {json.dumps({'of': 'peer', **keys})}\n"
    )


@pytest.mark.parametrize(
    ("kind", "count", "found"),
    [
        ("complete", 3, [(1, 2), (0, 2), (0, 1)]),
        ("complete", 1, [()]),
        ("ring", 4, [(1, 3), (0, 2), (1, 3), (0, 2)]),
        ("ring", 2, [(1,), (0,)]),
        ("ring", 1, [()]),
        ("line", 3, [(1,), (0, 2), (1,)]),
        ("line", 1, [()]),
        ("star", 4, [(1, 2, 3), (0,), (0,), (0,)]),
        ("star", 1, [()]),
    ],
)
def test_networks_as_drawn(kind: str, count: int, found: list[tuple[int, ...]]) -> None:
    assert network(count, kind=kind) == found


def test_a_grid_may_end_in_a_shorter_row() -> None:
    #  0 1 2
    #  3 4 5
    #  6
    assert network(7, kind="grid", width=3) == [
        (1, 3),
        (0, 2, 4),
        (1, 5),
        (0, 4, 6),
        (1, 3, 5),
        (2, 4),
        (3,),
    ]


def test_edges_are_those_of_the_file() -> None:
    edges = ((0, 2), (2, 1), (1, 2))
    assert network(4, kind="edges", edges=edges) == [(2,), (2,), (0, 1), ()]


def keys_of(kind: str, count: int) -> dict[str, Any]:
    values = {
        "degree": 2,
        "rewire": 0.3,
        "probability": 0.3,
        "width": min(3, count),
        "edges": ((0, count - 1),),
    }
    return {key: values[key] for key in TOPOLOGY_KEYS[kind]}


@given(st.sampled_from(sorted(TOPOLOGY_KEYS)), st.integers(4, 60), st.integers(0, 5))
def test_neighbours_know_each_other_and_not_themselves(kind: str, count: int, seed: int) -> None:
    found = network(count, seed, kind=kind, **keys_of(kind, count))
    assert len(found) == count
    for me, others in enumerate(found):
        assert list(others) == sorted(set(others))
        assert me not in others
        assert all(me in found[other] for other in others)


@pytest.mark.parametrize("kind", ["small_world", "random", "scale_free"])
def test_chance_is_that_of_the_seed(kind: str) -> None:
    keys = keys_of(kind, 50)
    assert network(50, 1, kind=kind, **keys) == network(50, 1, kind=kind, **keys)
    assert network(50, 1, kind=kind, **keys) != network(50, 2, kind=kind, **keys)


@pytest.mark.parametrize("rewire", [0.5, 1.0])
def test_a_small_world_is_connected(rewire: float) -> None:
    found = network(200, 3, kind="small_world", degree=2, rewire=rewire)
    reached = {0}
    for _ in range(200):
        reached |= {other for me in reached for other in found[me]}
    assert len(reached) == 200


@pytest.mark.parametrize(
    ("count", "keys"),
    [
        (5_000, {"kind": "complete"}),
        (2, {"kind": "ring"}),
        (2, {"kind": "line"}),
        (2, {"kind": "star"}),
        (4, {"kind": "scale_free", "degree": 3}),
        (9, {"kind": "small_world", "degree": 8, "rewire": 1}),
        (9, {"kind": "random", "probability": 0}),
        (4, {"kind": "grid", "width": 4}),
        (4, {"kind": "edges", "edges": ((0, 3), (2, 1), (1, 2))}),
    ],
)
def test_networks_that_can_be(project: Project, count: int, keys: dict[str, Any]) -> None:
    assert project.mistakes(file_with(count, keys)) == []


@pytest.mark.parametrize(
    ("count", "keys", "key", "words"),
    [
        (5_001, {"kind": "complete"}, "kind", "too many"),
        (4, {"kind": "scale_free", "degree": 4}, "degree", "at most 3 neighbours"),
        (9, {"kind": "small_world", "degree": 3, "rewire": 0.1}, "degree", "even"),
        (4, {"kind": "grid", "width": 5}, "width", "at most 4 wide"),
        (4, {"kind": "edges", "edges": ((0, 4),)}, "edges", "no agent 4, the last is 3"),
        (4, {"kind": "edges", "edges": ((1, 1),)}, "edges", "the numbers of two agents"),
        (4, {"kind": "edges", "edges": ((0, 1), (0, 1, 2))}, "edges", "the numbers of two agents"),
    ],
)
def test_networks_that_cannot_be(
    project: Project, count: int, keys: dict[str, Any], key: str, words: str
) -> None:
    text = file_with(count, keys)
    ((line, column, message),) = project.mistakes(text)
    written = text.split("\n")[line - 1]
    assert written.rindex('": ', 0, column) == written.index(f'"{key}": ') + len(key) + 1
    assert words in message


@pytest.mark.slow
def test_networks_that_are_written_out_need_no_library() -> None:
    said = (
        "import sys; from lmos_actors.system.model import Topology; "
        "from lmos_actors.scenario.format import neighbours_of; "
        "neighbours_of(Topology(kind='ring', of='a'), 9, 1); print('networkx' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
