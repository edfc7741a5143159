"""What a node has looked up in directories: kept for a while, looked up again when it turns out to be old."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

import trio
from trio.lowlevel import checkpoint, enable_ki_protection

from lmos_actors._errors import AgentUnavailable, ConfigError, ConnectFailed, NotFound, TransportError
from lmos_actors.actors import PoolLink, Ref, load_of
from lmos_actors.bindings import found_link, hold, is_down, let_go, reached

from ._search import Rejected, query_of, taken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmos_actors.actors import Link, Runtime, Sought
    from lmos_actors.bindings import Peers
    from lmos_actors.protocol.td import Description

    from ._client import Directory
    from ._search import Found

FRESH: Final = 15.0
"""Seconds for which what was found counts as what there is, where several are sought."""

PAUSE: Final = 1.0
"""Seconds after a look-up before which there is no other, whatever turns out to be gone."""

MOST: Final = 1_000
"""Descriptions that one look-up reads from one directory."""

KEPT: Final = 64
"""Agents elsewhere that one look-up chooses from: those whose ids are first in order."""

CONNECTING: Final = 10.0
"""Seconds for the first connection to an agent elsewhere."""

NEVER: Final = float("-inf")


class StartSoon(Protocol):
    """Starts a task of the stage of a node that outlives its agents."""

    def __call__(self, async_fn: Callable[..., Awaitable[object]], /, *args: Any, name: str) -> None: ...


class Replica:
    """One of several agents that are as good as each other."""

    __slots__ = ("_link", "_make", "id", "open", "rejected")

    def __init__(self, id: str, link: Any = None, make: Callable[[], Any] | None = None) -> None:
        self.id = id
        self._link = link
        self._make = make
        self.open = 0
        """Requests from here, to an agent elsewhere, that are not answered yet."""
        self.rejected = False

    @property
    def is_near(self) -> bool:
        """Whether it is an agent of this node."""
        return self._make is None

    @property
    def link(self) -> Any:
        """What leads there; made, and connecting, from the first use on."""
        if self._link is None and self._make is not None:
            self._link = self._make()
        return self._link

    @property
    def is_down(self) -> bool:
        """Whether, as far as is known here, it cannot take a request now."""
        link = self._link
        if link is None:
            return self.rejected
        if self._make is None:
            return link.statistics().state != "running"
        return is_down(link)

    @property
    def is_up(self) -> bool:
        """Whether a request can be sent there without waiting for a connection."""
        return self._link is not None and not self.is_down

    def load(self) -> int:
        """Count what an agent here has to do, and what one elsewhere was asked from here."""
        if self._make is not None:
            return self.open
        members = self._link.members if isinstance(self._link, PoolLink) else (self._link,)
        return sum(load_of(member) for member in members)

    async def reached(self) -> Any:
        """Wait for the connection that its first use makes. Raises AgentUnavailable."""
        try:
            link = self.link
            if self._make is not None:
                with trio.fail_after(CONNECTING):
                    await reached(link)
        except (ConnectFailed, ConfigError) as error:
            self.rejected = True
            raise AgentUnavailable(self.id, str(error)) from error
        except trio.TooSlowError:
            raise AgentUnavailable(self.id, f"no connection within {CONNECTING:g} s") from None
        return link

    def drop(self, peers: Peers) -> None:
        """Use it no more: its connection ends if nobody else uses it."""
        if self._link is not None and self._make is not None:
            let_go(peers, self._link)


class Shelf:
    """What was found elsewhere of one thing that is sought."""

    __slots__ = ("__weakref__", "_busy", "_began", "_lookup", "at", "failure", "replicas", "sought", "why")

    def __init__(self, lookup: Lookup, sought: Sought) -> None:
        self.sought = sought
        self.replicas: dict[str, Replica] = {}
        """By id, in the order of ids."""
        self.at = NEVER
        """When it was last looked up."""
        self.why = ""
        """Why something that was told of is not among them."""
        self.failure: TransportError | None = None
        self._lookup = lookup
        self._busy: trio.Event | None = None
        self._began = NEVER

    def is_older_than(self, seconds: float) -> bool:
        """Say whether the last look-up is longer ago."""
        return trio.current_time() - self.at > seconds

    def look_soon(self) -> trio.Event:
        """Have it looked up; give what is set when that is done. Never waits."""
        if self._busy is None:
            self._busy = trio.Event()
            self._lookup.start_soon(self._look, name=f"look-up of {self.sought.shown}")
        return self._busy

    async def look(self) -> None:
        """Look up, and wait for that; several who ask at one time ask once."""
        await self.look_soon().wait()

    @enable_ki_protection
    async def _look(self) -> None:
        done = self._busy
        assert done is not None
        try:
            found = await self._lookup.found(self.sought)
            self.failure, self.why = found.failure, found.why
            if found.failure is None or found.things:
                self._take(found.things)
        finally:
            self.at, self._busy = trio.current_time(), None
            done.set()

    def _take(self, things: Sequence[Found]) -> None:
        """Keep those that were there before and are as they were."""
        before, self.replicas = self.replicas, {}
        for each in sorted(things, key=lambda each: each.id or "")[:KEPT]:
            assert each.id is not None
            made = self._lookup.replica(self.sought, each)
            self.replicas[each.id] = made
        for replica in before.values():
            if self.replicas.get(replica.id) is not replica:
                self._lookup.forget(replica)

    def gone(self, replica: Replica) -> None:
        """It has turned out not to be there any more."""
        if self.replicas.get(replica.id) is replica:
            del self.replicas[replica.id]
            self._lookup.forget(replica)


class Results:
    """What all directories said."""

    def __init__(self) -> None:
        self.things: list[Found] = []
        self.failure: TransportError | None = None
        self.why = ""

    def missing(self, sought: Sought) -> AgentUnavailable | NotFound:
        """Make the error for nothing having been found."""
        return missing(sought, self.failure, self.why)


def missing(sought: Sought, failure: TransportError | None, why: str) -> AgentUnavailable | NotFound:
    """Make the error for nothing having been found: that may be for want of an answer."""
    if failure is not None:
        return AgentUnavailable(sought.shown, f"it is not of this node, and {failure}")
    where = "this node and in its directories"
    return NotFound("agent", sought.shown, where=f"{where} (of one that was found: {why})" if why else where)


class Lookup:
    """The directories that a node looks in, and what it has found there.

    `ours` gives the authorities of the node's own addresses.
    """

    def __init__(
        self,
        rt: Runtime,
        peers: Callable[[], Peers],
        directories: Sequence[Directory],
        start_soon: StartSoon,
        ours: Callable[[], Sequence[str]],
    ) -> None:
        self.rt = rt
        self.directories = tuple(directories)
        self.start_soon = start_soon
        self._peers = peers
        self._ours = ours
        self._shelves: WeakValueDictionary[Sought, Shelf] = WeakValueDictionary()
        self._replicas: dict[tuple[Any, str], tuple[Description, Replica]] = {}

    def shelf(self, sought: Sought) -> Shelf:
        """Give what is known of one thing that is sought; all who seek it share it."""
        found = self._shelves.get(sought)
        if found is None:
            found = self._shelves[sought] = Shelf(self, sought)
        return found

    # ---- looking

    async def found(self, sought: Sought, directories: Sequence[Directory] | None = None) -> Results:
        """Ask all directories. What one of them does not answer, or answers wrongly, is told in the results."""
        results = Results()
        known: dict[str, None] = {}
        for directory in self.directories if directories is None else directories:
            try:
                entries = await directory.find(query_of(sought), MOST)
            except TransportError as error:
                results.failure = error
                continue
            for number, entry in enumerate(entries):
                if not number % 16:
                    await checkpoint()
                self._sort_in(entry, sought, directory.url, results, known)
        return results

    def _sort_in(
        self, entry: Any, sought: Sought, url: str, results: Results, known: dict[str, None]
    ) -> None:
        try:
            found = taken(entry, sought, url, self._ours(), self.refer)
        except Rejected as why:
            results.why = str(why)
            return
        if found.id is not None and found.id not in known:
            known[found.id] = None
            results.things.append(found)

    # ---- what was found

    def refer(self, cls: Any, description: Description, told_at: str) -> Ref[Any]:
        """Give a ref to what a description tells of."""
        peers = self._peers()
        link = found_link(peers, cls, description, told_at)
        hold(peers, link)
        return Ref(link)

    def replica(self, sought: Sought, found: Found) -> Replica:
        """Give what stands for an agent elsewhere: the same as before while its description is the same."""
        assert found.id is not None and found.directory is not None
        key = (sought, found.id)
        kept = self._replicas.get(key)
        if kept is not None and kept[0] == found.description:
            return kept[1]
        make = partial(self._linked, sought.cls, found.description, found.directory)
        made = Replica(found.id, make=make)
        self._replicas[key] = found.description, made
        return made

    def _linked(self, cls: Any, description: Description, told_at: str) -> Link:
        peers = self._peers()
        link = found_link(peers, cls, description, told_at)
        hold(peers, link)
        return link

    def forget(self, replica: Replica) -> None:
        """It is not there any more; what was sent there is still answered."""
        replica.drop(self._peers())
