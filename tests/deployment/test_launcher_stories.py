"""Stories of OTP's supervisors, told to a launcher: its children are groups, and their children processes.

What is compared with is the replay of our plans, which end as OTP's supervisors do (tests/supervision).

A launcher's tree has two levels, and its children are permanent: that is what is told. Not told, as a
launcher has nothing of it: children that are transient, temporary or significant, and deeper trees. Not told,
as it is another thing with processes: a start that fails is an end of a process that was begun, a child that
hangs is a process that is killed once its time to drain is over (test_launcher.py has both); which of several
processes that end in one instant is noticed first is chance. Processes of one group drain side by side, where
OTP stops one child after another: their order is not compared. Requests to supervisors are those of commands.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors.errors import RestartIntensityExceeded
from tests.deployment.places import Script, deployed, group
from tests.matrix import examples
from tests.supervision.otp.replay import run_story
from tests.supervision.otp.stories import TICKS_PER_SECOND, Exit, Story, Sup, Worker, read_table
from tests.supervision.world import run

if TYPE_CHECKING:
    from lmos_actors.deployment.processes import GroupPlan
    from tests.supervision.otp.stories import Observed

TICK = 60.0
"""Seconds of a tick here: what a process takes for its last words does not count."""

NAMES = ("a", "b", "c", "d")
WORDS = {"waiting": "s", "restarting": "e error", "stopped": "e shutdown"}
QUICK = Script(ready=0.0, drains=0.0)


def group_of(child: Worker | Sup) -> GroupPlan:
    """Return a child of the root as a group: a worker is one of a single process that is never made good."""
    if isinstance(child, Worker):
        return group(child.name, max_restarts=0)
    seconds = child.period * TICKS_PER_SECOND * TICK
    return group(child.name, len(child.children), max_restarts=child.intensity, max_seconds=seconds)


def process_of(path: str) -> str:
    """Return the name of the process of a worker: "r/a" is a/1, and "r/a/p2" is a/2."""
    name, _, number = path.removeprefix("r/").partition("/p")
    return f"{name}/{number or 1}"


def outcome(story: Story) -> list[str]:
    """Return what a launcher does of a story: starts and ends in their order, with their ticks."""
    told: list[str] = []

    async def main() -> None:
        tree = story.tree
        with suppress(RestartIntensityExceeded):
            async with deployed(
                *map(group_of, tree.children),
                usual=QUICK,
                seen=told,
                strategy=tree.strategy,
                max_restarts=tree.intensity,
                max_seconds=tree.period * TICKS_PER_SECOND * TICK,
            ) as world:
                for step in story.steps:
                    assert isinstance(step, Exit)
                    await trio.sleep_until(step.at * TICK)
                    for name in step.names:
                        world.place.last(process_of(f"{step.sup}/{name}")).end(1)
                await trio.sleep_until(story.end * TICK)

    run(main)
    found: list[str] = []
    for line in told:
        instant, process, state = line.split()
        if state in WORDS:
            found.append(f"{int(float(instant) // TICK)} {process} {WORDS[state]}")
    return found


def expected(observed: Observed) -> list[str]:
    """Return starts and ends of workers in a recording, in the same words."""
    found: list[str] = []
    for event in observed.events:
        tick, kind, path, _, *reason = event.split()
        if kind in ("s", "e"):
            how = ["shutdown" if each == "killed" else each for each in reason]  # its process ends as it ends
            found.append(" ".join([tick, process_of(path), kind, *how]))
    return found


def together(lines: list[str]) -> list[str]:
    """Return lines with the processes of a group that are stopped side by side in order of their names."""

    def group_and_how(line: str) -> tuple[str, ...]:
        tick, process, *how = line.split()
        return tick, process.partition("/")[0], *how

    return [line for _, same in groupby(lines, group_and_how) for line in sorted(same)]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    tree = Sup(
        "r",
        tuple(map(Worker, names)),
        strategy=draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])),
        intensity=draw(st.integers(0, 3)),
        period=draw(st.integers(1, 6)),
    )
    ticks = draw(st.lists(st.integers(1, 40), max_size=8, unique=True))
    steps = tuple(Exit(tick, "r", (draw(st.sampled_from(names)),), "error") for tick in sorted(ticks))
    return Story(tree, steps, 60)


@st.composite
def nested_stories(draw: st.DrawFn) -> Story:
    """Draw a story of groups of several processes, each with its own limit."""
    groups = tuple(
        Sup(
            name,
            tuple(Worker(f"p{number}") for number in range(1, draw(st.integers(1, 3)) + 1)),
            intensity=draw(st.integers(0, 2)),
            period=draw(st.integers(1, 6)),
        )
        for name in NAMES[: draw(st.integers(1, 3))]
    )
    strategy = draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]))
    tree = Sup(
        "r", groups, strategy=strategy, intensity=draw(st.integers(0, 2)), period=draw(st.integers(1, 6))
    )
    processes = [(f"r/{each.name}", child.name) for each in groups for child in each.children]
    ticks = draw(st.lists(st.integers(1, 40), max_size=10, unique=True))
    chosen = [draw(st.sampled_from(processes)) for _ in ticks]
    steps = tuple(
        Exit(tick, sup, (name,), "error") for tick, (sup, name) in zip(sorted(ticks), chosen, strict=True)
    )
    return Story(tree, steps, 60)


def on_time(story: Story) -> Story:
    """Return a story without the steps after the one that ends its tree."""
    last = int(run_story(story).events[-1].split()[0])
    return Story(story.tree, tuple(step for step in story.steps if step.at <= last), story.end)


def is_clear(story: Story) -> bool:
    """Return whether no exit is just at the edge of the window of another."""
    sups = (story.tree, *(child for child in story.tree.children if isinstance(child, Sup)))
    widths = {each.period * TICKS_PER_SECOND for each in sups}
    ticks = [step.at for step in story.steps]
    return all(abs(later - earlier - width) > 1 for width in widths for earlier in ticks for later in ticks)


@pytest.mark.slow  # its lines: test_launcher.py
@settings(max_examples=examples(200))
@given(stories().filter(is_clear))
def test_groups_start_and_end_as_children_of_a_supervisor_do(story: Story) -> None:
    told = on_time(story)
    assert outcome(told) == expected(run_story(told))


@pytest.mark.slow  # its lines: test_launcher.py
@settings(max_examples=examples(200))
@given(nested_stories().filter(is_clear))
def test_processes_of_groups_start_and_end_as_grandchildren_do(story: Story) -> None:
    told = on_time(story)
    assert together(outcome(told)) == together(expected(run_story(told)))


def test_recorded_stories_end_as_in_otp() -> None:
    compared = 0
    for record in read_table():
        tree, steps = record.story.tree, record.story.steps
        workers = all(
            isinstance(child, Worker) and child.restart == "permanent" and not (child.fails or child.hang)
            for child in tree.children
        )
        if workers and all(isinstance(step, Exit) and len(step.names) == 1 for step in steps):
            assert outcome(record.story) == expected(record.observed), record.story
            compared += 1
    assert compared
