"""Candidates for a request: the agents that are sought, of this node and elsewhere, and the choice of one."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from lmos_actors.actors import MISSING, key_text, near_links
from lmos_actors.errors import AgentUnavailable, InvalidInput, NotAllowed, NotFound

from ._lookup import Known, Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import AgentQuery, Operation, Runtime, Spread
    from lmos_actors.errors import AgentError

    from ._lookup import Lookup

_PROPERTIES = "?="  # how the keys of reading and writing begin


class Candidates:
    """All agents that are sought, near and far, and the choice of the next.

    Without `by` it is one agent elsewhere, for as long as that can be reached. `id_of` gives the id by which
    others know an agent of this node.
    """

    def __init__(
        self,
        rt: Runtime,
        lookup: Lookup | None,
        id_of: Callable[[Any], str],
        sought: AgentQuery,
        by: Spread | None,
        key: str | None,
    ) -> None:
        self.rt = rt
        self.sought = sought
        self.by = by
        self._key = key
        self.known = None if lookup is None else Known(lookup, sought)
        self._id_of = id_of
        self._near: list[Replica] = []
        self._seen = -1
        self._next = 0
        self.current: Replica | None = None

    # ---- who there is

    def members(self) -> list[Replica]:
        """Return all that are sought and known: those of this node first, in start order, others by id."""
        if self.by is not None and self._seen != self.rt.population.version:
            self._seen = self.rt.population.version
            kept = {each.link: each for each in self._near}
            links = near_links(self.rt, self.sought)
            self._near = [kept.get(link) or Replica.near(self._id_of(link), link) for link in links]
        return [*self._near, *self.known.replicas.values()] if self.known is not None else self._near

    @property
    def is_settled(self) -> bool:
        """Whether it leads to one agent elsewhere, which has been found."""
        current, known = self.current, self.known
        return current is not None and known is not None and known.replicas.get(current.id) is current

    def settled(self) -> Any:
        """Return the link that it leads to.

        Raises AgentUnavailable, and NotAllowed where there are several.
        """
        if self.by is not None:
            raise NotAllowed(f"{self.path!r} is several agents, this takes one: use node.search(...)")
        if self.current is None or not self.is_settled:
            raise AgentUnavailable(self.path, "it has not been found yet: await ref.ready()")
        return self.current.link

    @property
    def path(self) -> str:
        """The path of the agent that it leads to; until then, and of several, what is sought."""
        if self.by is None and self.current is not None and self.is_settled:
            path: str = self.current.link.path
            return path
        return self.sought.shown

    def missing(self) -> AgentError:
        """Return the error for a request that none of them can take."""
        if self.known is not None:
            return self.known.missing()
        return NotFound("agent", self.sought.shown, where="this node")

    def check_node(self) -> None:
        """Raise NotFound once the node has ended: then it connects to nothing."""
        if self.rt.ended:
            raise NotFound("agent", self.sought.shown, where="this node, which has ended")

    # ---- choosing

    def choose(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], tried: Mapping[Replica, None]
    ) -> Replica | None:
        """Return the one to ask next, None if all have been tried; those known to be down come last."""
        members = [each for each in self.members() if each not in tried]
        standing = [each for each in members if not each.is_down] or members
        if not standing:
            return None
        if self.by is None:
            if self.current not in standing:
                self.current = standing[0]
            return self.current
        if self.by == "key":
            text = self._key_of(key, args, kwargs)
            if text is not None:
                return max(standing, key=lambda each: _weight(text, each.id))
        return self._least_loaded(standing) if self.by == "least_loaded" else self._in_turn(standing)

    def _in_turn(self, standing: list[Replica]) -> Replica:
        place = self._next if self._next < len(standing) else 0
        self._next = place + 1
        return standing[place]

    def _least_loaded(self, standing: list[Replica]) -> Replica:
        """Return the one with the least to do; of several the next in turn."""
        first = self._next % len(standing)
        turned = [*standing[first:], *standing[:first]]
        chosen = min(turned, key=Replica.load)
        self._next = standing.index(chosen) + 1
        return chosen

    def _key_of(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
        """Return the value that decides which one a request is for; None for one that any of them refuses."""
        op = self.operation(key)
        for place, param in enumerate(op.params):
            if self._key is None or param.name == self._key:
                value: Any = kwargs.get(param.name, MISSING)
                if place < len(args) and not param.keyword_only:
                    value = args[place]
                if value is MISSING:
                    value = param.default
                try:
                    return None if value is MISSING else key_text(param.shape.take(value))
                except InvalidInput:
                    return None
        lacks = f"parameter {self._key!r}" if self._key else "parameter"
        raise InvalidInput(
            f"{op.label} has no {lacks} by which one could be chosen", f"$.{self._key or 'key'}"
        )

    def operation(self, key: str) -> Operation:
        """Return the operation of that key, as the class has it. Raises NotFound."""
        contract: Any = getattr(self.sought.cls, "__contract__", None)
        op: Operation | None = None if contract is None else contract.table.get(key)
        if op is None:
            raise NotFound("affordance", key, where=self.path)
        return op

    def repeatable(self, key: str) -> bool:
        """Return whether asking twice does no more than asking once."""
        contract: Any = getattr(self.sought.cls, "__contract__", None)
        op = None if contract is None else contract.table.get(key)
        return bool(op is not None and op.repeatable)

    def check(self, key: str) -> None:
        """Raise NotAllowed for a property of several agents."""
        if self.by is not None and key[0] in _PROPERTIES:
            raise NotAllowed(
                f"{self.path!r} is several agents: each has its own properties, see node.search(...)"
            )


def _weight(key: bytes, id: str) -> bytes:
    """Rank one of several for a key. One that comes or goes moves only the keys that are, or were, its own.

    Rendezvous hashing (Thaler and Ravishankar 1998): the same in every process, whatever the order.
    """
    return blake2b(key, digest_size=16, key=blake2b(id.encode("utf-8", "replace")).digest()).digest()
