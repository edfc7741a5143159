"""Limits of restarts that are set while a supervisor runs."""

from __future__ import annotations

import pytest
import trio

from lmos_actors import (
    Agent,
    ChildSpec,
    ConfigError,
    ExitReason,
    Ref,
    SupervisorSpec,
    open_node,
    simulate,
)
from lmos_actors.actors import slot_of
from lmos_actors.errors import RestartIntensityExceeded


class Child(Agent):
    """Does nothing."""


async def crash(ref: Ref[Child]) -> None:
    slot_of(ref).die(ExitReason("error", error=ValueError("broken")))
    await trio.sleep(1)


def test_limits_count_from_now_on_and_for_the_next_life_too() -> None:
    async def main() -> None:
        part = SupervisorSpec("part", (ChildSpec("child", Child),), max_restarts=0)
        async with open_node(SupervisorSpec("root", (part,), max_restarts=9)) as node:
            part_of_it, ref = node.root.supervisor("part"), node.find(Child)
            part_of_it.set_limits(2, 60.0)
            for _ in range(2):
                await crash(ref)
            assert part_of_it.incarnation == 1
            await crash(ref)
            assert part_of_it.incarnation == 2, "one more than two"
            for _ in range(2):
                await crash(ref)
            assert part_of_it.incarnation == 2
            part_of_it.set_limits(2, 0.5)
            for _ in range(9):
                await crash(ref)
            assert part_of_it.incarnation == 2, "they are further apart than that"

    simulate(main)


def test_lower_limits_count_the_ends_before() -> None:
    async def main() -> None:
        async with open_node(SupervisorSpec("root", max_restarts=9, max_seconds=60.0)) as node:
            ref = await node.start_child(ChildSpec("child", Child))
            for _ in range(3):
                await crash(ref)
            node.root.set_limits(3, 60.0)
            await crash(ref)
            await trio.sleep_forever()

    with pytest.raises(RestartIntensityExceeded, match="3 restarts in 60"):
        simulate(main)


def test_limits_that_are_none() -> None:
    async def main() -> None:
        async with open_node() as node:
            for most, seconds in ((-1, 5.0), (1, 0.0)):
                with pytest.raises(ConfigError):
                    node.root.set_limits(most, seconds)

    simulate(main)
