"""Refs whose agents are looked up on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.errors import NotAllowed, NotFound
from lmos_actors.protocol.td import AGENT_TYPES, TOOL_TYPES

from .._parking import park_among
from .._population import SPREADS, AgentQuery
from ..crashes._report_values import class_made_by
from ..messages._operation import named
from ..refs._forwarding import ForwardingLink
from ..refs._ref import Ref
from ..refs._retrying import Retrying, found_link
from ._pool_link import PoolLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._population import Spread
    from .._runtime import Runtime
    from ..declaration._contract import Contract
    from ..slot._slot import Slot

_NO_DIRECTORY: Final = "this node asks no directory: open_node(lookup=URL) names one"


class LookupLink(ForwardingLink):
    """A link that looks up its agent on first use, and keeps the link that it has found.

    Near agents come first, then agents on relays to which an agent of the node is connected, then those in
    directories. A link to an agent elsewhere is kept until that agent has ended.
    """

    __slots__ = ("_beyond", "_found", "_listed", "_seen", "wanted")

    def __init__(self, rt: Runtime, wanted: AgentQuery) -> None:
        super().__init__(rt)
        self.wanted = wanted
        """The query of the ref."""
        self._found: Slot | PoolLink | None = None
        self._beyond: Any = None
        self._listed: Any = None  # the link to what directories know
        self._seen = -1

    def choose(self, *_request: object) -> Any:
        """Return the slot, the pool, or the link that leads to another node. Raises NotFound."""
        found = self.look() if self.wanted.id is not None else self._found or self.look()
        if found is None:
            raise self._missing()
        return found

    def near(self) -> Slot | PoolLink | None:
        """Return the slot or the pool in this node, or None if there is none yet."""
        if self._found is None or self.wanted.id is not None:
            self._found = near_link(self.rt, self.wanted)
        return self._found

    def look(self) -> Any:
        """Return the same link as `choose`, or None if no agent is found and no directory can be asked."""
        rt, beyond = self.rt, self._beyond
        if self.wanted.id is not None:  # it may be run by another node each time
            self._beyond = self._in_directories()
            return self.near() or self._beyond
        if self._found is not None or self.wanted.is_place or (rt.seeker is None and not rt.relays):
            return self.near()
        if beyond is not None and (beyond.is_settled or self._seen == rt.population.version):
            return beyond
        self._seen = rt.population.version
        found = self.near()
        if found is None:
            beyond = self._beyond = self._relayed() or self._in_directories()
        return found or beyond

    def _relayed(self) -> Any:
        """Return the link to an agent on a relay, or None if there is none."""
        if self.wanted.id is not None:
            return None
        links = (relay.on_relay(self.wanted) for relay in self.rt.relays)
        return next((link for link in links if link is not None), None)

    def _in_directories(self) -> Any:
        """Return the link to agents listed in directories, or None if the node uses no directories."""
        if self._listed is None and self.rt.seeker is not None:
            self._listed = self.rt.seeker.beyond(self.wanted)
        return self._listed

    def _missing(self) -> NotFound:
        cls, name, node = self.wanted.cls, self.wanted.name, self.wanted.node
        here = "this node" if node is None else f"the node {node!r}"
        if not self.wanted.is_plain or self.wanted.id is not None:
            return self.wanted.missing(here)
        title = cls.__name__ if cls is not None else "any class"
        where = "" if name is None or cls is None else f"{here} that is a {title}"
        alone = node is None and self.rt.seeker is None and not self.rt.relays and not self.wanted.is_place
        return NotFound("agent", name or title, where=where, remedy=_NO_DIRECTORY if alone else "")

    @property
    def path(self) -> str:
        """The path of the agent, or the text of the query until the agent has been found."""
        found = self.look()
        return found.path if found is not None else self.wanted.shown

    @named("ref.ready")
    async def wait_running(self) -> None:
        """Wait until the wanted agent exists and takes messages. Raises NotFound at the node's end."""
        while (found := self.look()) is None:
            if self.rt.ended:
                raise self._missing()
            await park_among(self.rt.appeared)
        if found is self._beyond:  # one that appears here meanwhile will do as well
            found = await found.settle_unless(lambda: self.near() or self._relayed()) or self.choose()
        await found.wait_running()

    def unready(self) -> str:
        """Return why no agent takes messages now: the agent does not run, or none was found."""
        found = self._found or self._beyond
        return str(self._missing()) if found is None else found.unready()


