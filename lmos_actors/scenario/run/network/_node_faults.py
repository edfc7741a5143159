"""Restarts of nodes of a simulated network: each node ends like a killed process, and starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from ...model import Kill, Restart
from ..faults import FaultFailed, log_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...model import AnyFault, ProcessFault
    from ..faults import Faults
    from ..memory import Machine
    from ._network import RunNetwork


class NodeFaults:
    """The faults of the nodes of one run's network."""

    def __init__(self, faults: Faults, machine: Machine, network: RunNetwork) -> None:
        self._faults = faults
        self._machine = machine
        self._network = network

    async def strike(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool) -> bool:
        """See `FaultWorld`."""
        if isinstance(fault, Kill):
            fault = Restart(of=fault.of)
        if not isinstance(fault, Restart) or (fault.of is UNSET and fault.pick is None):
            return False
        if self._machine.is_down:
            raise FaultFailed("a running node to restart", "it is down")
        nodes = self._chosen(fault, id)
        self._end(nodes, fault, id)
        if wait:
            for node in nodes:
                await self._machine.wait_node_up(node)
            await self._machine.wait_up()
        return True

    def _chosen(self, fault: Restart, id: str) -> Sequence[str]:
        """Return the nodes that a fault ends. Raises FaultFailed if one of them is down or too few are up."""
        machine, network = self._machine, self._network
        if fault.pick is None:
            assert fault.of is not UNSET
            nodes = network.nodes(fault.of)
            for node in nodes:
                if machine.is_node_down(node):
                    raise FaultFailed(f"a running node {node} to restart", "it is down")
            return nodes
        every = network.nodes(fault.pick.of)
        up = [node for node in every if not machine.is_node_down(node)]
        count = fault.pick.number_of(len(every))
        if count > len(up):
            raise FaultFailed(f"{count} running nodes of {fault.pick.of}", f"{len(up)} of {len(every)}")
        places = self._faults.stream(f"fault {id}").sample(range(len(up)), count)
        return [up[place] for place in sorted(places)]

    def _end(self, nodes: Sequence[str], fault: Restart, id: str) -> None:
        machine = self._machine
        struck = self._faults.begin(id, "restart", dict.fromkeys(nodes))
        for node in nodes:
            self._faults.log(struck, node, {"targets": len(nodes), **log_fields(fault)})
        struck.sides = (tuple(nodes),)
        struck.agents = {node: machine.agents_on(node) for node in nodes}
        for node in nodes:
            machine.kill_node(node, "kept" if fault.writes is UNSET else fault.writes, float(fault.down))
