"""Faults of links between nodes, applied by a simulated network or by the network of processes."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

import trio
from msgspec import UNSET

from lmos_actors.files import Duration
from lmos_actors.system.model import NETWORK

from ...model import INSTANT, Disconnect, OnLinks, Partition, Swizzle, kind_of_fault
from ..faults import log_fields, named_in_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...model import AnyFault, OfNetwork, ProcessFault
    from ..faults import Faults, StruckFault


class LinkNetwork(Protocol):
    """The interface of a run's network for faults of its links."""

    def strike(self, fault: OfNetwork, key: str, /) -> tuple[tuple[str, ...], ...]:
        """Put a fault into force under the given key; return the affected nodes of each side."""
        ...

    def heal(self, key: str, /) -> None:
        """End the oldest fault with the given key."""
        ...

    def nodes(self, of: str | tuple[str, ...], /) -> list[str]:
        """Return the nodes to which the names refer, without duplicates."""
        ...


class LinkFaults:
    """The faults of the links of one run. `call_at` calls a function at an instant of the run."""

    def __init__(
        self,
        faults: Faults,
        network: LinkNetwork,
        call_at: Callable[[float, Callable[[], object]], object],
    ) -> None:
        self._faults = faults
        self._network = network
        self._call_at = call_at

    async def strike(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool) -> bool:
        """See `FaultWorld`."""
        if isinstance(fault, Swizzle):
            self._cut_one_by_one(fault, id)
        elif isinstance(fault, OnLinks):
            self._strike(fault, id)  # pyright: ignore[reportArgumentType] # it is one of its heirs
        else:
            return False
        return True

    def _strike(self, fault: OfNetwork, id: str, *, kind: str = "", key: str = "") -> None:
        """Inject a fault of links now. If it is part of another fault, `kind` and `key` are given."""
        kind, key = kind or kind_of_fault(fault), key or id
        nodes = self._network.strike(fault, key)
        struck = self._faults.begin(id, kind, {NETWORK: None})
        struck.key, struck.lift = key, partial(self._heal, struck)
        struck.targets = tuple(node for side in nodes for node in side)
        if isinstance(fault, Partition):
            struck.sides, struck.one_way = nodes, fault.one_way
        fields = {"targets": len(struck.targets), **named_in_log(struck), **log_fields(fault)}
        self._faults.log(struck, NETWORK, fields)
        if isinstance(fault, Disconnect) and fault.how in INSTANT:
            self._faults.heal(struck, (NETWORK,))
        elif fault.duration is not UNSET:
            self._call_at(trio.current_time() + fault.duration, struck.lift)

    def _heal(self, struck: StruckFault) -> None:
        if struck.end is None:
            self._network.heal(struck.key)
            self._faults.heal(struck, (NETWORK,))

    def _cut_one_by_one(self, fault: Swizzle, id: str) -> None:
        """Cut links one by one, and heal them in another order; each cut is a partition of two nodes."""
        links = list(combinations(self._network.nodes(fault.of), 2))
        random, now = self._faults.stream(f"fault {id}"), trio.current_time()
        random.shuffle(links)
        last = len(links) - 1
        for number, place in enumerate(random.sample(range(len(links)), len(links))):
            begin = number * fault.every
            lasts = Duration(round(fault.duration - (last - place) * fault.every - begin, 6))
            one, other = links[number]
            cut = Partition(sides=((one,), (other,)), duration=lasts)
            strike = partial(self._strike, cut, id, kind="swizzle", key=f"{id} {number}")
            if number:
                self._call_at(now + begin, strike)
            else:
                strike()
