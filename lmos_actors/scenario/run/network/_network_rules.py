"""The links of a file, as rules and faults of lines between nodes, without any messages or time.

The rules are the same in every world with a network, whether it is simulated or real between processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from msgspec import UNSET

from lmos_actors.links import PERFECT, LinkFault, LinkRules, between_sides
from lmos_actors.simulation.network import USER
from lmos_actors.system.model import NETWORK
from lmos_actors.system.values import sampler

from ...model import LateLinks, LossyLinks, Partition, Pick
from .._step_text import faults_in
from ._node_names import NodeNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors._core import Entropy, RandomStream

    from ...format import Cell
    from ...model import LinksBetween, OfNetwork, Rules, Scenario, Side, Simulation


class NetworkRules:
    """The rules and faults of the links of one file."""

    def __init__(self, cell: Cell, entropy: Entropy) -> None:
        network = cell.scenario.network
        assert network is not None
        self.names = NodeNames(cell)
        self.names_user = _names_user(cell.scenario)
        """Whether the file names links of the user anywhere."""
        self._entropy = entropy
        self._default = _rules(network.default, PERFECT)
        self._declared = [(self._selected(each), each) for each in network.links]

    def nodes(self, of: str | Sequence[str]) -> list[str]:
        """Return the nodes to which the names refer, without duplicates."""
        names = (of,) if isinstance(of, str) else of
        return list(dict.fromkeys(node for name in names for node in self.names.named(name)))

    def _selected(self, links: LinksBetween) -> Callable[[str, str], bool]:
        if links.between is not UNSET:
            return self._both_ways(links.between)
        assert links.from_ is not UNSET
        assert links.to is not UNSET
        here, there = self.names.selects(links.from_), self.names.selects(links.to)
        return lambda source, target: here(source) and there(target)

    def _both_ways(self, ends: Sequence[str]) -> Callable[[str, str], bool]:
        first, second = map(self.names.selects, ends)
        return lambda source, target: (first(source) and second(target)) or (second(source) and first(target))

    def between(self, source: str, target: str) -> LinkRules:
        """Return the rules of a line: the defaults, changed in order by the file's links for this line."""
        rules = PERFECT if USER in (source, target) else self._default
        for selects, declared in self._declared:
            if selects(source, target):
                rules = _rules(declared, rules)
        return rules

    def fault(self, fault: OfNetwork, id: str) -> tuple[LinkFault, tuple[tuple[str, ...], ...]]:
        """Convert a fault of the file to a fault of lines; also return the affected nodes of each side."""
        if isinstance(fault, Partition):
            sides = self._sides(fault.sides, self._entropy.stream(f"fault {id}"))
            about = tuple(map(tuple, sides))
            return LinkFault(selects=between_sides(sides, one_way=fault.one_way), cuts=True), about
        where, about = self.where(fault.between), (self.ends(fault.between),)
        if isinstance(fault, LateLinks):
            return LinkFault(selects=where, latency=sampler(fault.delay)), about
        if isinstance(fault, LossyLinks):
            return LinkFault(selects=where, loss=fault.share), about
        return LinkFault(selects=where, cuts=True), about

    def where(self, between: Any) -> Callable[[str, str], bool]:
        """Return a function that tests whether a fault strikes a line."""
        if between is not UNSET:
            return self._both_ways(between)
        return _everywhere if self.names_user else _among_nodes

    def ends(self, between: Any) -> tuple[str, ...]:
        """Return the names of the ends of a fault's lines."""
        return (NETWORK,) if between is UNSET else tuple(between)

    def _sides(self, sides: Sequence[Side], stream: RandomStream) -> list[list[str]]:
        found: list[list[str]] = []
        taken: dict[str, None] = {}
        for side in sides:
            if isinstance(side, Pick):
                free = [node for node in self.names.named(side.of) if node not in taken]
                count = min(side.number_of(len(free)), len(free))
                place = {node: number for number, node in enumerate(free)}
                nodes = sorted(stream.sample(free, count), key=place.__getitem__)
            elif isinstance(side, str):
                nodes = [node for node in self.names.all() if node not in taken]
            else:
                nodes = [node for name in side for node in self.names.named(name)]
            taken.update(dict.fromkeys(nodes))
            found.append(nodes)
        return found


def _everywhere(source: str, target: str) -> bool:
    """Select all lines."""
    return True


def _among_nodes(source: str, target: str) -> bool:
    """Select all lines except the user's."""
    return USER not in (source, target)


def _names_user(scenario: Scenario | Simulation) -> bool:
    """Return whether the links or faults of a file name `user` anywhere."""
    assert scenario.network is not None
    ends: list[object] = []
    for links in scenario.network.links:
        ends += links.between if links.between is not UNSET else (links.from_, links.to)
    for fault in faults_in(scenario):
        between, sides = getattr(fault, "between", UNSET), getattr(fault, "sides", UNSET)
        ends += () if between is UNSET else between
        for side in () if sides is UNSET else sides:
            ends += side if isinstance(side, tuple) else ()
        of = getattr(fault, "of", UNSET)
        ends += (of,) if isinstance(of, str) else () if of is UNSET else of
    return USER in ends


def _rules(declared: Rules, below: LinkRules) -> LinkRules:
    """Return the rules `below`, overridden by the rules that `declared` sets."""
    given: dict[str, Any] = {}
    for name in ("latency", "jitter"):
        value = getattr(declared, name)
        if value is not UNSET:
            given[name] = sampler(value)
    for name in ("loss", "duplicate", "reorder", "corrupt"):
        value = getattr(declared, name)
        if value is not UNSET:
            given[name] = float(value)
    if declared.bandwidth is not UNSET:
        given["bandwidth"] = float(declared.bandwidth)
    if declared.queue is not UNSET:
        given["queue"] = int(declared.queue)
    return attrs.evolve(below, **given)
