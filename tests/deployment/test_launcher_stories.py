"""Stories of OTP's supervisors, told to a launcher: its children are groups of one process each.

What is compared with is the replay of our plans, which end as OTP's supervisors do (tests/supervision).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from hypothesis import given, settings, strategies as st

from lmos_actors.errors import RestartIntensityExceeded
from tests.deployment.places import Script, deployed, group
from tests.matrix import examples
from tests.supervision.otp.replay import run_story
from tests.supervision.otp.stories import TICKS_PER_SECOND, Exit, Story, Sup, Worker, read_table
from tests.supervision.world import run

if TYPE_CHECKING:
    from tests.supervision.otp.stories import Observed

TICK = 60.0
"""Seconds of a tick here: what a process takes for its last words does not count."""

NAMES = ("a", "b", "c", "d")
WORDS = {"waiting": "s", "restarting": "e error", "stopped": "e shutdown"}
QUICK = Script(ready=0.0, drains=0.0)


def outcome(story: Story) -> list[str]:
    """Return what a launcher does of a story: starts and ends in their order, with their ticks."""
    told: list[str] = []

    async def main() -> None:
        tree = story.tree
        with suppress(RestartIntensityExceeded):
            async with deployed(
                *(group(child.name, max_restarts=0) for child in tree.children),
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
                        world.place.last(f"{name}/1").end(1)
                await trio.sleep_until(story.end * TICK)

    run(main)
    found: list[str] = []
    for line in told:
        instant, process, state = line.split()
        if state in WORDS:
            found.append(f"{int(float(instant) // TICK)} {process.partition('/')[0]} {WORDS[state]}")
    return found


def expected(observed: Observed) -> list[str]:
    """Return starts and ends of workers in a recording, in the same words."""
    found: list[str] = []
    for event in observed.events:
        tick, kind, path, _, *reason = event.split()
        if kind in ("s", "e"):
            how = ["shutdown" if each == "killed" else each for each in reason]  # its process ends as it ends
            found.append(" ".join([tick, path.removeprefix("r/"), kind, *how]))
    return found


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


def on_time(story: Story) -> Story:
    """Return a story without the steps after the one that ends its tree."""
    last = int(run_story(story).events[-1].split()[0])
    return Story(story.tree, tuple(step for step in story.steps if step.at <= last), story.end)


def is_clear(story: Story) -> bool:
    """Return whether no exit is just at the edge of the window of another."""
    width = story.tree.period * TICKS_PER_SECOND
    ticks = [step.at for step in story.steps]
    return all(abs(later - earlier - width) > 1 for earlier in ticks for later in ticks)


@settings(max_examples=examples(200))
@given(stories().filter(is_clear))
def test_groups_start_and_end_as_children_of_a_supervisor_do(story: Story) -> None:
    told = on_time(story)
    assert outcome(told) == expected(run_story(told))


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