def link_to(rt: Runtime, wanted: AgentQuery, spread: Spread | None, key: str | None) -> Any:
    """Return the link for a ref that is looked up. Raises TypeError for an impossible query."""
    if wanted.cls is not None and not isinstance(wanted.cls, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"find takes an agent class, then perhaps a name, not {wanted.cls!r}")
    if wanted.id is not None and spread is not None:
        raise TypeError("id is that of one agent, and spread is for several")
    if spread is None:
        if key is not None:
            raise TypeError('key goes with spread="key"')
        return LookupLink(rt, wanted)
    if spread not in SPREADS or (key is not None and spread != "key"):
        raise TypeError(f"spread is one of {', '.join(SPREADS)}, and key goes with the last, not {spread!r}")
    assert rt.spread is not None
    return rt.spread(wanted, spread, key)


def near_link(rt: Runtime, wanted: AgentQuery) -> Slot | PoolLink | None:
    """Return the first started agent or pool of this node that matches the query, or None."""
    resolver = rt.resolver
    if resolver is None:
        return None
    if wanted.is_place:
        return resolver.at(wanted.name or "")  # type: ignore[no-any-return]
    if wanted.id is not None:
        return _of_key(rt, wanted, wanted.id)
    if wanted.is_plain and wanted.node is None:
        found: Slot | PoolLink | None = resolver.resolve(wanted.cls, wanted.name)
        return found
    return next(near_links(rt, wanted), None)


def _of_key(rt: Runtime, wanted: AgentQuery, key: str) -> Slot | None:
    """Return the agent with this key, if this node runs it and it matches the query, else None."""
    slot: Slot | None = None if rt.keeping is None else rt.keeping.agent_of(key)
    if slot is None:
        return None
    agent: object = slot.agent
    made: Any = class_made_by(slot.spec.factory) if agent is None else type(agent)
    fits = wanted.cls is None or (isinstance(made, type) and issubclass(made, wanted.cls))
    named = wanted.name in (None, slot.label, slot.path)
    here = wanted.node in (None, rt.node_of(slot))
    return slot if fits and named and here and (wanted.is_plain or is_wanted(made, wanted)) else None


def lease_of(link: Any) -> tuple[str, int] | None:
    """Return the key of an agent and the epoch of its lease, or None if this node holds no lease."""
    gate = getattr(link, "output_gate", None)
    epoch = None if gate is None else gate.state.epoch
    return None if epoch is None else (link.spec.key, epoch)


def near_links(rt: Runtime, wanted: AgentQuery) -> Iterator[Any]:
    """Return all agents and pools of this node that match the query, in start order."""
    return (link for link, _ in near_agents(rt, wanted))


def near_agents(rt: Runtime, wanted: AgentQuery) -> Iterator[tuple[Any, type[Any]]]:
    """Yield the near agents and pools that match the query, each with its class."""
    resolver = rt.resolver
    for link, cls in resolver.every(wanted.cls, wanted.name) if resolver is not None else ():
        if cls is not None and is_wanted(cls, wanted) and wanted.node in (None, rt.node_of(link)):
            yield link, cls


def is_wanted(cls: type, wanted: AgentQuery) -> bool:
    """Return whether the description of a class's agents matches the query."""
    contract: Contract | None = getattr(cls, "__contract__", None)
    if contract is None:
        return False
    about, types = contract.options.about, TOOL_TYPES if contract.options.tool else AGENT_TYPES
    return wanted.is_met(
        contract.title,
        types if about is None else (*types, *about.types),
        () if about is None else about.capabilities,
        (*contract.properties, *contract.actions, *contract.events),
    )


