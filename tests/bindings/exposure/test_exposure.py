"""What a node exposes, found by name: what is found is remembered for as long as it is there."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import TYPE_CHECKING

from lmos_actors import Agent, ChildSpec, action
from lmos_actors.bindings import Exposure
from lmos_actors.testing import open_test_node

if TYPE_CHECKING:
    from lmos_actors.simulation import VirtualClock

FEW = 64  # things that are kept without being used


class Guest(Agent):
    @action
    def stay(self) -> None:
        pass


async def test_agents_that_are_gone_are_not_held_by_their_names(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        exposure = Exposure(node.root)
        stays = await node.start_child(ChildSpec("stays", Guest))
        seen: list[weakref.ref[partial[Guest]]] = []
        for number in range(10 * FEW):
            name, factory = f"guest-{number}", partial(Guest)
            await node.start_child(ChildSpec(name, factory, restart="temporary"))
            assert exposure.find(name) is not None
            assert exposure.find("stays") is stays._link
            await node.root.terminate_child(name)
            seen.append(weakref.ref(factory))  # its slot holds on to it, and has no weak references itself
            del factory
        gc.collect()
        assert sum(one() is not None for one in seen) <= FEW + 1
        assert exposure.find("guest-0") is None
