"""The agents of a node as a whole: queries for them, resolvers of queries, and their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

import attrs

from lmos_actors.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Spread: TypeAlias = Literal["round_robin", "least_loaded", "key"]
SPREADS: Final[tuple[str, ...]] = get_args(Spread)


@attrs.frozen
class AgentQuery:
    """A query for agents, which finds those that match all of its fields."""

    cls: type | None = None
    name: str | None = None
    title: str | None = None
    type: str | None = None
    capability: str | None = None
    affordance: str | None = None
    is_place: bool = False
    """Whether the name is a path from the root, and means only the agent at that place."""
    node: str | None = None
    """The node of a simulated network on which the agents are, where there is one."""
    id: str | None = None
    """The key of the agent (`ChildSpec.key`), which one node at a time runs."""

    def __attrs_post_init__(self) -> None:
        for word in ("name", "title", "type", "capability", "affordance", "id"):
            said = getattr(self, word)
            if said is not None and not isinstance(said, str):
                raise TypeError(f"{word} must be a text, not {said!r}")

    @property
    def is_plain(self) -> bool:
        """Whether the query asks for no title, type, capability or affordance."""
        return self.title is self.type is self.capability is self.affordance is None

    @property
    def shown(self) -> str:
        """The text of the query, for people."""
        return ", ".join(filter(None, (self._first, self._criteria))) or "any"

    def missing(self, where: str) -> NotFound:
        """Return the error for a query that finds no agent on `where`."""
        criteria = self._criteria
        return NotFound("agent", self._first or ("" if criteria else "any"), where=where, criteria=criteria)

    @property
    def _first(self) -> str:
        """The name, or else the name of the class; "" if the query has neither."""
        return self.name or (self.cls.__name__ if self.cls is not None else "")

    @property
    def _criteria(self) -> str:
        """The criteria besides the name, as text; they include the class if there are others."""
        said = {"title": self.title, "type": self.type, "capability": self.capability}
        said |= {"affordance": self.affordance, "id": self.id}
        words = [f"{word} {each!r}" for word, each in said.items() if each is not None]
        if words and self.name and self.cls is not None:
            words.insert(0, f"class {self.cls.__name__}")
        return ", ".join(words)

    def is_met(
        self, title: str | None, types: Sequence[str], capabilities: Sequence[str], affordances: Sequence[str]
    ) -> bool:
        """Return whether a description matches the query, apart from class and name."""
        return (
            (self.title is None or self.title == title)
            and (self.type is None or self.type in types)
            and (self.capability is None or self.capability in capabilities)
            and (self.affordance is None or self.affordance in affordances)
        )


class Resolver(Protocol):
    """The lookup of near agents; set by the node."""

    def resolve(self, cls: type | None, name: str | None) -> Any:
        """Return the link to an agent of a class, by name or the first started; None if there is none."""
        ...

    def at(self, path: str) -> Any:
        """Return the link to the agent or pool at a path from the root, or None."""
        ...

    def every(self, cls: type | None, name: str | None) -> Iterator[tuple[Any, type | None]]:
        """Yield all matching agents in start order, with their classes; a pool counts without its members."""
        ...


class RemoteLookup(Protocol):
    """The lookup of agents in other nodes; set by a node that searches directories."""

    def beyond(self, sought: AgentQuery, /) -> Any:
        """Return a link to the wanted agent, which is in another node."""
        ...


class RelayLookup(Protocol):
    """The lookup of agents on a relay to which an agent of the node is connected."""

    def on_relay(self, sought: AgentQuery, /) -> Any:
        """Return the link to a wanted agent on the relay, or None if the agent is unknown."""
        ...


class Spreading(Protocol):
    """A function that makes a link to all agents found by a query; each request goes to one of them."""

    def __call__(self, wanted: AgentQuery, by: Spread, key: str | None, /) -> Any:
        """Make the link to all agents that the query finds."""
        ...


class Population:
    """The agents of a node's tree: a version number that grows with each change, and its listeners."""

    __slots__ = ("version", "watchers")

    def __init__(self) -> None:
        self.version = 0
        self.watchers: list[Callable[[str], None]] = []
        """Called with the path of what has started or is gone for good; must not raise."""

    def changed(self, children: Iterable[Any]) -> None:
        """Note that these children have started or restarted, or that their slots are permanently empty."""
        self.version += 1
        for callback in self.watchers:
            for child in children:
                callback(child.path)
