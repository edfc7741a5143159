"""The network of processes: the links of the file, applied to real connections.

Each group has a gateway, through which its processes reach all others (`lmos_actors.deployment.faults`). So
has `user`, if the file names it. The gateways share the lines of one `Links`, as in a simulated network, with
the same rules, faults and random streams; each pair of groups has a separate line.

Other targets are reached without a line: processes of the same group, the group with the directory (unless
the file has the directory in its network), and everything that is not a process of the run.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.deployment.faults import FaultProxy, Gateway, GatewayNetwork
from lmos_actors.links import PERFECT, LinkRules, Links
from lmos_actors.simulation.network import USER
from lmos_actors.transport import Endpoint, TcpNetwork, endpoint_of

from ...model import INSTANT, Disconnect
from ..network import NetworkRules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors._core import Entropy
    from lmos_actors.transport import Network

    from ...format import Cell
    from ...model import OfNetwork

HERE: Final = endpoint_of("ws://127.0.0.1:0")

LOOK: Final = 0.01
"""Seconds between two checks for that."""


class ProcessNetwork:
    """The network of one run. `group_at` returns the group of the process at an address, or None."""

    def __init__(
        self,
        cell: Cell,
        groups: tuple[str, ...],
        entropy: Entropy,
        group_at: Callable[[Endpoint], str | None],
    ) -> None:
        self._rules = NetworkRules(cell, entropy)
        self._nodes = {*self._rules.names.all(), USER}
        self._sources = (*groups, USER) if self._rules.names_user else groups
        self._group_at = group_at
        self._links = Links(self._between, entropy.stream)
        self._gateways: dict[str, FaultProxy] = {}
        self._in_force: dict[str, list[int]] = {}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open all gateways, which listen during the block."""
        async with AsyncExitStack() as stack:
            for source in self._sources:
                proxy = FaultProxy(
                    HERE, Gateway(self._name_of), self._links, source=source, network=TcpNetwork()
                )
                self._gateways[source] = await stack.enter_async_context(proxy)
            yield

    def gateway_of(self, group: str) -> str:
        """Return the URL of the gateway of a group."""
        host, port = self._gateways[group].addresses[0]
        return attrs.evolve(HERE, host=host, port=port, target="").url

    def of_user(self) -> Network:
        """Return the network over which steps reach processes."""
        if USER not in self._gateways:
            return TcpNetwork()
        return GatewayNetwork(endpoint_of(self.gateway_of(USER)), TcpNetwork())

    async def _name_of(self, to: Endpoint) -> str:
        # another process may know the address of a process sooner than the launcher does, by so many seconds
        with trio.move_on_after(0.5):
            while (group := self._group_at(to)) is None:  # noqa: ASYNC110 -- it comes over a pipe, any moment
                await trio.sleep(LOOK)
            return group
        return to.authority

    # ---- what links do

    def _crosses(self, source: str, target: str) -> bool:
        return source != target and source in self._nodes and target in self._nodes

    def _between(self, source: str, target: str) -> LinkRules:
        return self._rules.between(source, target) if self._crosses(source, target) else PERFECT

    def nodes(self, of: str | tuple[str, ...]) -> list[str]:
        """Return the nodes to which the names refer, without duplicates."""
        return self._rules.nodes(of)

    # ---- faults

    def strike(self, fault: OfNetwork, key: str) -> tuple[tuple[str, ...], ...]:
        """Put a fault into force under the given key; return the affected nodes of each side."""
        if isinstance(fault, Disconnect) and fault.how in INSTANT:
            where = self._rules.where(fault.between)
            for proxy in self._gateways.values():
                proxy.reset(self._crossing(where), half_open=fault.how == "half_open")
            return (self._rules.ends(fault.between),)
        made, about = self._rules.fault(fault, key)
        made = attrs.evolve(made, selects=self._crossing(made.selects))
        self._in_force.setdefault(key, []).append(self._links.begin(made, trio.current_time()))
        self._look_at_lines()
        return about

    def _crossing(self, selects: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
        return lambda source, target: self._crosses(source, target) and selects(source, target)

    def heal(self, key: str) -> None:
        """End the oldest fault with the given key."""
        self._links.heal(self._in_force[key].pop(0))
        self._look_at_lines()

    def heal_all(self) -> None:
        """End all faults."""
        for key, numbers in self._in_force.items():
            for _ in tuple(numbers):
                self.heal(key)

    def _look_at_lines(self) -> None:
        for proxy in self._gateways.values():
            proxy.look_at_lines()