def check_home(rt: Runtime, link: Any) -> None:
    """Raise NotAllowed if a link leads to a node in another thread, which must not be changed from here."""
    other: Runtime | None = getattr(link, "rt", None)
    if other is not None and other.thread != rt.thread:
        raise NotAllowed(f"{link.path!r} is an agent of a node in another thread: use its node.portal()")


def neighbour_of(slot: Slot, ref: Ref[Any]) -> Slot:
    """Return the slot of a near ref, as `slot_of` does. Raises NotAllowed for an agent of another thread."""
    found = slot_of(ref)
    check_home(slot.rt, found)
    return found


def _link_of(ref: Any) -> Any:
    """Return the link of a ref, or of a consumed thing, without the link that retries."""
    link: Any = ref._link  # what a ref is for those inside
    return link.inner if isinstance(link, Retrying) else link


def release_link(ref: Any) -> None:
    """Release the resources of a ref to an agent elsewhere; do nothing for a near ref."""
    let_go = getattr(_link_of(ref), "release", None)
    if let_go is not None:
        let_go()


def address_of(ref: Ref[Any]) -> str | dict[str, str]:
    """Return the address to keep for a ref: a path, or the `url` of another node and the `thing` there.

    Raises TypeError if neither would lead back to the agent; the error's text is a clause about the ref.
    """
    link = _link_of(ref)
    if isinstance(link, LookupLink):
        link = link.look() or link
    far: dict[str, str] | None = getattr(link, "address", None)
    if far is not None:  # it leads to another node
        return far
    if link.rt.keeping is None:  # else it may be the node of the agent that keeps the ref
        raise TypeError("which leads to another node of this process without a URL: use node.consume()")
    return ref.path


def ref_by(rt: Runtime, cls: Any, address: str | dict[str, str]) -> Ref[Any]:
    """Return the ref for a stored address; its agent is looked up on first use.

    Raises TypeError for an invalid address, or for another node's address if the class is not known.
    """
    if isinstance(address, str):
        near: Ref[Any] = Ref(LookupLink(rt, AgentQuery(None, address, is_place=True)))
        return near if rt.nodes is None else rt.nodes.ref(near)
    if address.keys() != {"url", "thing"} or not isinstance(cls, type) or rt.remote_ref is None:
        raise TypeError(f"no ref to a {cls} can be made from the address {address!r}")
    found: Ref[Any] = rt.remote_ref(cls, address["url"], address["thing"])
    return found


def slot_of(ref: Ref[Any]) -> Slot:
    """Return the slot to which a near ref points. Raises NotFound if it points to no agent now.

    Raises NotAllowed for a pool, which has many slots.
    """
    link = _link_of(ref)
    found: Any = link.choose() if isinstance(link, LookupLink) else found_link(link)
    if isinstance(found, PoolLink):
        raise NotAllowed(f"{found.path!r} is a pool, this takes one agent: use the refs of pool.members")
    settled: Slot = found.settled() if hasattr(found, "settled") else found
    return settled


def contract_of(ref: Ref[Any]) -> Contract | None:
    """Return the contract of the agents to which a ref leads, or None if it is unknown now.

    For a ref that was looked up by a class, this is the contract of that class.
    """
    link: Any = _link_of(ref)
    if isinstance(link, LookupLink):
        sought: Contract | None = getattr(link.wanted.cls, "__contract__", None)
        if sought is not None and sought.actions:
            return sought
    link = found_link(link)
    if isinstance(link, PoolLink):
        link = next(iter(link.members), None)
    spec = getattr(link, "spec", None)
    if spec is None:  # far, or nothing
        return getattr(link, "contract", None)
    agent: object = link.agent
    return getattr(class_made_by(spec.factory) if agent is None else type(agent), "__contract__", None)
