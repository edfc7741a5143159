"""What a node has looked up in directories: kept for a while, looked up again when it turns out to be old."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from trio.lowlevel import checkpoint, enable_ki_protection

from lmos_actors.actors import RUNNING, PoolLink, Ref, load_of
from lmos_actors.bindings import found_link, is_connected, is_down, reached
from lmos_actors.errors import AgentUnavailable, ConfigError, ConnectFailed, NotFound, TransportError

from ._found import NotSought, Rejected, query_of, taken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from lmos_actors.actors import AgentQuery, Link, Runtime, Slot
    from lmos_actors.bindings import Peers
    from lmos_actors.protocol.td import Description

    from ._client import Directory
    from ._found import Found

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

    __slots__ = ("_dropped", "_link", "_make", "description", "directory", "id", "open", "rejected")

    def __init__(self, id: str, description: Description | None = None, directory: str | None = None) -> None:
        self.id = id
        self.description = description
        self.directory = directory
        """The URL of the one that told of it, None for an agent of this node."""
        self.open = 0
        """Requests from here, to an agent elsewhere, that are not answered yet."""
        self.rejected = False
        self._link: Any = None
        self._make: Callable[[], Any] | None = None
        self._dropped = False

    @classmethod
    def near(cls, id: str, link: Any) -> Replica:
        """Make one for an agent, or a pool, of this node."""
        made = cls(id)
        made._link = link
        return made

    @classmethod
    def elsewhere(cls, id: str, description: Description, directory: str, make: Callable[[], Any]) -> Replica:
        """Make one for an agent elsewhere, whose link is made at its first use."""
        made = cls(id, description, directory)
        made._make = make
        return made

    @property
    def is_near(self) -> bool:
        """Whether it is an agent of this node."""
        return self._make is None

    @property
    def link(self) -> Any:
        """What leads there; made, and connecting, from the first use on. Raises ConfigError."""
        if self._link is None and self._make is not None:
            self._link = self._make()
        return self._link

    @property
    def some_link(self) -> Any:
        """What leads there, None where its description leads nowhere after all."""
        try:
            return self.link
        except ConfigError:
            self.rejected = True
            return None

    @property
    def usable_link(self) -> Any:
        """What leads there if a request can be sent now, else None; never waits."""
        link = self.some_link
        return None if link is None or self.is_down or not is_connected(link) else link

    @property
    def is_down(self) -> bool:
        """Whether, as far as is known here, it cannot take a request now."""
        link = self._link
        if link is None:
            return self.rejected
        if self._make is not None:
            return is_down(link)
        return all(member.state != RUNNING for member in _members(link))

    def load(self) -> int:
        """Count what an agent here has to do, and what one elsewhere was asked from here."""
        return self.open if self._make is not None else sum(load_of(each) for each in _members(self._link))

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

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count a request that is being answered; the last of one that was dropped takes the link with it."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._end()

    def drop(self) -> None:
        """Use it no more: what was sent there is still answered, then the link is let go."""
        self._dropped = True
        self._end()

    def _end(self) -> None:
        if self._dropped and not self.open and self._make is not None and self._link is not None:
            self._link.release()


def _members(link: Any) -> Sequence[Slot]:
    return link.members if isinstance(link, PoolLink) else (link,)


class Known:
    """What was found elsewhere of one thing that is sought."""

    __slots__ = ("_busy", "_lookup", "at", "failure", "replicas", "sought", "why")

    def __init__(self, lookup: Lookup, sought: AgentQuery) -> None:
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

    @property
    def asked(self) -> str:
        """The directories that are asked, as their URLs."""
        return ", ".join(directory.url for directory in self._lookup.directories)

    def is_older_than(self, seconds: float) -> bool:
        """Return whether the last look-up is longer ago."""
        return trio.current_time() - self.at > seconds

    def look_soon(self) -> trio.Event:
        """Have it looked up; return what is set when that is done, at once where the node has ended."""
        if self._busy is not None:
            return self._busy
        done = trio.Event()
        if self._lookup.rt.ended:
            done.set()
        else:
            self._busy = done
            self._lookup.start_soon(self._look, name=f"look-up of {self.sought.shown}")
        return done

    def when_looked(self, tell: Callable[[], None]) -> None:
        """Have somebody told when the next look-up, or the one that is under way, is done."""
        if self._lookup.rt.ended:
            return
        done = self.look_soon()

        async def told() -> None:
            await done.wait()
            tell()

        self._lookup.start_soon(told, name=f"told of a look-up of {self.sought.shown}")

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
            self._take(found)
        finally:
            self.at, self._busy = trio.current_time(), None
            done.set()

    def _take(self, results: Results) -> None:
        """Keep those that were there before and are as they were, or of whom nobody could be asked."""
        before, found = self.replicas, dict[str, Replica]()
        for id, each in results.things.items():
            kept = before.get(id)
            if kept is None or (kept.description, kept.directory) != (each.description, each.directory):
                kept = self._lookup.replica(self.sought.cls, each)
            found[id] = kept
        for replica in before.values():
            if replica.directory in results.silent:
                found.setdefault(replica.id, replica)
        self.replicas = dict(sorted(found.items())[:KEPT])
        for replica in before.values():
            if self.replicas.get(replica.id) is not replica:
                replica.drop()

    def gone(self, replica: Replica) -> None:
        """It has turned out not to be there any more."""
        if self.replicas.get(replica.id) is replica:
            del self.replicas[replica.id]
            replica.drop()

    def missing(self) -> AgentUnavailable | NotFound:
        """Make the error for nothing having been found: that may be for want of an answer."""
        if self.failure is not None:
            return AgentUnavailable(self.sought.shown, f"it is not of this node, and {self.failure}")
        why = f" (of one that was found: {self.why})" if self.why else ""
        return NotFound("agent", self.sought.shown, where=f"this node and in its directories{why}")


class Results:
    """What all directories said."""

    def __init__(self) -> None:
        self.things: dict[str, Found] = {}
        self.failure: TransportError | None = None
        self.silent: dict[str, None] = {}
        """The URLs of those that did not answer, or wrongly."""
        self.why = ""


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

    # ---- looking

    async def found(self, sought: AgentQuery, directories: Sequence[Directory] | None = None) -> Results:
        """Ask all directories, at one time. That one does not answer, or wrongly, is told in the results."""
        asked, results = self.directories if directories is None else directories, Results()
        answers: dict[Directory, list[Any]] = {}

        async def ask(directory: Directory) -> None:
            try:
                answers[directory] = await directory.find(query_of(sought), MOST)
            except TransportError as error:
                results.failure = error
                results.silent[directory.url] = None

        async with trio.open_nursery() as nursery:
            for directory in asked:
                nursery.start_soon(ask, directory)
        for directory in asked:
            for number, entry in enumerate(answers.get(directory, ())):
                if not number % 16:
                    await checkpoint()
                self._sort_in(entry, sought, directory.url, results)
        return results

    def _sort_in(self, entry: Any, sought: AgentQuery, url: str, results: Results) -> None:
        try:
            found = taken(entry, sought, url, self._ours(), self.refer)
        except NotSought:
            pass
        except Rejected as why:
            results.why = str(why)
        else:
            assert found.id is not None
            results.things.setdefault(found.id, found)

    # ---- what was found

    def refer(self, description: Description, source_url: str, cls: Any) -> Ref[Any]:
        """Return a ref to what a description tells of."""
        return Ref(self._linked(cls, description, source_url))

    def replica(self, cls: Any, found: Found) -> Replica:
        """Return what stands for an agent elsewhere."""
        assert found.id is not None
        assert found.directory is not None
        make = partial(self._linked, cls, found.description, found.directory)
        return Replica.elsewhere(found.id, found.description, found.directory, make)

    def _linked(self, cls: Any, description: Description, source_url: str) -> Link:
        return found_link(self._peers(), cls, description, source_url)
