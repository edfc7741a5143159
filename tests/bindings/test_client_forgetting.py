"""What a client keeps of agents elsewhere: nothing, once nobody uses them any more."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from lmos_actors import Agent, ChildSpec, action, open_node
from lmos_actors.transport import MemoryNetwork

if TYPE_CHECKING:
    from lmos_actors.simulation import VirtualClock

URL = "ws://127.0.0.1:8080"


class Guest(Agent):
    @action
    def stay(self) -> int:
        return 1


def known() -> list[str]:
    gc.collect()
    return sorted(one.path for one in gc.get_objects() if type(one).__name__ == "RemoteThing")


async def test_agents_that_were_let_go_are_not_remembered(virtual_clock: VirtualClock) -> None:
    network = MemoryNetwork()
    async with open_node(listen=URL, network=network) as theirs, open_node(network=network) as ours:
        await theirs.start_child(ChildSpec("stays", Guest))
        stays = await ours.consume(Guest, f"{URL}/ws", thing="stays")
        for number in range(20):
            name = f"guest-{number}"
            await theirs.start_child(ChildSpec(name, Guest, restart="temporary"))
            guest = await ours.consume(Guest, f"{URL}/ws", thing=name)
            assert await guest.invoke(Guest.stay) == 1
            async with guest.monitor() as downs:
                await theirs.root.terminate_child(name)
                assert (await anext(aiter(downs))).reason.kind == "shutdown"
            ours.release(guest)
            del guest, downs
        assert theirs.connections == 1
        assert known() == ["stays"]
        assert await stays.invoke(Guest.stay) == 1
