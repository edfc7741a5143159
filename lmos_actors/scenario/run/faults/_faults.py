"""The faults of one run. The world that a fault strikes carries it out; this module tracks those in force.

Random choices come from streams named after the fault, so that an added fault does not change another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from lmos_actors.reports import FaultResult, NodeRestart

from ...judge import Cut
from ._fault_log import ends_of_cut, named_in_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors._core import Entropy, Instrument, RandomStream
    from lmos_actors.actors import Slot

    from ...model import AnyFault, ProcessFault


class FaultFailed(Exception):
    """Raised when a fault cannot be injected into its target."""

    def __init__(self, expected: str, saw: str) -> None:
        super().__init__(f"expected {expected}, saw {saw}")
        self.expected = expected
        self.saw = saw


@attrs.define(eq=False)
class StruckFault:
    """A fault that has struck. It is in force while `left` has places that have not recovered."""

    id: str
    kind: str
    targets: tuple[str, ...]
    begin: float
    left: dict[str, Slot | None]
    """The value is None for other things than agents, and for agents of a killed node."""
    end: float | None = None
    key: str = ""
    """The name of a link fault in the network."""
    sides: tuple[tuple[str, ...], ...] = ()
    one_way: bool = False
    ends: dict[str, Callable[[], object]] = attrs.field(factory=dict[str, "Callable[[], object]"])
    """Functions that undo the fault on each agent, by path, if the agent does not recover by itself."""
    lift: Callable[[], object] | None = None
    """A function that ends a fault that lasts until a `heal`."""
    agents: dict[str, tuple[str, ...]] = attrs.field(factory=dict[str, tuple[str, ...]])
    """The paths on each network node that a restart has ended, by the node."""
    back_at: dict[str, float] = attrs.field(factory=dict[str, float])
    """The instant when each of these nodes was back."""


class FaultWorld(Protocol):
    """A target for faults of some kinds: agents, a machine, nodes, links or processes."""

    async def strike(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool) -> bool:
        """Inject a fault if this world handles its kind, and return whether it does; see `Faults.inject`."""
        ...


class Faults:
    """The injector of the faults of a run; it also ends faults, and keeps those in force.

    `watch` gets a record of each start and end.
    """

    def __init__(self, watch: Instrument, entropy: Entropy) -> None:
        self.worlds: list[FaultWorld] = []
        """The worlds of the run, each of which applies the faults that strike it."""
        self.before_look: Callable[[], object] = _do_nothing
        """Called before the faults in force are read."""
        self._watch = watch
        self._entropy = entropy
        self._struck: list[StruckFault] = []
        self._in_force: dict[StruckFault, None] = {}
        self._streams: dict[str, RandomStream] = {}

    async def inject(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool = True) -> None:
        """Inject a fault and wait for its immediate effects, such as restarts by supervisors.

        `id` is the name of the fault, or its place in the file. `wait=False` does not wait for restarts.
        Raises FaultFailed before any change.
        """
        for world in self.worlds:
            if await world.strike(fault, id, wait=wait):
                return
        raise AssertionError(f"no world has faults such as {fault}")  # the file should have been refused

    def stream(self, name: str) -> RandomStream:
        """Return the random stream with this name."""
        if name not in self._streams:
            self._streams[name] = self._entropy.stream(name)
        return self._streams[name]

    def begin(self, id: str, kind: str, left: dict[str, Slot | None]) -> StruckFault:
        """Add a fault that begins now, at the places in `left`, and return it."""
        struck = StruckFault(id, kind, tuple(left), trio.current_time(), left)
        self._struck.append(struck)
        self._in_force[struck] = None
        return struck

    def log(self, struck: StruckFault, place: str, fields: dict[str, object]) -> None:
        """Log the start of a fault at a place."""
        self._watch.record("fault", place, {"fault": struck.kind, "id": struck.id, **fields})

    def heal(self, struck: StruckFault, places: Sequence[str]) -> None:
        """End a fault at some of its places; once no place is left, the whole fault ends."""
        for place in places:
            struck.left.pop(place, None)
            if place in struck.agents:
                struck.back_at[place] = trio.current_time()
        if not struck.left:
            struck.end = trio.current_time()
            del self._in_force[struck]
        for place in places:
            fields = {"fault": struck.kind, "id": struck.id, **named_in_log(struck)}
            self._watch.record("healed", place, fields)

    def lift(self, id: str) -> None:
        """End the fault with an id that lasts until a `heal`. Raises FaultFailed if it is not in force."""
        lasting = (each.lift for each in self._in_force if each.id == id and each.lift is not None)
        lift = next(lasting, None)
        if lift is None:
            raise FaultFailed(f"the fault {id} in force", "it has not begun, or has ended")
        lift()

    def node_came_up(self, node: str | None = None) -> None:
        """Note that all agents of a killed node have restarted.

        `node` is a node of the network; None means that the whole node was killed.
        """
        for struck in self.present():
            if struck.kind == "restart":
                self.heal(struck, [each for each in struck.left if node in (None, each)])

    def present(self) -> tuple[StruckFault, ...]:
        """Return the faults in force, oldest first."""
        return tuple(self._in_force)

    @property
    def active(self) -> bool:
        """True while any fault is in force."""
        self.before_look()
        return bool(self._in_force)

    def cuts(self) -> tuple[Cut, ...]:
        """Return the cuts of the network that are in force, oldest first."""
        return tuple(
            Cut(
                struck.begin,
                struck.sides or ends_of_cut(struck.targets),
                one_way=struck.one_way,
                is_down=struck.kind == "restart",
            )
            for struck in self._in_force
            if struck.kind in ("partition", "swizzle", "disconnect")
            or (struck.kind == "restart" and struck.sides)
        )

    def healed(self, id: str) -> float | None:
        """Return the instant when the last fault with an id ended.

        Return None if a fault with that id is in force, or none has struck yet.
        """
        self.before_look()
        ends = [struck.end for struck in self._struck if struck.id == id]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None

    def results(self) -> tuple[FaultResult, ...]:
        """Return all faults in the order in which they struck; `end` is None for faults still in force."""
        self.before_look()
        return tuple(
            FaultResult(
                id=struck.id,
                kind=struck.kind,
                targets=struck.targets,
                begin=struck.begin,
                end=struck.end,
                sides=struck.sides,
                one_way=struck.one_way,
                restarted=tuple(
                    NodeRestart(node=node, agents=agents, end=struck.back_at.get(node))
                    for node, agents in struck.agents.items()
                ),
            )
            for struck in self._struck
        )


def _do_nothing() -> None:
    """Do nothing. This is the default of `before_look`, until a world of faults sets another function."""
