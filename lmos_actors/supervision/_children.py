"""Tables of a supervisor's children (names, numbers, ids), and properties of child specs.

A supervisor may have hundreds of thousands of children. A table by name would cost an entry and a text for
each of them. So children that `start_many` has started, or that were started without a name, are in no table:
their name is the name of their spec and a number. The index of such names is built when one of them is looked
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import attrs

from lmos_actors.actors import DEFAULT_MAILBOX, Slot, class_made_by, outline_of
from lmos_actors.errors import ConfigError, IdTaken

from ._siblings import class_of
from ._spec import ChildSpec, Pool, SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmos_actors.actors import MailboxOptions, Runtime, Status

    from ._siblings import Sibling
    from ._spec import Spec

C = TypeVar("C", bound="Labelled")


class Labelled(Protocol):
    """A child that has a name within its supervisor."""

    @property
    def label(self) -> str:
        """The child's name within its supervisor."""
        ...


DIGITS: Final = 16
"""The number in a name has fewer digits: no counter gets that far."""


@attrs.frozen
class ChildInfo:
    """Information about one child, as `which_children` returns it; `kind` is `agent` or `supervisor`.

    `restored`: whether its incarnation began with state from the store; None unless it is a durable agent.
    """

    name: str
    path: str
    kind: str
    status: Status
    incarnation: int
    restored: bool | None = None


class Names(Generic[C]):
    """The names of one supervisor's children, and the used numbers, which are kept over its incarnations.

    Numbered children (see the module docstring) are found by an index that is built at the first lookup.
    """

    __slots__ = ("_chosen", "_index", "_named", "_numbers")

    def __init__(self) -> None:
        self._named: dict[str, C] = {}
        self._numbers: dict[str, int] = {}  # by base name: the last number used
        self._chosen: dict[str, int] = {}  # by base name: the highest number in a name chosen by a spec
        self._index: dict[str, C] | None = None

    def __iter__(self) -> Any:
        return iter(self._named)

    def find(self, name: str, children: dict[C, None]) -> C | None:
        """Return the child with a name, or None; `children` are all children in start order."""
        found = self._named.get(name)
        if found is not None:
            return found
        if not self._numbers:
            return None
        base, number = _parted(name)
        if not 0 < number <= self._numbers.get(base, 0):  # no number that was used up
            return None
        if self._index is None:
            self._index = {}
        found = self._index.get(name)
        if found is None:
            self._catch_up(self._index, children)
            found = self._index.get(name)
        return found if found in children else None

    @staticmethod
    def _catch_up(index: dict[str, C], children: dict[C, None]) -> None:
        """Add to the index the children that are newer than it; they are the last in order."""
        for child in reversed(children):
            label = child.label
            if index.get(label) is child:
                return
            index[label] = child

    def add(self, name: str, child: C) -> None:
        """Register the name of a child."""
        self._named[name] = child
        base, number = _parted(name)
        if number:
            self._chosen[base] = max(self._chosen.get(base, 0), number)

    def forget(self, name: str, child: C) -> None:
        """Remove the name if it still belongs to that child."""
        for names in (self._named, self._index):
            if names is not None and names.get(name) is child:
                del names[name]

    def clear(self) -> None:
        """Remove all names; used numbers are not used again."""
        self._named.clear()
        self._index = None

    def first_free(self, base: str) -> str:
        """Return the first free of the names `base`, `base-2`, `base-3`, …"""
        name = base
        while name in self._named:
            self._numbers[base] = self._numbers.get(base, 1) + 1
            name = f"{base}-{self._numbers[base]}"
        return name

    def next_number(self, base: str) -> int | None:
        """Reserve the number of the first free name of `base-2`, `base-3`, …; None if `base` is free."""
        if base not in self._named:
            return None
        number = self._numbers.get(base, 1) + 1
        if self._chosen and number <= self._chosen.get(base, 0):
            while f"{base}-{number}" in self._named:
                number += 1
        self._numbers[base] = number
        return number

    def reserve(self, base: str, count: int) -> int:
        """Reserve `count` numbers above the numbers of all children named `base-n`, and return the first."""
        taken = (number for head, number in map(_parted, self._named) if head == base)
        first = max(self._numbers.get(base, 0), *taken, 0) + 1
        self._numbers[base] = first + count - 1
        return first


def _parted(name: str) -> tuple[str, int]:
    """Split a name such as `echo-2` into its base and its number; the number is 0 if there is none."""
    base, dash, number = name.rpartition("-")
    return (base, int(number)) if dash and len(number) < DIGITS and number.isdecimal() else (name, 0)


def agent_class(spec: ChildSpec[Any]) -> type[Any] | None:
    """Return the agent class a spec makes, through partials; None if only a call would reveal the class."""
    return class_of(spec.factory)


