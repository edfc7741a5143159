"""Which of several agents gets a request: those of this node, and those that were found elsewhere."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from lmos_actors.actors import MISSING, key_text, near_links
from lmos_actors.errors import AgentUnavailable, InvalidInput, NotAllowed, NotFound

from ._lookup import Known, Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import AgentQuery, Operation, Runtime, Spread, Turns
    from lmos_actors.errors import AgentError

    from ._lookup import Lookup

_PROPERTIES = "?="  # how the keys of reading and writing begin


class Choosing:
    """All agents that are sought, near and far, and who of them is next.

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
        self.turns: Turns = rt.turns
        self._sought = sought
        self._by = by
        self._key = key
        self._known = None if lookup is None else Known(lookup, sought)
        self._id_of = id_of
        self._near: list[Replica] = []
        self._seen = -1
        self._next = 0
        self._current: Replica | None = None
        self._why = ""  # what the last one was refused with that was tried by those who wait

    # ---- who there is

    def _members(self) -> list[Replica]:
        """Return all that are sought and known: those of this node first, in start order, others by id."""
        if self._by is not None and self._seen != self.rt.population.version:
            self._seen = self.rt.population.version
            kept = {each.link: each for each in self._near}
            links = near_links(self.rt, self._sought)
            self._near = [kept.get(link) or Replica.near(self._id_of(link), link) for link in links]
        return [*self._near, *self._known.replicas.values()] if self._known is not None else self._near

    @property
    def is_settled(self) -> bool:
        """Whether it leads to one agent elsewhere, which has been found."""
        current, known = self._current, self._known
        return current is not None and known is not None and known.replicas.get(current.id) is current

    def settled(self) -> Any:
        """Return the link that it leads to.

        Raises AgentUnavailable, and NotAllowed where there are several.
        """
        if self._by is not None:
            raise NotAllowed(f"{self.path!r} is several agents, this takes one: use node.search(...)")
        if self._current is None or not self.is_settled:
            raise AgentUnavailable(self.path, "it has not been found yet: await ref.ready()")
        return self._current.link

    @property
    def path(self) -> str:
        """The path of the agent that it leads to; until then, and of several, what is sought."""
        if self._by is None and self._current is not None and self.is_settled:
            path: str = self._current.link.path
            return path
        return self._sought.shown

    def _missing(self) -> AgentError:
        if self._known is not None:
            return self._known.missing()
        return NotFound("agent", self._sought.shown, where="this node")

    def _check_node(self) -> None:
        """Raise NotFound once the node has ended: it connects to nobody, and asks nobody, any more."""
        if self.rt.ended:
            raise NotFound("agent", self._sought.shown, where="this node, which has ended")

    # ---- choosing

    def _choose(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], tried: Mapping[Replica, None]
    ) -> Replica | None:
        """Give who is to be asked next; who is known to be down comes last."""
        members = [each for each in self._members() if each not in tried]
        standing = [each for each in members if not each.is_down] or members
        if not standing:
            return None
        if self._by is None:
            if self._current not in standing:
                self._current = standing[0]
            return self._current
        if self._by == "key":
            text = self._key_of(key, args, kwargs)
            if text is not None:
                return max(standing, key=lambda each: _weight(text, each.id))
        return self._least_loaded(standing) if self._by == "least_loaded" else self._in_turn(standing)

    def _in_turn(self, standing: list[Replica]) -> Replica:
        place = self._next if self._next < len(standing) else 0
        self._next = place + 1
        return standing[place]

    def _least_loaded(self, standing: list[Replica]) -> Replica:
        """Give the one with the least to do; of several the next in turn."""
        first = self._next % len(standing)
        turned = [*standing[first:], *standing[:first]]
        chosen = min(turned, key=Replica.load)
        self._next = standing.index(chosen) + 1
        return chosen

    def _key_of(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
        """Give the value by which a request is for one of them; None where whoever it reaches refuses it."""
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
        """Give the operation of that key, as the class has it. Raises NotFound, NotAllowed."""
        contract: Any = getattr(self._sought.cls, "__contract__", None)
        op: Operation | None = None if contract is None else contract.table.get(key)
        if op is None:
            raise NotFound("affordance", key, where=self.path)
        return op

    def repeatable(self, key: str) -> bool:
        """Whether asking twice does no more than asking once."""
        contract: Any = getattr(self._sought.cls, "__contract__", None)
        op = None if contract is None else contract.table.get(key)
        return bool(op is not None and op.repeatable)

    def _check(self, key: str) -> None:
        if self._by is not None and key[0] in _PROPERTIES:
            raise NotAllowed(
                f"{self.path!r} is several agents: each has its own properties, see node.search(...)"
            )


def _weight(key: bytes, id: str) -> bytes:
    """Rank one of several for a key: who comes or goes moves only what is, or was, their own.

    Rendezvous hashing (Thaler and Ravishankar 1998): the same in every process, whatever the order.
    """
    return blake2b(key, digest_size=16, key=blake2b(id.encode("utf-8", "replace")).digest()).digest()
