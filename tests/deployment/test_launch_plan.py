"""Plans of launchers: the order of groups, circles among them, and what leads from one plan to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, strategies as st

from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.deployment.processes import changes_between, in_order
from tests.deployment.places import group, plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.deployment.processes import LaunchPlan

NAMES = ("a", "b", "c", "d", "e", "f")

needs = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3), max_size=6)


@given(st.permutations(NAMES), needs)
def test_each_group_comes_after_those_it_needs_and_else_as_given(
    names: list[str], wanted: dict[str, list[str]]
) -> None:
    rank = {name: number for number, name in enumerate(reversed(names))}
    groups = [
        group(name, needs={need: "ready" for need in wanted.get(name, []) if rank[need] < rank[name]})
        for name in names
    ]
    ordered = [each.name for each in in_order(groups)]
    assert sorted(ordered) == sorted(names)
    for each in groups:
        assert all(ordered.index(need) < ordered.index(each.name) for need in each.needs)
    if not any(each.needs for each in groups):
        assert ordered == list(names)
    assert [each.name for each in in_order(in_order(groups))] == ordered


@given(needs)
def test_groups_that_need_each_other_are_all_there_in_some_order(wanted: dict[str, list[str]]) -> None:
    groups = [group(name, needs=dict.fromkeys(wanted.get(name, []), "ready")) for name in NAMES]
    assert sorted(each.name for each in in_order(groups)) == sorted(NAMES)


def test_only_what_is_late_is_moved() -> None:
    groups = [group("a", needs={"d": "ready"}), group("b"), group("c"), group("d")]
    assert [each.name for each in in_order(groups)] == ["b", "c", "d", "a"]


def test_a_process_has_its_time_to_drain_and_a_little_more() -> None:
    assert group("a", drain=4.0).shutdown == 10.0


# ---- from one plan to another


def test_changes_are_what_differs_in_their_order() -> None:
    old = plan_of(group("a", content="1"), group("b", content="1"), group("c"), group("d", 2))
    new = plan_of(
        *(group("a", content="2"), group("b", content="1", max_restarts=9), group("d", 3)),
        *(group("f", needs={"e": "ready"}), group("e", 2)),
        strategy="one_for_all",
        max_seconds=5.0,
    )
    assert changes_between(old, new).lines() == [
        *("e: new, 2 to be started", "f: new, 1 to be started"),
        "a: changed, its processes are replaced in turn",
        "d: 3 processes from now on",
        "c: gone from the file, to be stopped",
        "launcher.max_seconds: changed, which counts from now on",
        "b.max_restarts: changed, which counts from now on",
        "launcher.strategy: changed, which counts once the launcher begins anew",
    ]


def test_a_plan_that_is_the_same_changes_nothing() -> None:
    same = plan_of(group("a", needs={"b": "ready"}), group("b", 3))
    assert not changes_between(same, attrs.evolve(same, groups=tuple(reversed(same.groups))))
    assert changes_between(same, same).lines() == []


# ---- from files


MOVED = """\
lmos: deployment/v1
name: desk
agents:
  desk: {{from: agent, use: "agents.py:Desk"}}
groups:
  registry: {{directory: true{listen}}}
  front: {{agents: [desk], lookup: registry}}
  other: {{directory: true}}
"""


def planned(file: Path, listen: str) -> LaunchPlan:
    """Return the plan of a file whose directory listens somewhere."""
    file.write_text(
        MOVED.format(listen=f", insecure: true, listen: {listen!r}" if listen else ""), encoding="utf-8"
    )
    return launch_plan(load_deployment(str(file), classes=False).deployment, str(file))


@pytest.mark.parametrize(
    ("listen", "tells"),
    [
        ("ws://127.0.0.1:7100", False),
        ("ws://127.0.0.1:0", True),
        ("ws://0.0.0.0:7100", True),
        ("ws://[::]:7100", True),
    ],
)
def test_others_are_told_where_a_directory_is_that_the_file_does_not_say(
    tmp_path: Path, listen: str, tells: bool
) -> None:
    assert planned(tmp_path / "desk.yaml", listen).group("registry").tells_address is tells


@pytest.mark.parametrize(
    ("host", "need"), [("directory: true", "ready"), ("directory: true, agents: [desk]", "listening")]
)
def test_a_directory_is_waited_for_and_not_the_agents_beside_it(tmp_path: Path, host: str, need: str) -> None:
    """Else these could not wait for agents of the groups that use the directory."""
    file = tmp_path / "desk.yaml"
    agent = '{from: agent, use: "desk.py:Desk"}'
    agents = f"agents: {{desk: {agent}, other: {agent}}}"
    groups = f"groups: {{host: {{{host}}}, guest: {{agents: [other], register: host}}}}"
    file.write_text(f"lmos: deployment/v1\nname: desk\n{agents}\n{groups}\n", encoding="utf-8")
    if need == "ready":
        file.write_text(file.read_text().replace(f"desk: {agent}, ", ""), encoding="utf-8")
    plan = launch_plan(load_deployment(str(file), classes=False).deployment, str(file))
    assert plan.group("guest").needs == {"host": need}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "ws://127.0.0.1:7100"),
        ("ws://127.0.0.1:7100", ""),
        ("ws://127.0.0.1:7100", "ws://127.0.0.1:7200"),
    ],
)
def test_a_directory_that_moves_is_replaced_and_then_those_that_use_it(
    tmp_path: Path, before: str, after: str
) -> None:
    file = tmp_path / "desk.yaml"
    old, new = planned(file, before), planned(file, after)
    assert [each.name for each in changes_between(old, new).replaced] == ["registry", "front"]
    assert new.group("registry").tells_address == (not after)