def mailbox_of(spec: ChildSpec[Any]) -> MailboxOptions:
    """Return the mailbox options of a spec's agents: from the spec, else from the class, else the default."""
    options: MailboxOptions | None = spec.mailbox
    if options is None:
        contract = _contract_of(spec)
        options = contract.mailbox if contract is not None else None
    return options or DEFAULT_MAILBOX


def needs_waiting(spec: ChildSpec[Any]) -> bool:
    """Return whether starting an agent of this spec may have to wait: for lifespan, children or store.

    An optional agent counts too: its supervisor starts it later.
    """
    contract = _contract_of(spec)
    waits = contract is None or contract.has_lifespan or contract.has_children or contract.state
    return bool(waits or spec.optional)


def is_durable(spec: ChildSpec[Any]) -> bool:
    """Return whether agents of this spec keep their state in the node's store."""
    contract = _contract_of(spec)
    return contract is not None and contract.state is not None


async def read_states(rt: Runtime, children: Iterable[tuple[Spec, str]]) -> None:
    """Read ahead the stored states of agents that are about to start, given by their specs and paths."""
    if rt.keeping is not None:
        keys = {
            spec.key or path: spec.key is not None
            for spec, path in children
            if isinstance(spec, ChildSpec) and _may_be_durable(spec)
        }
        if len(keys) > 1:
            await rt.keeping.read_ahead(keys)


def _may_be_durable(spec: ChildSpec[Any]) -> bool:
    """Return whether agents of this spec keep their state, or may keep it, as their class is unknown."""
    contract = _contract_of(spec)
    return contract is None or contract.state is not None


def has_durable_agents(spec: Spec) -> bool:
    """Return whether agents of a tree keep their state in the node's store, as far as its specs show."""
    if isinstance(spec, SupervisorSpec):
        return any(map(has_durable_agents, spec.children))
    if isinstance(spec, Pool):
        return is_durable(spec.member(1))
    return is_durable(spec if isinstance(spec, ChildSpec) else spec.member)


def _contract_of(spec: ChildSpec[Any]) -> Any:
    return outline_of(class_made_by(spec.factory))


# ---- ids, and the names that children of the root may not have

RESERVED: Final = (
    "agents", "api", "arc", "events", "healthz", "metrics", "readyz", "search", "things", "ws",
)  # fmt: skip
"""Names that no agent or pool right below the root may have: a node serves something else at that address.

They are reserved whether the node listens or not, so that a tree is valid everywhere. A supervisor may have
such a name: it is not reached over the network, and the addresses of its children begin with its name.
`.well-known` and `openapi.json` are not among them: no name has a dot.
"""


class Ids:
    """The ids of the agents of one node, in all of its supervisors.

    An agent has its id for as long as its slot exists, even while it is stopped or restarting.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}

    def get(self, id: str) -> Slot | None:
        """Return the slot of the agent with an id, or None if there is none."""
        return self._slots.get(id)

    def check(self, specs: Iterable[Spec], owner: object) -> None:
        """Raise IdTaken if an agent that is not a child of `owner` has the id of one of these specs."""
        for spec in specs:
            held = self._slots.get(spec.id) if isinstance(spec, ChildSpec) and spec.id is not None else None
            if held is not None and held.owner is not owner:
                raise IdTaken(held.spec.id, held.path)

    def take(self, slot: Slot) -> None:
        """Register the id of an agent, if it has one. Call `check` first."""
        if slot.spec.id is not None:
            self._slots[slot.spec.id] = slot

    def free(self, slot: Slot) -> None:
        """Remove the id of an agent whose child spec has been removed."""
        if self._slots.get(slot.spec.id) is slot:
            del self._slots[slot.spec.id]


def check_top(spec: Spec) -> None:
    """Raise ConfigError if a new child of the root is an agent or a pool with a reserved name."""
    if spec.name in RESERVED and isinstance(spec, ChildSpec | Pool):
        raise ConfigError(
            f"an agent cannot be called {spec.name!r}: the node serves something else at /{spec.name}"
        )


def check_beside(spec: Spec, place_of: Callable[[Sibling], str], resolver: Any) -> None:
    """Raise ConfigError unless each agent that a new child refers to exists and has the right class."""
    if isinstance(spec, ChildSpec | Pool):
        references = spec.references
    else:
        references = tuple(reference.from_above(spec.name) for reference in spec.outward)
    for reference in references:
        path = place_of(reference.sibling)
        found = None if resolver is None else resolver.at(path)
        if found is None:
            raise ConfigError(f"there is no agent {path!r} in this node", reference.place)
        placed = found if isinstance(found, Slot) else found.placed
        made_from = placed.spec if isinstance(placed, Slot) else placed.made_from
        reference.check_class(class_of(made_from.factory))
