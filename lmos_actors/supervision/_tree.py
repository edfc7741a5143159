"""A running tree as a whole: who is in it, who is found by class and name, and how it is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.actors import LocalLink

from ._children import agent_class
from ._household import children_of
from ._pool import PoolSupervisor
from ._supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.actors import PoolLink


def agents_of(supervisor: Supervisor) -> Iterator[LocalLink]:
    """Give the slots of all agents below, in start order, whatever their status."""
    for child in supervisor.children:
        if isinstance(child, Supervisor):
            yield from agents_of(child)
            continue
        yield child
        below = children_of(child)
        if below is not None:
            yield from agents_of(below)


def supervisors_of(supervisor: Supervisor) -> Iterator[Supervisor]:
    """Give the supervisor and all supervisors below, those of agents' children too, in start order."""
    yield supervisor
    for child in supervisor.children:
        below = _below(child)
        if below is not None:
            yield from supervisors_of(below)


def _below(child: LocalLink | Supervisor) -> Supervisor | None:
    """Give the supervisor that a child is, or that an agent has for its children."""
    return child if isinstance(child, Supervisor) else children_of(child)


def draw(supervisor: Supervisor, indent: str = "") -> list[str]:
    """Draw the tree as lines of text, with the state of every child."""
    kind: str = supervisor.spec.strategy
    if isinstance(supervisor, PoolSupervisor):
        kind = f"pool of {len(supervisor.link.members)}, {supervisor.pool_spec.by}"
    return _draw(supervisor, f"{indent}{supervisor.label}", kind, indent + "  ")


def _draw(supervisor: Supervisor, head: str, kind: str, indent: str) -> list[str]:
    spec = supervisor.spec
    lines = [f"{head} ({kind}, {spec.max_restarts} in {spec.max_seconds:g} s)"]
    for child in supervisor.children:
        if isinstance(child, Supervisor):
            lines += draw(child, indent)
            continue
        head = f"{indent}{child.label} {child.status} #{child.incarnation}"
        below = children_of(child)
        lines += [head] if below is None else _draw(below, head, below.spec.strategy, indent + "  ")
    return lines


class Tree:
    """Finds agents and pools in the tree of one node, in start order (L3), pools before their members."""

    def __init__(self, root: Supervisor) -> None:
        self._root = root

    def resolve(self, cls: type | None, name: str | None) -> LocalLink | PoolLink | None:
        """Give the link to an agent or a pool; see `Resolver`."""
        if name is not None and "/" in name:
            return _by_path(self._root, cls, name)
        for child in _addressable(self._root):
            if (name is None or child.label == name) and _is_a(child, cls):
                return _link(child)
        return None


def _addressable(supervisor: Supervisor) -> Iterator[LocalLink | PoolSupervisor]:
    for child in supervisor.children:
        if isinstance(child, PoolSupervisor):
            yield child
        if isinstance(child, LocalLink):
            yield child
        below = _below(child)
        if below is not None:
            yield from _addressable(below)


def _by_path(root: Supervisor, cls: type | None, path: str) -> LocalLink | PoolLink | None:
    *above, name = path.split("/")
    here = root
    for step in above:
        child = _named(here, step)
        below = None if child is None else _below(child)
        if below is None:
            return None
        here = below
    found = _named(here, name)
    if not isinstance(found, LocalLink | PoolSupervisor) or not _is_a(found, cls):
        return None
    return _link(found)


def _named(supervisor: Supervisor, name: str) -> LocalLink | Supervisor | None:
    return next((child for child in supervisor.children if child.label == name), None)


def _link(child: LocalLink | PoolSupervisor) -> LocalLink | PoolLink:
    return child if isinstance(child, LocalLink) else child.link


def _is_a(child: LocalLink | PoolSupervisor, cls: type | None) -> bool:
    if cls is None:
        return True
    slot = child if isinstance(child, LocalLink) else next(iter(child.link.members), None)
    if slot is not None and slot.agent is not None:
        return isinstance(slot.agent, cls)
    made = agent_class(child.spec if isinstance(child, LocalLink) else child.pool_spec.member(1))
    return made is not None and issubclass(made, cls)
