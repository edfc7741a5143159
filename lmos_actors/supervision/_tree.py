"""A running tree as a whole: who is in it, who is found by class and name, and how it is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.actors import Slot

from ._agent_supervisor import children_of
from ._children import agent_class
from ._pool import PoolSupervisor
from ._supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.actors import Agent, PoolLink


def agents_of(supervisor: Supervisor) -> Iterator[Slot]:
    """Return the slots of all agents below, in start order, whatever their status."""
    for _, child in _below(supervisor):
        if isinstance(child, Slot):
            yield child


def supervisors_of(supervisor: Supervisor) -> Iterator[Supervisor]:
    """Return the supervisor and all supervisors below, those of agents' children too, in start order."""
    yield supervisor
    for _, child in _below(supervisor):
        below = _branch(child)
        if below is not None:
            yield below


def _below(supervisor: Supervisor) -> Iterator[tuple[int, Slot | Supervisor]]:
    """Return all children below with their level, 1 and up, in start order. A tree may be of any depth."""
    levels = [iter(supervisor.children)]
    while levels:
        child = next(levels[-1], None)
        if child is None:
            levels.pop()
            continue
        yield len(levels), child
        branch = _branch(child)
        if branch is not None:
            levels.append(iter(branch.children))


def _branch(child: Slot | Supervisor) -> Supervisor | None:
    """Return the supervisor that a child is, or that an agent has for its children."""
    return child if isinstance(child, Supervisor) else children_of(child)


def draw(supervisor: Supervisor) -> list[str]:
    """Draw the tree as lines of text, with the state of every child."""
    lines = [f"{supervisor.label} {_limits(supervisor)}"]
    for level, child in _below(supervisor):
        words = ["  " * level + child.label]
        if isinstance(child, Slot):
            words.append(f"{child.status} #{child.incarnation}")
        branch = _branch(child)
        if branch is not None:
            words.append(_limits(branch))
        lines.append(" ".join(words))
    return lines


def _limits(supervisor: Supervisor) -> str:
    spec = supervisor.spec
    kind: str = spec.strategy
    if isinstance(supervisor, PoolSupervisor):
        kind = f"pool of {len(supervisor.link.members)}, {supervisor.pool_spec.by}"
    return f"({kind}, {spec.max_restarts} in {spec.max_seconds:g} s)"


class Tree:
    """Finds agents and pools in the tree of one node, in start order, pools before their members."""

    def __init__(self, root: Supervisor) -> None:
        self._root = root

    def at(self, path: str) -> Slot | PoolLink | None:
        """Return what is at that place in the tree, in time that grows with the depth alone."""
        return _by_path(self._root, None, path)

    def links(self) -> Iterator[Slot | PoolLink]:
        """Return the links to all agents and pools, in start order."""
        return map(_link, _addressable(self._root))

    def every(
        self, cls: type | None, name: str | None
    ) -> Iterator[tuple[Slot | PoolLink, type[Agent] | None]]:
        """Return all agents and pools of that class and name; see `Resolver`."""
        for child in _addressable(self._root):
            if is_member(child):
                continue
            if (name is None or name in (child.label, child.path)) and _is_a(child, cls):
                yield _link(child), _class_of(child)

    def resolve(self, cls: type | None, name: str | None) -> Slot | PoolLink | None:
        """Return the link to an agent or a pool; see `Resolver`."""
        if name is not None:
            found = _by_path(self._root, cls, name)
            if found is not None or "/" in name:
                return found
        for child in _addressable(self._root):
            if (name is None or child.label == name) and _is_a(child, cls):
                return _link(child)
        return None


def is_member(link: Any) -> bool:
    """Return whether this is a member of a pool, which is reached by the pool."""
    return isinstance(link, Slot) and isinstance(link.owner, PoolSupervisor)


def _addressable(supervisor: Supervisor) -> Iterator[Slot | PoolSupervisor]:
    for _, child in _below(supervisor):
        if isinstance(child, Slot | PoolSupervisor):
            yield child


def _by_path(root: Supervisor, cls: type | None, path: str) -> Slot | PoolLink | None:
    *above, name = path.split("/")
    here = root
    for step in above:
        child = here.named(step)
        below = None if child is None else _branch(child)
        if below is None:
            return None
        here = below
    found = here.named(name)
    if not isinstance(found, Slot | PoolSupervisor) or not _is_a(found, cls):
        return None
    return _link(found)


def _link(child: Slot | PoolSupervisor) -> Slot | PoolLink:
    return child if isinstance(child, Slot) else child.link


def _is_a(child: Slot | PoolSupervisor, cls: type | None) -> bool:
    if cls is None:
        return True
    try:
        return _is_of(child, cls)
    except TypeError:
        if isinstance(cls, type):  # pyright: ignore[reportUnnecessaryIsInstance] # the factory's own
            raise
        raise TypeError(f"find takes an agent class, then perhaps a name, not {cls!r}") from None


def _is_of(child: Slot | PoolSupervisor, cls: type) -> bool:
    slot = _some_slot(child)
    if slot is not None and slot.agent is not None:
        return isinstance(slot.agent, cls)
    made = _made_by(child)
    return made is not None and issubclass(made, cls)


def _some_slot(child: Slot | PoolSupervisor) -> Slot | None:
    return child if isinstance(child, Slot) else next(iter(child.link.members), None)


def _made_by(child: Slot | PoolSupervisor) -> type[Agent] | None:
    return agent_class(child.spec if isinstance(child, Slot) else child.pool_spec.member(1))


def _class_of(child: Slot | PoolSupervisor) -> type[Agent] | None:
    slot = _some_slot(child)
    agent: Agent | None = None if slot is None else slot.agent
    return type(agent) if agent is not None else _made_by(child)
