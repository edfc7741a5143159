"""A running tree as a whole: its agents and supervisors, lookup by class, name or id, and drawing."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from lmos_actors.actors import PoolLink, Slot

from ._agent_supervisor import children_of
from ._children import agent_class
from ._loop import SupervisorLoop
from ._members import PoolMembers, lose_children, regain_children
from ._spec import Pool
from ._supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmos_actors.actors import Agent

    from ._loop import Child

Addressable: TypeAlias = "Slot | PoolLink"
"""An agent or a pool: what messages can reach."""


def agents_of(supervisor: Supervisor) -> Iterator[Slot]:
    """Return the slots of all agents below, in start order, whatever their status."""
    for _, child in _below(supervisor.loop):
        if isinstance(child, Slot):
            yield child


def supervisors_of(supervisor: Supervisor) -> Iterator[Supervisor]:
    """Return the supervisor and all supervisors below, including those of agents, in start order."""
    yield supervisor
    for _, child in _below(supervisor.loop):
        loop = _loop_of(child)
        if loop is not None:
            yield Supervisor(loop)


def _below(loop: SupervisorLoop) -> Iterator[tuple[int, Child]]:
    """Return all children below with their level (1 and up), in start order. A tree may have any depth."""
    levels = [iter(tuple(loop.plan.children))]
    while levels:
        child = next(levels[-1], None)
        if child is None:
            levels.pop()
            continue
        yield len(levels), child
        below = _loop_of(child)
        if below is not None:
            levels.append(iter(tuple(below.plan.children)))


def _loop_of(child: Child) -> SupervisorLoop | None:
    """Return the loop of a child: a supervisor's own, or that of an agent's children; None if it has none."""
    if isinstance(child, SupervisorLoop):
        return child
    children = children_of(child)
    return None if children is None else children.loop


def size_of(supervisor: Supervisor) -> int:
    """Return how many children a supervisor has, whatever their status."""
    return len(supervisor.loop.plan.children)


def children_between(supervisor: Supervisor, begin: int, end: int) -> list[Slot | Supervisor]:
    """Return the children whose number, in start order, is from `begin` up to, but not including, `end`."""
    return [_as_place(child) for child in islice(supervisor.loop.plan.children, begin, max(begin, end))]


def numbered_children(supervisor: Supervisor, names: Iterable[str]) -> list[tuple[int, Slot | Supervisor]]:
    """Return the children with these names and their numbers, in start order; unknown names are skipped.

    If no name is known, no child is visited; otherwise this takes one pass over all children.
    """
    sought = {supervisor.loop.members.find(name) for name in names} - {None}
    if not sought:
        return []
    children = enumerate(supervisor.loop.plan.children)
    return [(number, _as_place(child)) for number, child in children if child in sought]


def _as_place(child: Child) -> Slot | Supervisor:
    return child if isinstance(child, Slot) else Supervisor(child)


def place_at(root: Supervisor, path: str) -> Slot | Supervisor | None:
    """Return the agent or supervisor at a path, or None if there is none; the path of the root is empty."""
    here: Slot | Supervisor | None = root
    for name in path.split("/") if path else ():
        below = children_of(here) if isinstance(here, Slot) else here
        found = None if below is None else below.loop.members.find(name)
        here = Supervisor(found) if isinstance(found, SupervisorLoop) else found
    return here


def draw(supervisor: Supervisor) -> list[str]:
    """Draw the tree as lines of text, with the state of every child."""
    lines = [f"{supervisor.label} {_limits(supervisor.loop)}"]
    for level, child in _below(supervisor.loop):
        words = ["  " * level + child.label]
        if isinstance(child, Slot):
            words.append(f"{child.status} #{child.incarnation}" + (" restored" if child.restored else ""))
        loop = _loop_of(child)
        if loop is not None:
            words.append(_limits(loop))
        lines.append(" ".join(words))
    return lines


def _limits(loop: SupervisorLoop) -> str:
    spec, pool = loop.spec, loop.made_from
    kind: str = spec.strategy
    if isinstance(pool, Pool):
        kind = f"pool of {len(spec.children)}, {pool.by}"
    return f"({kind}, {spec.max_restarts} in {spec.max_seconds:g} s)"


class Tree:
    """A finder of agents and pools in the tree of one node, in start order, pools before their members."""

    def __init__(self, root: Supervisor) -> None:
        self._root = root.loop

    def at(self, path: str) -> Addressable | None:
        """Return the agent or pool at a path, or None; the time depends only on the depth of the path."""
        return self._at(path, None)

    def by_id(self, id: str) -> Slot | None:
        """Return the agent to which the id was given, or None if there is none."""
        return self._root.ids.get(id)

    def links(self) -> Iterator[Addressable]:
        """Return the links to all agents and pools, in start order."""
        for _, child in _below(self._root):
            link = _link(child)
            if link is not None:
                yield link

    def every(self, cls: type | None, name: str | None) -> Iterator[tuple[Addressable, type[Agent] | None]]:
        """Yield all agents and pools with a class and name; see `Resolver`."""
        for link in self.links():
            if is_member(link):
                continue
            if (name is None or name in (_label(link), link.path)) and _is_a(link, cls):
                yield link, class_at(link)

    def resolve(self, cls: type | None, name: str | None) -> Addressable | None:
        """Return the link to an agent or a pool; see `Resolver`."""
        if name is not None:
            found = self._at(name, cls)
            if found is not None or "/" in name:
                return found
        for link in self.links():
            if (name is None or _label(link) == name) and _is_a(link, cls):
                return link
        return None

    def _at(self, path: str, cls: type | None) -> Addressable | None:
        *above, name = path.split("/")
        here = self._root
        for step in above:
            child = here.members.find(step)
            below = None if child is None else _loop_of(child)
            if below is None:
                return None
            here = below
        found = here.members.find(name)
        link = None if found is None else _link(found)
        return link if link is not None and _is_a(link, cls) else None


def is_member(link: Any) -> bool:
    """Return whether a link leads to a member of a pool; messages reach it through the pool."""
    if not isinstance(link, Slot):
        return False
    owner: Any = link.owner
    return isinstance(owner.made_from, Pool)


def _link(child: Child) -> Addressable | None:
    """Return the link to a child that can receive messages, or None for a supervisor."""
    if isinstance(child, Slot):
        return child
    return child.members.link if isinstance(child.members, PoolMembers) else None


def _label(link: Addressable) -> str:
    return link.label if isinstance(link, Slot) else link.path.rpartition("/")[2]


def _is_a(link: Addressable, cls: type | None) -> bool:
    if cls is None:
        return True
    try:
        slot = link if isinstance(link, Slot) else next(iter(link.members), None)
        if slot is not None and slot.agent is not None:
            return isinstance(slot.agent, cls)
        made = class_at(link)
        return made is not None and issubclass(made, cls)
    except TypeError:
        if isinstance(cls, type):  # pyright: ignore[reportUnnecessaryIsInstance] # the factory's own
            raise
        raise TypeError(f"find takes an agent class, then perhaps a name, not {cls!r}") from None


def class_at(link: Any) -> type[Agent] | None:
    """Return the class of the agents at a place in the tree, or None if only a call would reveal it."""
    if isinstance(link, Slot):
        agent: Agent | None = link.agent
        return type(agent) if agent is not None else agent_class(link.spec)
    if link.members:
        return class_at(link.members[0])
    placed: SupervisorLoop = link.placed
    pool = placed.made_from
    return agent_class(pool.member(1)) if isinstance(pool, Pool) else None


# ---- parts of a tree whose machine ends, in simulations


def lose(above: Supervisor, children: Iterable[Slot | Supervisor]) -> None:
    """End children of a supervisor at once, with all below them, because their machine ends. Never blocks.

    No limit counts these ends, and no strategy stops siblings. The children remain stopped until `regain`.
    """
    lose_children(above.loop, map(_child_of, children))


async def wait_unwound(children: Iterable[Slot | Supervisor]) -> None:
    """Wait until children that were lost have unwound, with all below them."""
    for child in children:
        await (child.wait_down() if isinstance(child, Slot) else child.loop.stop())


async def regain(above: Supervisor, children: Iterable[Slot | Supervisor]) -> None:
    """Start lost children again, in the given order, once they have unwound; this is not a restart.

    A child that cannot start is restarted as after any failed start. Raises WrongState if the supervisor does
    not run.
    """
    loop = above.loop
    for child in children:
        for slot in (child,) if isinstance(child, Slot) else agents_of(child):
            slot.life_lost()
        for below in () if isinstance(child, Slot) else supervisors_of(child):
            below.loop.lives_lost += min(below.incarnation, 1)
    await loop.request(partial(regain_children, loop, tuple(map(_child_of, children))))


def restarts_of(supervisor: Supervisor) -> int:
    """Return how often a supervisor has been restarted; starts after a loss do not count."""
    return max(0, supervisor.incarnation - 1 - supervisor.loop.lives_lost)


def _child_of(face: Slot | Supervisor) -> Child:
    return face if isinstance(face, Slot) else face.loop
