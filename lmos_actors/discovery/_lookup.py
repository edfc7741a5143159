"""Look-ups in directories, and the replicas that they found, which are refreshed when out of date."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from trio.lowlevel import checkpoint, enable_ki_protection

from lmos_actors.actors import RUNNING, PoolLink, Ref, load_of
from lmos_actors.bindings import is_connected, is_down, reached
from lmos_actors.errors import (
    AgentUnavailable,
    ConfigError,
    ConnectFailed,
    NotFound,
    OutcomeUnknown,
    TransportError,
)

from ._search_results import ResultRejected, checked_result, jsonpath_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from lmos_actors.actors import AgentQuery, Link, Runtime, Slot
    from lmos_actors.protocol.td import Description

    from ._client import Directory
    from ._search_results import Found

FRESH_SECONDS: Final = 15.0
"""Seconds after which a choice among several replicas starts a new look-up in the background."""

SOON: Final = 0.1
MIN_INTERVAL: Final = 1.0
"""Minimum seconds between two look-ups made because something is gone: few after the first one, as a crashed
agent is soon back; twice as many after each one that finds nothing new."""

MAX_RESULTS: Final = 1_000
"""Limit of descriptions that one look-up reads from one directory."""

MAX_REPLICAS: Final = 64
"""Limit of remote replicas for a query: the first ids in order, so that all nodes choose from the same."""

AWAITED_SECONDS: Final = 60.0
"""Seconds for which an agent that left a directory is expected back: its process may be restarting."""

CONNECT_SECONDS: Final = 10.0
"""Limit for the first connection to an agent elsewhere, in seconds."""

NEVER: Final = float("-inf")


class LinkTo(Protocol):
    """Function that returns a link to an agent elsewhere, by class, description and URL of the description.

    Raises ConfigError for a description without a usable address.
    """

    def __call__(self, cls: Any, description: Description, source_url: str, /) -> Link: ...


class StartSoon(Protocol):
    """Function that starts a task in the stage of a node that outlives its agents."""

    def __call__(self, async_fn: Callable[..., Awaitable[object]], /, *args: Any, name: str) -> None: ...


class Replica:
    """One of several interchangeable agents."""

    __slots__ = (
        "_dropped", "_link", "_make", "description", "directory", "epoch", "id", "key", "open", "rejected",
    )  # fmt: skip

    def __init__(self, id: str, description: Description | None = None, directory: str | None = None) -> None:
        self.id = id
        self.description = description
        self.directory = directory
        """URL of the directory that listed the agent, None for an agent of this node."""
        self.open = 0
        """Unanswered requests from this node, for an agent elsewhere."""
        self.rejected = False
        self.epoch = 0
        """Epoch of the agent's lease, for an agent with a key of its own."""
        self.key: str | None = None
        """Key of the agent, if it has one of its own."""
        self._link: Any = None
        self._make: Callable[[], Any] | None = None
        self._dropped = False

    @classmethod
    def near(cls, id: str, link: Any) -> Replica:
        """Return the replica of an agent or a pool of this node."""
        made = cls(id)
        made._link = link
        return made

    @classmethod
    def elsewhere(cls, id: str, description: Description, directory: str, make: Callable[[], Any]) -> Replica:
        """Return the replica of an agent elsewhere, whose link is made on first use."""
        made = cls(id, description, directory)
        made._make = make
        return made

    @property
    def is_near(self) -> bool:
        """Whether the replica is an agent of this node."""
        return self._make is None

    @property
    def agent(self) -> str:
        """Identity of the agent on any node: its key if it has one, or else its id."""
        return f"id {self.id}" if self.key is None else f"key {self.key}"

    @property
    def link(self) -> Any:
        """Link to the replica, made at the first use; it connects in the background. Raises ConfigError."""
        if self._link is None and self._make is not None:
            self._link = self._make()
        return self._link

    @property
    def link_or_none(self) -> Any:
        """Link to the replica, None if its description has no usable form."""
        try:
            return self.link
        except ConfigError:
            self.rejected = True
            return None

    @property
    def usable_link(self) -> Any:
        """Link to the replica if a request can be sent now, else None; never waits."""
        link = self.link_or_none
        return None if link is None or self.is_down or not is_connected(link) else link

    @property
    def is_down(self) -> bool:
        """Whether the replica is known to be unable to take a request now."""
        link = self._link
        if link is None:
            return self.rejected
        if self._make is not None:
            return is_down(link)
        return all(member.state != RUNNING for member in _members(link))

    @property
    def answers(self) -> bool:
        """Whether the connection to the replica's node is open."""
        link = self._link
        return bool(getattr(link, "sockets", ())) and is_connected(link)

    def load(self) -> int:
        """Return the replica's load.

        For an agent of this node, this is all its work; for an agent elsewhere, it is the number of open
        requests from this node.
        """
        return self.open if self._make is not None else sum(load_of(each) for each in _members(self._link))

    async def wait_reached(self) -> Any:
        """Wait until the replica's link is connected, and return the link. Raises AgentUnavailable."""
        try:
            link = self.link
            if self._make is not None:
                with trio.fail_after(CONNECT_SECONDS):
                    await reached(link)
        except (ConnectFailed, ConfigError) as error:
            self.rejected = True
            raise AgentUnavailable(self.id, str(error), retry_in=MIN_INTERVAL) from error
        except trio.TooSlowError:
            why = f"no connection within {CONNECT_SECONDS:g} s"
            raise AgentUnavailable(self.id, why, retry_in=MIN_INTERVAL) from None
        return link

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count an open request during a block. The last to end releases the link of a dropped replica."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._end()

    def drop(self) -> None:
        """Stop using the replica; open requests are still answered, then its link is released."""
        self._dropped = True
        self._end()

    def _end(self) -> None:
        if self._dropped and not self.open and self._make is not None and self._link is not None:
            self._link.release()


