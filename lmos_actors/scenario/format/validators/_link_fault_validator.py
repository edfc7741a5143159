"""Validation of the faults of links between nodes, and of the steps that heal them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import Duration, did_you_mean, mapped
from lmos_actors.system import NEEDED, all_steps
from lmos_actors.system.model import USER
from lmos_actors.system.values import texts_at

from ...model import INSTANT, OF_NETWORK, Pick

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames

    from ._network_validator import NetworkValidator


MOST_LINKS: Final = 1_000
"""Maximum number of links that one fault cuts one by one."""

OF_HANG: Final = 'a connection is reset, or half open, in an instant: "duration" goes with "how: hang"'


class LinkFaultValidator:
    """The validator of faults of links, and of `heal`; mistakes go to `names`."""

    def __init__(self, names: CellNames, network: NetworkValidator) -> None:
        self.names = names
        self.network = network
        self.nodes = network.nodes

    def fault(self, fault: Any, kind: str, path: DataPath) -> None:
        """Check a fault of links."""
        if not self.nodes.is_needed:
            self.names.report((*path, "kind"), f'"kind: {kind}" {NEEDED}')
        why = f'does not apply to "kind: {kind}", which is of links between nodes'
        self.names.refuse(fault, path, why, "target", "pick")
        sides = getattr(fault, "sides", UNSET)
        if kind == "partition" and sides is not UNSET:
            _Sides(self.names, self.network, (*path, "sides")).check(sides)
        between = getattr(fault, "between", UNSET)
        if between is not UNSET:
            self.network.between(between, (*path, "between"))
        if kind == "latency":
            self.network.time(fault.delay, (*path, "delay"))
        if kind == "disconnect":
            self._disconnect(fault, path)
        if kind == "swizzle" and UNSET not in (fault.of, fault.every, fault.duration):
            self._swizzle(fault, path)

    def _disconnect(self, fault: Any, path: DataPath) -> None:
        if self.network.is_datagram:
            self.names.report((*path, "kind"), "datagrams have no connections that could end", "shape")
        if fault.how in (UNSET, *INSTANT) and fault.duration is not UNSET:
            self.names.report((*path, "duration"), OF_HANG, "shape", key=True)

    def _swizzle(self, fault: Any, path: DataPath) -> None:
        """Check that a swizzle has links to cut, and enough time to cut and then heal all of them."""
        named = list(texts_at(fault.of, (*path, "of")))
        if not all(self.nodes.end(name, here) for name, here in named):
            return
        nodes = self.count_nodes(name for name, _ in named)
        links = nodes * (nodes - 1) // 2
        needed = Duration(round(2 * (links - 1) * fault.every, 6))
        if fault.every <= 0:
            self.names.report((*path, "every"), "links are cut one after the other, not all at once", "shape")
        elif not links:
            self.names.report((*path, "of"), "one node has no links that could be cut", "shape")
        elif links > MOST_LINKS:
            why = f"there are {links} links among {nodes} nodes, at most {MOST_LINKS} are cut one by one"
            self.names.report((*path, "of"), why, "shape")
        elif fault.duration <= needed:
            why = f"to cut and to heal {links} links, one every {fault.every}, takes more than {needed}"
            self.names.report((*path, "duration"), why, "shape")

    def count_nodes(self, names: Iterable[str]) -> int:
        """Return the number of different nodes to which names of nodes, agents and populations refer."""
        counts: dict[str, int] = {}
        for name in names:
            node = self.nodes.node_of(name)
            population = self.names.populations.get(node)
            counts[node] = 1 if population is None else population.count
        for node in list(counts):
            if node != self.names.base_of(node) in counts:  # it is counted with its population
                del counts[node]
        return sum(counts.values())

    # ---- `kind: restart` of nodes of the network

    def restart(self, fault: Any, path: DataPath) -> None:
        """Check the nodes named by a restart or a kill; without names, it strikes the whole node."""
        given = [key for key in ("of", "pick") if getattr(fault, key, None) not in (UNSET, None)]
        if len(given) == 2:
            self.names.report(path, 'a restart has "of", or "pick", or is of the whole node', "shape")
        elif given and not self.nodes.is_needed:
            self.names.report((*path, given[0]), f'"{given[0]}" {NEEDED}', "shape", key=True)
        elif given == ["pick"]:
            _Sides(self.names, self.network, path).pick(fault.pick, (*path, "pick"))
        elif given:
            self._ending(fault.of, (*path, "of"))

    def _ending(self, of: str | tuple[str, ...], path: DataPath) -> None:
        named: dict[str, None] = {}
        for name, here in texts_at(of, path):
            group, _, number = name.partition("/")
            if number.isdecimal() and group in self.names.groups:
                why = f'"{name}" is one process of a group: world: process; here "{group}" is one node'
                self.names.report(here, why)
                continue
            if not self.nodes.end(name, here):
                continue
            node = self.nodes.node_of(name)
            if name == USER:
                self.names.report(here, f'"{USER}" is the node of steps, which does not end')
            elif node in named or self.names.base_of(node) in named:
                self.names.report(here, f'"{name}" is on a node that is named already', "shape")
            named[node] = None

    # ---- `do: heal`

    def heal(self, step: Any, path: DataPath) -> None:
        """Check the fault that a `heal` step or timeline entry ends."""
        data = self.names.cell.data
        known: dict[str, dict[str, Any]] = {}
        for raw in all_steps(data.get("steps"), data.get("timeline")):
            fault = mapped(raw.get("fault")) if raw.get("do") == "inject" else raw
            if raw.get("do") in ("inject", "fault") and isinstance(raw.get("id"), str):
                known[raw["id"]] = {**fault, "at": raw.get("at")}
        of, found = step.of, known.get(step.of)
        healed = [name for name, fault in known.items() if _lasts(fault)]
        if found is None:
            why = f'no fault of the network has the id "{of}"{did_you_mean(of, healed)}'
        elif found.get("kind") not in OF_NETWORK:
            why = f'"{of}" is no fault of the network, and ends by itself{did_you_mean(of, healed)}'
        elif "duration" in found:
            why = f'"{of}" has a duration, and ends by itself'
        elif not _lasts(found):
            why = f'"{of}" is over in an instant: there is nothing to heal'
        else:
            self._after(step, path)
            return
        self.names.report((*path, "of"), why)

    def _after(self, step: Any, path: DataPath) -> None:
        """Check that a timeline entry heals a fault that has begun by then and has not been healed before."""
        for index, raw in enumerate(self.names.cell.data.get("timeline", ())):
            entry: Any = self.names.made.get(("timeline", index))
            at = getattr(entry, "at", None)
            if at is None:
                continue
            if mapped(raw).get("id") == step.of and at > step.at:
                self.names.report((*path, "at"), f'"{step.of}" begins later, at {at}', "shape")
            is_earlier = (at, index) < (step.at, path[-1])
            if is_earlier and mapped(raw).get("do") == "heal" and entry.of == step.of:
                self.names.report((*path, "of"), f'"{step.of}" is healed already, at {at}', "shape")
                return


def _lasts(fault: dict[str, Any]) -> bool:
    """Return whether a fault lasts until a `heal`."""
    is_over = fault.get("kind") == "disconnect" and fault.get("how", "reset") in INSTANT
    return fault.get("kind") in OF_NETWORK and "duration" not in fault and not is_over


class _Sides:
    """The sides of one partition."""

    def __init__(self, names: CellNames, network: NetworkValidator, path: DataPath) -> None:
        self.names = names
        self.nodes = network.nodes
        self.path = path
        self._side_of: dict[str, int] = {}
        """The side of each named node, and of each population named as a whole."""
        self._picked: dict[str, int] = {}
        """The number of picked members of each population."""

    def check(self, sides: Sequence[Any]) -> None:
        """Check the sides of the partition."""
        if len(sides) < 2:
            self.names.report(self.path, "a partition has two sides at least", "shape")
        for index, side in enumerate(sides):
            place = (*self.path, index)
            if isinstance(side, Pick):
                self.pick(side, place)
            elif isinstance(side, str):
                self._rest(index == len(sides) - 1, place)
            elif not side:
                self.names.report(place, "a side of nobody cuts nobody off", "shape")
            else:
                for number, name in enumerate(side):
                    if self.nodes.end(name, (*place, number)):
                        self._name(name, index, (*place, number))

    def _rest(self, is_last: bool, place: DataPath) -> None:
        if not is_last:
            self.names.report(place, '"rest" is the last side: those that are on no other', "shape")
            return
        for name in self.nodes.all():
            population = self.names.populations.get(name)
            left = 1 if population is None else population.count - self._picked.get(name, 0)
            if name not in self._side_of and left > 0:
                return
        self.names.report(place, '"rest" is nobody: all nodes are on other sides', "shape")

    def _name(self, name: str, side: int, place: DataPath) -> None:
        node = self.nodes.node_of(name)
        shown = f'"{name}"' if node == name else f'"{node}", where "{name}" stands,'
        of = self.names.base_of(node)
        if node in self._side_of or (of in self.names.populations and of in self._side_of):
            first = self._side_of.get(node, self._side_of.get(of))
            where = "that side already" if first == side else "two sides"
            self.names.report(place, f"{shown} is on {where}", "shape")
        elif of in self._picked:
            why = f'some of "{of}" are picked for another side: "rest", or another pick, are the others'
            self.names.report(place, why, "shape")
        elif any(known.startswith(f"{node}/") for known in self._side_of):
            self.names.report(
                place, f'some of "{name}" are on a side already: "rest" are the others', "shape"
            )
        self._side_of.setdefault(node, side)

    def pick(self, pick: Pick, place: DataPath) -> None:
        """Check a pick of nodes from a population."""
        if not is_one_of_two(self.names, pick, place):
            return
        population = self.names.population(pick.of, (*place, "of"), uses=False)
        if population is None:
            return
        node = self.nodes.node_of(pick.of)
        if node != pick.of:
            why = f'all of "{pick.of}" are on the node "{node}": there is nothing to pick'
            self.names.report((*place, "of"), why, "shape")
            return
        if pick.of in self._side_of:
            self.names.report((*place, "of"), f'all of "{pick.of}" are on a side already', "shape")
        taken = self._picked.get(pick.of, 0)
        self._picked[pick.of] = taken + check_pick(self.names, pick, population.count, taken, place)


def is_one_of_two(names: CellNames, pick: Pick, path: DataPath) -> bool:
    """Check that a pick gives the number of agents in one way: `count` or `share`.

    Return whether it does.
    """
    is_clear = (pick.count is UNSET) != (pick.share is UNSET)
    if not is_clear:
        names.report(path, 'a pick has exactly one of "count" and "share"', "shape")
    return is_clear


def check_pick(names: CellNames, pick: Pick, size: int, taken: int, path: DataPath) -> int:
    """Check that enough agents are left for a pick; return the number picked.

    `taken` is the number of agents picked before.
    """
    share = 0.0 if pick.share is UNSET else pick.share
    count = round(share * size) if pick.count is UNSET else pick.count
    here = (*path, "share" if pick.count is UNSET else "count")
    if count < 1:
        names.report(here, f"that share of {size} agents is none", "shape")
    elif count + taken > size:
        others = f", of which {taken} are picked already" if taken else ""
        names.report(here, f'"{pick.of}" has {size} agents{others}, fewer than {count}', "shape")
    return count
