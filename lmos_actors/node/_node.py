"""`Node`: the agents of one process, and the operations on them; its life is in `_lifecycle.py`."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import trio

from lmos_actors.actors import (
    Agent,
    AgentQuery,
    CrashReport,
    DeadLetter,
    Feed,
    Ref,
    Runtime,
    Topic,
    awaited,
    link_to,
    release_link,
    topic_of,
)
from lmos_actors.supervision import (
    BulkSpec,
    ChildSpec,
    Pool,
    PoolRef,
    Supervisor,
    SupervisorSpec,
    agents_of,
    draw,
)

from ._options import encode_headers
from ._service import NodeService

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
    from os import PathLike
    from types import UnionType

    from lmos_actors.actors import Group, Spread, WaitingGraph
    from lmos_actors.bindings import ConsumedThing, Habits
    from lmos_actors.discovery import Exploration, Found, Registered
    from lmos_actors.observe import NodeStatistics
    from lmos_actors.portal import Portal

    from ._lifecycle import NodeStages

A = TypeVar("A", bound=Agent)
T = TypeVar("T")
S = TypeVar("S", bound=NodeService)
P = ParamSpec("P")


class Node:
    """An open node: its root supervisor, and the operations on its tree as a whole.

    It is made by `open_node`.
    """

    def __init__(self, stages: NodeStages) -> None:
        self._rt = stages.rt
        self._discovery = stages.discovery
        self._root = stages.root
        self._services = stages.services
        self._connections = stages.connections
        self._body = stages.body
        self._portal: Portal | None = None

    @property
    def root(self) -> Supervisor:
        """The root supervisor."""
        return self._root

    # ---- starting agents

    def start(
        self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Ref[A]]:
        """Start a permanent agent named after its class: `weather`, then `weather-2`. Raises StartFailed."""
        turns = self._rt.turns  # the check of `awaited`, written out: agents are started by the thousand
        if turns.slot is not None:
            raise turns.misuse("start", of="node.")
        made = partial(factory, *args, **kwargs) if args or kwargs else factory
        return self._root.start_named(factory, made)

    @awaited("node.")
    async def start_child(self, spec: ChildSpec[A]) -> Ref[A]:
        """Start an agent under the root supervisor. Raises NameTaken, StartFailed."""
        return await self._root.start_child(spec)

    @awaited("node.")
    async def start_pool(self, spec: Pool[A]) -> PoolRef[A]:
        """Start a pool under the root supervisor. Raises NameTaken (if it was named), StartFailed."""
        return await self._root.start_pool(spec)

    @awaited("node.")
    async def start_supervisor(self, spec: SupervisorSpec | BulkSpec) -> Supervisor:
        """Start a supervisor and its children under the root. Raises NameTaken, StartFailed."""
        return await self._root.start_supervisor(spec)

    @contextmanager
    def starting(self) -> Generator[None]:
        """Return a context manager for the start of several agents: until it ends, `/readyz` says `starting`.

        The block matters only until the node has been ready once: later starts do not make it unready.
        """
        with self._rt.starts.under_way(object()):
            yield

    def degraded(self) -> list[str]:
        """Return the paths of agents and supervisors that restart or wait to restart.

        As long as there are any, `/readyz` shows `degraded`.
        """
        return self._connections.readiness.down()

    async def degraded_change(self) -> None:
        """Wait until `degraded()` may return something else; costs nothing while nothing restarts."""
        await self._connections.readiness.change()

    @overload
    def topic(self, name: str, tp: type[T], /) -> Topic[T]: ...
    @overload
    def topic(self, name: str, tp: UnionType, /) -> Topic[Any]: ...
    def topic(self, name: str, tp: Any, /) -> Topic[Any]:
        """Return the topic of that name and type. Raises TypeError if the topic has another type."""
        return topic_of(self._rt, name, tp)

    def group(self, name: str, cls: type[A], /) -> Group[A]:
        """Return the members of that class in a group; agents join it by `self.join_group(name)`."""
        from lmos_actors.actors import Group

        return Group(self._rt, name, cls)

    # ---- agents here and elsewhere

    def find(
        self,
        cls: type[A],
        name: str | None = None,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
        spread: Spread | None = None,
        key: str | None = None,
        id: str | None = None,
    ) -> Ref[A]:
        """Return a ref to an agent of that class, by its name or path, or the first started.

        `title`, `type` (one of its `@type`), `capability` (one that its `About` names) and `affordance` (the
        name of an action, property or event) have to match as well. Agents of this node come first. If there
        is none, the directories of `register` and `lookup` are asked. An agent found elsewhere is kept until
        it cannot be reached.

        With `spread` the ref leads to all matching agents, here and elsewhere, and each request goes to one
        of them: in turn (`"round_robin"`), by the shortest queue (`"least_loaded"`), or by an argument
        (`"key"`), which is the one named `key`, else the first. An agent that is down is skipped if the
        request has not begun.

        `id` is the key of one agent (`ChildSpec.key`). The ref then leads to the node that runs it now: this
        node, or the one whose entry in a directory has the newest epoch.

        Never waits and never fails: the ref resolves on first use; `await ref.ready()` waits for it.
        """
        sought = AgentQuery(cls, name, title, type, capability, affordance, id=id)
        return Ref(link_to(self._rt, sought, spread, key))

    @awaited("node.")
    async def search(
        self,
        cls: type[Any] | None = None,
        name: str | None = None,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
        near: bool = True,
        directory: str | None = None,
    ) -> list[Found]:
        """Return all agents that match as in `find`, first the agents of this node, then agents elsewhere.

        `directory` is the URL of the directory to ask in place of the directories of `register` and `lookup`.
        Without `near`, agents of this node are left out. Entries of a directory are checked, and unusable
        ones are left out. Raises a TransportError if nothing was found and a directory did not answer.
        """
        sought = AgentQuery(cls, name, title, type, capability, affordance)
        return await self._discovery.search(sought, near=near, directory=directory)

    @awaited("node.")
    async def discover(
        self,
        source: str,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
    ) -> Exploration:
        """Return the agents at an address (`.things`), and the directories that listed some of them.

        `source` is the URL of a description, of a directory or of a server; or a host with its port, whose
        well-known URL is read (WoT Discovery); or `"mdns"`: the nodes announced on the local network by
        DNS-SD. That takes three seconds, and up to thirty more to ask these nodes, and needs the extra
        `mdns`. The answers are checked: `.left_out` lists the unusable parts.

        Raises ConnectFailed if nothing is there, ConfigError for an invalid address, ForbiddenCall for
        `"mdns"` on virtual time.
        """
        sought = AgentQuery(None, None, title, type, capability, affordance)
        return await self._discovery.explore(source, sought)

    @property
    def registrations(self) -> tuple[Registered, ...]:
        """The state of the registration of the node's agents, for each directory of `register`."""
        return self._discovery.registrations

    @awaited("node.")
    async def consume(
        self,
        cls: type[A],
        source: str | PathLike[str],
        *,
        thing: str | None = None,
        headers: Mapping[str, str] | None = None,
        habits: Habits = "auto",
        local: bool = False,
    ) -> Ref[A]:
        """Return a ref to an agent elsewhere once it is connected; a broken connection is restored.

        `source` is the `http` or `https` URL of the agent's description, or of a node that serves it; the
        path of a file with the description; or a `ws` or `wss` address, without a description. `thing` is the
        id or the name of one of several agents there. `headers` go with every connection, but not to another
        server after a redirect. `habits` is the dialect of a peer whose handshake does not name one. Refs to
        one address share a connection. A description from another host, or a redirect, may lead to this
        machine only with `local`.

        Warns if the description differs from the class in a way that would break calls. Raises ConnectFailed
        if nothing is there, ConfigError for a source that leads to no agent.
        """
        from lmos_actors.bindings import consume

        peers, coded = self._connections.peers, encode_headers(headers)
        return await consume(peers, cls, source, thing=thing, headers=coded, habits=habits, local=local)

    @awaited("node.")
    async def consume_thing(
        self,
        source: str | PathLike[str],
        *,
        thing: str | None = None,
        headers: Mapping[str, str] | None = None,
        habits: Habits = "auto",
        local: bool = False,
    ) -> ConsumedThing:
        """Return an agent elsewhere whose affordances are used by name, without a class. See `consume`."""
        from lmos_actors.bindings import consume_thing

        peers, coded = self._connections.peers, encode_headers(headers)
        return await consume_thing(peers, source, thing=thing, headers=coded, habits=habits, local=local)

    def release(self, ref: Ref[Any] | ConsumedThing) -> None:
        """Release an agent elsewhere that was consumed here; do not use the ref afterwards.

        Refs to one address share a connection: the connection ends with the last ref. Repeated calls do
        nothing, nor do calls for an agent of this node. Never waits.
        """
        release_link(ref)

    def service(self, cls: type[S], /) -> S | None:
        """Return this node's service of a class, None if it has none."""
        return next((each for each in self._connections.services if isinstance(each, cls)), None)

    # ---- connections

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses at which the node listens, such as `ws://127.0.0.1:8080`, with actual ports."""
        return self._connections.urls

    @property
    def page_url(self) -> str | None:
        """The address of the node's page, such as `http://127.0.0.1:8080/`; None if there is no page."""
        return next((each.page_url for each in self._connections.services if each.page_url is not None), None)

    @property
    def connections(self) -> int:
        """The number of incoming connections now."""
        return self._connections.count()

    @property
    def connection_failures(self) -> tuple[BaseException, ...]:
        """The last hundred exceptions that ended a single connection, the oldest first.

        They are bugs, here or in an agent: misbehaviour of a peer is handled and never recorded here.
        """
        return tuple(self._connections.failures)

    @awaited("node.")
    async def drain(self, *, spread: float = 0.0) -> None:
        """Accept no more requests over the network; wait until open ones are answered and no peer is left.

        Near callers are not affected. Leaving the node's block does the same and also stops the agents. New
        connections are refused at once; with `spread` the open ones are closed one after another over that
        many seconds, so that clients do not all connect elsewhere at the same time.
        """
        if spread:
            await self._connections.leave(spread)
        self._connections.stop_accepting()
        await self._connections.wait_drained()

    def stop(self) -> None:
        """End the node's block: its body is cancelled; it ends without an error when the agents have stopped.

        This is the way to end a process from inside: an agent that raises `SystemExit` ends only itself.
        Never blocks. Call it in the node's own thread.
        """
        self._body.cancel("node.stop()")

    def force_stop(self) -> None:
        """Stop all agents and connections at once, without draining. Then leave the node's block.

        Never blocks; the block still waits for the code of agents to unwind.
        """
        self._root.kill()
        self._connections.force_stop()

    # ---- its end, and the way in from other threads

    def portal(self) -> Portal:
        """Return the portal of this node for other threads and for asyncio code. Call it in the node.

        Raises ForbiddenCall on virtual time, where there are no other threads.
        """
        if self._portal is None:
            from lmos_actors.portal import open_portal

            home: Any = self  # pyright does not match a decorated generic method with the protocol's
            self._portal = open_portal(self._rt, self._services, home)
        return self._portal

    # ---- looking

    def agents(self) -> list[Ref[Any]]:
        """Return refs to all agents of the tree, in start order, whatever their status."""
        return [Ref(slot) for slot in agents_of(self._root)]

    def statistics(self) -> NodeStatistics:
        """Return counts over all agents in the tree now, and the memory that peers hold."""
        from lmos_actors.observe import statistics_of

        return statistics_of(self._rt, self._connections.memory())

    def waiting_graph(self) -> WaitingGraph:
        """Return the waiting graph of this instant, deadlocks included. As text, circles come first."""
        from lmos_actors.observe import graph_of

        return graph_of(self._root, self._rt)

    def dump(self) -> str:
        """Return the state of the node as text, bounded in length. Never raises.

        The text has the turn in progress, the tree with mailboxes and accounts, the stacks of runs and tasks,
        the waiting graph and the last dead letters. A process with open nodes that is sent SIGUSR1 writes the
        same to standard error.
        """
        from lmos_actors.observe import dump

        return dump(self._root, self._rt)

    @awaited("node.")
    async def metrics(self) -> str:
        """Return the node's metrics in Prometheus text format. Raises RuntimeError if the node keeps none."""
        if self._connections.metrics is None:
            raise RuntimeError("this node keeps no metrics: open_node(metrics=True) does")
        return await self._connections.metrics.text()

    def tree(self) -> str:
        """Return the tree with the state of every child, as text."""
        return "\n".join(draw(self._root))

    @property
    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last thousand one-way messages that were lost, the oldest first."""
        return tuple(self._rt.dead_letters)

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def watch_dead_letters(self, *, size: int = 64) -> AsyncGenerator[Feed[DeadLetter]]:
        """Return a context manager for a feed of every dead letter from now on, until the node ends.

        If more than `size` dead letters wait, the oldest is dropped and counted.
        """
        with _listed_feed(self._rt, self._rt.dead_letter_feeds, size) as feed:
            yield feed

    @property
    def crash_reports(self) -> tuple[CrashReport, ...]:
        """The last hundred crashes of agents, the oldest first."""
        return tuple(self._rt.crashes.reports)

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def watch_crash_reports(self, *, size: int = 64) -> AsyncGenerator[Feed[CrashReport]]:
        """Return a context manager for a feed of every crash report from now on, until the node ends.

        If more than `size` reports wait, the oldest is dropped and counted.
        """
        with _listed_feed(self._rt, self._rt.crashes.feeds, size) as feed:
            yield feed


@contextmanager
def _listed_feed(rt: Runtime, feeds: list[Feed[T]], size: int) -> Generator[Feed[T]]:
    """Keep a new feed in a list until the block is left; the feed ends with the node."""
    feed: Feed[T] = Feed(rt.timers, size=size)
    if rt.ended:
        feed.close()
    feeds.append(feed)
    try:
        yield feed
    finally:
        feeds.remove(feed)