def _members(link: Any) -> Sequence[Slot]:
    return link.members if isinstance(link, PoolLink) else (link,)


class KnownReplicas:
    """Remote replicas that match one query, as of the last look-up."""

    __slots__ = (
        "_awaited", "_done", "_is_watching", "_lookup", "_pause", "at", "failure", "query", "replicas",
        "seen", "why",
    )  # fmt: skip

    def __init__(self, lookup: Lookup, query: AgentQuery) -> None:
        self.query = query
        self.replicas: dict[str, Replica] = {}
        """The replicas by id, in the order of ids."""
        self.at = NEVER
        """Time of the last look-up."""
        self.seen = NEVER
        """Time of the last look-up that found a replica."""
        self.why = ""
        """Reason for which a listed agent was rejected, for messages."""
        self.failure: TransportError | None = None
        self._lookup = lookup
        self._done: trio.Event | None = None
        self._pause = SOON
        self._awaited: dict[trio.CancelScope, Replica] = {}
        """The replicas that owe an answer, by the scope of each request; some are no longer known."""
        self._is_watching = False

    @property
    def asked(self) -> str:
        """URLs of the directories, for messages."""
        return ", ".join(directory.url for directory in self._lookup.directories)

    def is_older_than(self, seconds: float) -> bool:
        """Return whether the last look-up is longer ago than `seconds`."""
        return trio.current_time() - self.at > seconds

    @property
    def is_due(self) -> bool:
        """Whether it is time for another look-up, for example because a replica turned out to be gone."""
        return self.is_older_than(self._pause)

    def start_look_up(self) -> trio.Event:
        """Start a look-up unless one is running, and return an event that is set at its end.

        The event is already set if the node has ended.
        """
        if self._done is not None:
            return self._done
        done = trio.Event()
        if self._lookup.rt.ended:
            done.set()
        else:
            self._done = done
            self._lookup.start_soon(self._look_up, name=f"look-up of {self.query.shown}")
        return done

    def on_looked_up(self, callback: Callable[[], None]) -> None:
        """Call a function when the current or next look-up is done; never call it if the node has ended."""
        if self._lookup.rt.ended:
            return
        done = self.start_look_up()

        async def notify() -> None:
            await done.wait()
            callback()

        self._lookup.start_soon(notify, name=f"notification of a look-up of {self.query.shown}")

    async def look_up(self) -> None:
        """Wait for a look-up; concurrent callers share one."""
        await self.start_look_up().wait()

    @enable_ki_protection
    async def _look_up(self) -> None:
        done = self._done
        assert done is not None
        before, is_first = self.replicas, self.is_older_than(2 * MIN_INTERVAL)
        try:
            found = await self._lookup.found(self.query)
            self.failure, self.why = found.failure, found.why
            self._merge(found)
            if self.replicas:
                self.seen = trio.current_time()
            has_news = self.replicas != before
            self._pause = SOON if is_first or has_news else min(2 * self._pause, MIN_INTERVAL)
        finally:
            self.at, self._done = trio.current_time(), None
            done.set()

    def _merge(self, results: SearchResults) -> None:
        """Merge results: unchanged replicas stay, and so do replicas of directories that did not answer.

        If no agent is listed, replicas with an open connection stay, too. A restarted directory lists no
        agents for a while, whereas a node that ends closes its connections.
        """
        before, found = self.replicas, dict[str, Replica]()
        for id, each in results.things.items():
            kept = before.get(id)
            if kept is None or (kept.description, kept.directory) != (each.description, each.directory):
                kept = self._lookup.replica(self.query.cls, each)
            kept.epoch, kept.key = each.epoch, each.key
            found[id] = kept
        for replica in before.values():
            if replica.directory in results.silent:
                found.setdefault(replica.id, replica)
        if not results.things and not results.why:
            found |= {id: each for id, each in before.items() if each.answers}
        self.replicas = dict(sorted(found.items())[:MAX_REPLICAS])
        for replica in before.values():
            if self.replicas.get(replica.id) is not replica:
                replica.drop()
        self._end_superseded()

    # ---- answers of an agent that only one node runs at a time

    async def answer_of(self, replica: Replica, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer of an agent with a key elsewhere.

        Raise OutcomeUnknown once another node holds the agent's lease, as the node that was asked will then
        never answer. So if a node is cut off, a caller without a deadline need not wait until the connection
        counts as lost.
        """
        if not self._is_watching and not self._lookup.rt.ended:
            self._is_watching = True
            self._lookup.start_soon(self._watch, name=f"successors of {self.query.shown}")
        with trio.CancelScope() as scope:
            self._awaited[scope] = replica
            try:
                return await ask()
            finally:
                del self._awaited[scope]
        why = "another node runs the agent by now, and the one that was asked has not answered"
        raise OutcomeUnknown(replica.link.path, why)

    async def _watch(self) -> None:
        """Look up every 5 s which node runs the agent, while a request waits for longer than that."""
        try:
            while before := set(self._awaited):
                await trio.sleep(5.0)
                if before & self._awaited.keys():
                    await self.look_up()
        finally:
            self._is_watching = False

    def _end_superseded(self) -> None:
        """End requests within a second if another node now runs the agent that was asked."""
        newest: dict[str, int] = {}
        for each in self.replicas.values():
            if each.key is not None:
                newest[each.key] = max(each.epoch, newest.get(each.key, 0))
        ends = trio.current_time() + 1.0  # an answer may be on its way
        for scope, asked in self._awaited.items():
            if asked.key is not None and newest.get(asked.key, 0) > asked.epoch:
                scope.deadline = min(scope.deadline, ends)

    def forget(self, replica: Replica) -> None:
        """Remove a replica that turned out to be gone."""
        if self.replicas.get(replica.id) is replica:
            del self.replicas[replica.id]
            replica.drop()

    def missing(self) -> AgentUnavailable | NotFound:
        """Return the error for a search without a result.

        It is AgentUnavailable if a directory did not answer, or if an agent was found until recently;
        otherwise it is NotFound.
        """
        if self.failure is not None:
            return AgentUnavailable(
                self.query.shown, f"it is not of this node, and {self.failure}", retry_in=MIN_INTERVAL
            )
        if trio.current_time() - self.seen <= AWAITED_SECONDS:
            why = f"none is registered in {self.asked} any more, and none has come in its place yet"
            return AgentUnavailable(self.query.shown, why, retry_in=MIN_INTERVAL)
        why = f" (of one that was found: {self.why})" if self.why else ""
        return self.query.missing(f"this node and in its directories{why}")


class SearchResults:
    """Results of one search in all directories."""

    def __init__(self) -> None:
        self.things: dict[str, Found] = {}
        self.failure: TransportError | None = None
        self.silent: dict[str, None] = {}
        """URLs of the directories that did not answer, or not validly."""
        self.why = ""


class Lookup:
    """Search in the directories of a node; `ours` returns the authorities of the node's own addresses."""

    def __init__(
        self,
        rt: Runtime,
        link_to: LinkTo,
        directories: Sequence[Directory],
        start_soon: StartSoon,
        ours: Callable[[], Sequence[str]],
    ) -> None:
        self.rt = rt
        self.directories = tuple(directories)
        self.start_soon = start_soon
        self._link_to = link_to
        self._ours = ours

    # ---- looking

    async def found(self, query: AgentQuery, directories: Sequence[Directory] | None = None) -> SearchResults:
        """Return the results of all directories, queried concurrently; failures are noted in the results."""
        asked, results = self.directories if directories is None else directories, SearchResults()
        answers: dict[Directory, list[Any]] = {}

        async def ask(directory: Directory) -> None:
            try:
                answers[directory] = await directory.find(jsonpath_of(query), MAX_RESULTS)
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
                self._add_result(entry, query, directory.url, results)
        return results

    def _add_result(self, entry: Any, query: AgentQuery, url: str, results: SearchResults) -> None:
        try:
            found = checked_result(entry, query, url, self._ours(), self.refer)
        except ResultRejected as why:
            results.why = str(why)
            return
        if found is not None:
            assert found.id is not None
            results.things.setdefault(found.id, found)

    # ---- what was found

    def refer(self, description: Description, source_url: str, cls: Any) -> Ref[Any]:
        """Return a ref to the agent of a description."""
        return Ref(self._link_to(cls, description, source_url))

    def replica(self, cls: Any, found: Found) -> Replica:
        """Return the replica of a found agent elsewhere."""
        assert found.id is not None
        assert found.directory is not None
        make = partial(self._link_to, cls, found.description, found.directory)
        return Replica.elsewhere(found.id, found.description, found.directory, make)
