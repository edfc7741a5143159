"""Exposed agents and pools of a node, by public name, id and address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

import attrs

from lmos_actors.actors import Slot
from lmos_actors.supervision import Tree, class_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmos_actors.actors import Agent, PoolLink
    from lmos_actors.supervision import Supervisor

AGENTS: Final = "/agents/"
EXITED: Final = "lmosx:exited"
"""The event that tells monitors over a network that an incarnation has ended."""

KEPT: Final = 4096  # things that are found again without a search
FEW: Final = 64  # things that are kept without a check whether they are gone
LONGEST: Final = 2048  # characters of a thing's id


def public_name(path: str) -> str:
    """Return the public name of the agent or pool at a path of the tree.

    No name in a path contains a dot, so each public name stands for exactly one path.
    """
    return path.replace("/", ".")


def path_named(name: str) -> str:
    """Return the path in the tree that a public name stands for."""
    return name.replace(".", "/")


def name_in_path(path: str) -> str | None:
    """Return the public name at the end of a URL's path; None if it is not the address of an agent."""
    _, found, name = path.rpartition(AGENTS)
    return unquote(name) if found and name and "/" not in name else None


def name_in_url(url: str) -> str | None:
    """Return the public name of the agent at this address, None for any other address."""
    try:
        return name_in_path(urlsplit(url).path)
    except ValueError:  # such as a bracket that is not closed
        return None


@attrs.frozen
class Exposed:
    """An agent or a pool as it is seen over a network."""

    name: str
    thing_id: str
    link: Slot | PoolLink
    cls: type[Agent]
    """The class of the agent or pool; it is known also while no agent runs there."""


class Exposure:
    """The part of a node's tree that can be reached from outside: all agents but private ones, and pools.

    The list `bases` has the addresses at which the node is reached, such as `http://127.0.0.1:8080`. A thing
    that declares no id is identified by its address at the first of them.
    """

    def __init__(self, root: Supervisor, bases: Iterable[str] = ()) -> None:
        self.bases: tuple[str, ...] = tuple(base.rstrip("/") for base in bases)
        self._tree = Tree(root)
        self._found: dict[str, Slot | PoolLink] = {}
        self._room = FEW  # for this many more, until those that are gone are removed

    # ---- as a list

    def __iter__(self) -> Iterator[Exposed]:
        """Return everything that is exposed, in start order."""
        for link in self._tree.links():
            exposed = self._exposed(link)
            if exposed is not None:
                yield exposed

    def names(self) -> Iterator[str]:
        """Return all public names, in start order."""
        for link in self._tree.links():
            if not is_private(link):
                yield public_name(link.path)

    def named(self, name: str) -> Exposed | None:
        """Return the agent or pool that is exposed under a public name, None if there is none."""
        link = self.at(name)
        return None if link is None else self._exposed(link)

    def _exposed(self, link: Slot | PoolLink) -> Exposed | None:
        cls = class_at(link)
        if (
            cls is None or cls.__contract__.options.private
        ):  # None: a factory that does not tell, and no agent yet
            return None
        name = public_name(link.path)
        return Exposed(name, self._id_of(link, name), link, cls)

    def _id_of(self, link: Slot | PoolLink, name: str) -> str:
        own: str | None = link.spec.id if isinstance(link, Slot) else None
        return own or self.address(name)

    def address(self, name: str) -> str:
        """Return the canonical address of the agent or pool with a public name."""
        base = self.bases[0] if self.bases else ""
        return f"{base}{AGENTS}{quote(name, safe='')}"

    def pool_of(self, name: str) -> str | None:
        """Return the public name of the pool to which an agent name belongs; None if there is no pool."""
        above = name.rpartition(".")[0]
        link = self.at(above) if above else None
        return None if link is None or isinstance(link, Slot) else public_name(link.path)

    # ---- by a consumer's name for it

    def thing_at(self, target: str) -> str | None:
        """Return the id of the thing that a message without an id means, on a socket at an agent's address.

        If no such thing exists now, the name is returned, so that the answers show that it does not exist.
        """
        name = name_in_path(target.partition("?")[0])
        if name is None:
            return None
        exposed = self.named(name)
        return name if exposed is None else exposed.thing_id

    def find(self, thing_id: str) -> Slot | PoolLink | None:
        """Return the agent or pool that a consumer names by an id, an address, a name, or a path.

        An address ends in `/agents/NAME`. A lookup takes constant time, because a thing that was found is
        remembered until it has been removed.
        """
        found = self._found.get(thing_id)
        if found is not None and not found.gone:
            return found
        found = self._look(thing_id)
        if found is None:
            self._found.pop(thing_id, None)
        else:
            self._keep(thing_id, found)
        return found

    def _keep(self, thing_id: str, found: Slot | PoolLink) -> None:
        """Remember the agent or pool that was found for an id.

        Agents appear and disappear under ever new names, and removed ones are not looked up again. So all
        entries are checked whenever as many have been added as the last check had left.
        """
        self._room -= 1
        if self._room < 0:
            self._found = {said: link for said, link in self._found.items() if not link.gone}
            self._room = max(FEW, len(self._found))
        self._found[thing_id] = found
        if len(self._found) > KEPT:
            del self._found[next(iter(self._found))]

    def at(self, name: str) -> Slot | PoolLink | None:
        """Return the agent or pool with a public name or path; None if there is none."""
        found = self._tree.at(path_named(name))
        return None if found is None or is_private(found) else found

    def _look(self, thing_id: str) -> Slot | PoolLink | None:
        if len(thing_id) > LONGEST:
            return None
        found = self._tree.by_id(thing_id)
        if found is not None:
            return found
        name = _named(thing_id)
        return None if name is None else self.at(name)


def is_private(link: Slot | PoolLink) -> bool:
    """Return whether an agent is an inner part of another one, which no peer may reach."""
    cls = class_at(link)
    return cls is not None and bool(cls.__contract__.options.private)


def name_meant(thing_id: str) -> str:
    """Return the public name that a consumer means, whether there is such a thing or not."""
    thing_id = thing_id[:LONGEST]
    return public_name(_named(thing_id) or thing_id)


def _named(thing_id: str) -> str | None:
    if "://" not in thing_id:
        return thing_id.removeprefix(AGENTS)
    return name_in_url(thing_id)
