"""A node's connections in numbers, for its metrics."""

from __future__ import annotations

import logging
import socket
from collections import Counter, deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import TOTAL, Budget, BudgetStatistics, Services
from lmos_actors.actors import Agent, awaited, release_link
from lmos_actors.observe import Traffic

from ._options import EVERYWHERE, Wanted, coded_headers, default_network

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from starlette.routing import BaseRoute

    from lmos_actors.actors import Ref, Runtime
    from lmos_actors.bindings import ConsumedThing, Descriptions, Exposure, Habits, LmosServer, Peers
    from lmos_actors.observe import Metrics
    from lmos_actors.security import Guard, Security
    from lmos_actors.supervision import Supervisor
    from lmos_actors.transport import Endpoint, FrontDoor, Listener, Network


def traffic_of(
    doors: Iterable[FrontDoor], server: LmosServer | None, peers: Peers | None, budget: Budget
) -> Traffic:
    """Count the connections at these doors, and those to peers."""
    counts = [door.statistics() for door in doors]
    refused: Counter[str] = Counter()
    for count in counts:
        refused.update(count.refused)
    served = None if server is None else server.statistics()
    known = {} if peers is None else peers.statistics()
    return Traffic(
        connections=sum(count.open for count in counts),
        accepted=sum(count.accepted for count in counts),
        refused=refused,
        turned_away={} if server is None else dict(server.not_let_in),
        open_requests=0 if served is None else served.open,
        draining=served is not None and served.draining,
        peers=known.get("peers", 0),
        peers_connected=known.get("connected", 0),
        held=budget.statistics(),
    )


# --- the connections of a node: what it listens at, and the peers that its refs reach
#
# They are a stage around the supervisors: while children stop, their last answers still go out. What opens
# sockets, and what speaks over them, is imported by nodes that need it and by no others.

FAILURES: Final = 100
"""Exceptions of connections that are kept."""

WARNED: Final = 5
"""Warnings about peers that are logged within `WARNED_SECONDS`."""

WARNED_SECONDS: Final = 60.0

GRACE: Final = 5.0
"""Seconds beyond those of a connection's own good-bye after which nobody is waited for."""

NOTICE: Final = 1.0
"""Seconds for what comes before the agents are stopped."""

GOODBYE: Final = 5.0 + GRACE


class MoreRoutes(Protocol):
    """Gives what is served over HTTP beside the agents."""

    def __call__(
        self, server: LmosServer, bases: Sequence[str], security: Security, /
    ) -> list[BaseRoute]: ...


class BoundedWarnings:
    """Warnings that any peer can cause: in each minute the first few are logged, the rest is counted.

    The count is logged with the next one that is.
    """

    def __init__(self, subject: str, *, real: bool) -> None:
        self._subject = subject
        self._real = real
        self._left = 0
        self._until = -inf
        self._unlogged = 0

    def warn(self, text: str) -> None:
        """Log a line, or count it."""
        if not self._real:
            return
        now = trio.current_time()
        if now >= self._until:
            self._until, self._left = now + WARNED_SECONDS, WARNED
        if not self._left:
            self._unlogged += 1
            return
        self._left -= 1
        missed = f" ({self._unlogged} more were not logged)" if self._unlogged else ""
        more = "" if self._left else f"; more within {WARNED_SECONDS:g} s are only counted"
        self._unlogged = 0
        logging.getLogger("lmos_actors").warning("%s: %s%s%s", self._subject, text, missed, more)


def _no_routes(_server: LmosServer, _bases: Sequence[str], _security: Security, /) -> list[BaseRoute]:
    return []


class Connections:
    """The stage of one node; see the head of this file."""

    def __init__(self, rt: Runtime, wanted: Wanted, nursery: trio.Nursery) -> None:
        self._rt = rt
        self._wanted = wanted
        self._endpoints = wanted.endpoints()
        self._stage = Services(nursery)
        self._network = wanted.network
        self._budget: Budget | None = None
        self._listeners: list[Listener] = []
        self._doors: list[FrontDoor] = []
        self._open: dict[FrontDoor, None] = {}
        self._all_gone = trio.Event()
        self._server: LmosServer | None = None
        self._peers: Peers | None = None
        self._notice = trio.CancelScope()
        self._last_words = trio.CancelScope()
        self._refused = BoundedWarnings("TLS", real=rt.real)
        self._hurried = False
        self.urls: tuple[str, ...] = ()
        """The addresses that are listened at, with the ports as they are."""
        self.descriptions: Descriptions | None = None
        """What is served, once it listens."""
        self.more_routes: MoreRoutes = _no_routes
        """What is served over HTTP beside the agents, at these addresses."""
        self.keepers: tuple[str, ...] = ()
        """Public names of agents whose actions read and write what they keep; see `Guard`."""
        self.at_refuse: list[Callable[[], None]] = []
        """What is called when no more requests are taken in; must not raise."""
        self.before_stop: list[Callable[[], Awaitable[None]]] = []
        """What is waited for, for a second at most, before the agents are stopped."""
        self.before_goodbye: list[Callable[[], Awaitable[None]]] = []
        """What is waited for, within limits, before peers are told good-bye."""
        self.failures: deque[BaseException] = deque(maxlen=FAILURES)
        """What has ended single connections and is a mistake of ours or of an agent's author."""
        self.metrics: Metrics | None = None
        """What the node tells in numbers, where that is wanted."""

    def watch(self, root: Supervisor) -> None:
        """Have requests measured and traced, where that is wanted. Raises ConfigError."""
        wanted = self._wanted
        if not (wanted.metrics or wanted.tracing):
            return
        from lmos_actors.observe import metrics_options, watch_edge

        self.metrics = watch_edge(
            self._rt,
            root,
            metrics_options(wanted.metrics),
            wanted.tracing,
            lambda: traffic_of(self._doors, self._server, self._peers, self.budget),
            self._failed,
        )

    @property
    def network(self) -> Network:
        """Where connections come from."""
        if self._network is None:
            self._network = default_network()
        return self._network

    @property
    def budget(self) -> Budget:
        """What peers may hold in memory, over all connections that this node takes or makes."""
        if self._budget is None:
            self._budget = Budget(self._total_bytes)
        return self._budget

    @property
    def _total_bytes(self) -> int:
        connection = self._wanted.connection
        return TOTAL if connection is None else connection.total_bytes

    def memory(self) -> BudgetStatistics:
        """Return what peers hold of the node's memory now."""
        budget = self._budget
        return BudgetStatistics(0, self._total_bytes, 0) if budget is None else budget.statistics()

    @property
    def is_in_memory(self) -> bool:
        """Whether its connections stay inside of the process."""
        from lmos_actors.transport import MemoryNetwork

        return isinstance(self.network, MemoryNetwork)

    @property
    def _has_names(self) -> bool:
        """Whether the machine's name leads to it, and not only what is listened at."""
        return not self.is_in_memory

    # ---- those who connect to us

    async def listen(self, root: Supervisor) -> None:
        """Listen: whoever connects from now on is heard once `start` is called. Raises ConfigError."""
        if not self._endpoints:
            return
        urls: list[str] = []
        if self._has_names:
            self._wanted.check_exposed(self._endpoints)
        for endpoint in self._endpoints:
            listener = await self.network.listen(endpoint)
            self._listeners.append(listener)
            urls += _urls(endpoint, listener, named=self._has_names)
        self.urls = tuple(urls)
        self._build(root)

    def _build(self, root: Supervisor) -> None:
        from lmos_actors.bindings import Descriptions, Exposure, LmosServer, http_app, http_of
        from lmos_actors.transport import FrontDoor

        wanted = self._wanted
        bases = self.urls if wanted.public_url is None else (wanted.public_url,)
        exposure = Exposure(root, [http_of(base) for base in bases])
        guard = self._guard(exposure)
        server = self._server = LmosServer(
            self._rt,
            exposure,
            options=wanted.session,
            guard=guard,
            on_failure=self._failed,
            budget=self.budget,
        )
        descriptions = self.descriptions = Descriptions(exposure, bases, guard.security)
        more = [*self.more_routes(server, bases, guard.security), *self._routes()]
        app = http_app(descriptions, server, extra=more, guard=guard)
        for endpoint, listener in zip(self._endpoints, self._listeners, strict=True):
            door = FrontDoor(
                listener,
                route=server.accept,
                app=app,
                tls=wanted.tls if endpoint.secure else None,
                on_failure=self._failed,
                on_refusal=self._refused.warn,
                now=self._rt.entropy.now,
                budget=self.budget,
                **_given(options=wanted.door, connection=wanted.connection),
            )
            self._doors.append(door)

    def _guard(self, exposure: Exposure) -> Guard:
        """Make what decides who is let in. Raises ConfigError where a secret is missing."""
        from lmos_actors.security import Guard

        entropy, wanted = self._rt.entropy, self._wanted
        return Guard(
            wanted.rules(),
            wall=lambda: entropy.now().timestamp(),
            hosts=wanted.names(self._endpoints, named=self._has_names),
            public_url=wanted.public_url,
            keepers=self.keepers,
            pool_of=exposure.pool_of,
            report=self._report,
        )

    def _report(self, trouble: str) -> None:
        if self._rt.real:
            logging.getLogger("lmos_actors").error("security: %s", trouble)

    def _routes(self) -> list[BaseRoute]:
        """Return what is served over HTTP beside the agents."""
        from lmos_actors.observe import health_routes

        return health_routes(self._unready, self.metrics)

    def _unready(self) -> str | None:
        """Return why no requests are taken now, None where they are."""
        if self._server is not None and self._server.draining:
            return "draining"
        return None if self._open else "starting"

    def start(self) -> None:
        """Let in those who connect."""
        for door, url in zip(self._doors, self.urls, strict=False):
            self._open[door] = None
            self.start_soon(self._serve, door, name=f"front door of {url}")

    def start_soon(self, async_fn: Callable[..., Awaitable[object]], *args: Any, name: str) -> None:
        """Start a task of the stage: it belongs to the node, though an agent's run may have asked for it."""
        context = self._rt.base_context.copy()
        context.run(partial(self._stage.start_soon, async_fn, *args, name=name))

    async def _serve(self, door: FrontDoor) -> None:
        try:
            await door.serve()
        finally:
            del self._open[door]
            if not self._open:
                self._all_gone.set()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where it listens, as was said."""
        return tuple(endpoint.host for endpoint in self._endpoints)

    def authorities(self) -> tuple[str, ...]:
        """Return host and port of all addresses at which this node is reached."""
        from lmos_actors.transport import endpoint_of

        bases = () if self.descriptions is None else self.descriptions.bases
        return tuple(endpoint_of(url).authority for url in (*self.urls, *bases))

    def count(self) -> int:
        """Return how many connections others have to this node."""
        return sum(door.statistics().open for door in self._doors)

    # ---- those to whom we connect

    @property
    def peers(self) -> Peers:
        """The peers that refs of this node reach; made at the first use."""
        if self._peers is None:
            from lmos_actors.bindings import Peers

            wanted = self._wanted
            self._peers = Peers(
                self.network,
                self._rt,
                self.start_soon,
                session=wanted.session,
                connection=wanted.connection,
                tls=wanted.client_tls,
                credentials=wanted.credentials,
                on_failure=self._failed,
                budget=self.budget,
            )
        return self._peers

    def _failed(self, error: BaseException) -> None:
        self.failures.append(error)
        if not isinstance(error, Exception) and self._rt.fatal is not None:
            self._rt.fatal(error)
        elif self._rt.real:
            logging.getLogger("lmos_actors").error("a connection failed", exc_info=error)

    # ---- the end

    def refuse(self) -> None:
        """Take in no more connections, and no more requests; what is being worked on is still answered."""
        for tell in self.at_refuse:
            tell()
        for door in self._doors:
            door.stop_accepting()
        if self._server is not None:
            self._server.drain()

    async def drained(self) -> None:
        """Wait until all requests are answered and all connections closed; `refuse` comes before.

        Who only listens is not waited for.
        """
        if self._server is not None:
            self._server.finish()
        if self._open:
            await self._all_gone.wait()
        if self._server is not None:
            await self._server.wait_done()

    async def give_notice(self) -> None:
        """Do what has to be done while the agents still run; `refuse` comes before."""
        if self.before_stop:
            with trio.CancelScope(shield=True), self._notice, trio.move_on_after(NOTICE):
                for wait in self.before_stop:
                    await wait()

    @enable_ki_protection
    async def close(self) -> None:
        """Say good-bye to all peers, within limits, and close; Ctrl-C meanwhile cuts that short."""
        try:
            with trio.CancelScope(shield=True), self._last_words:
                await self._say_goodbye()
        except KeyboardInterrupt:
            self.hurry()
            await self.close()
            raise
        self._stage.end()
        with trio.CancelScope(shield=True):
            for listener in self._listeners:
                await listener.aclose()

    async def _say_goodbye(self) -> None:
        """Wait for peers that are told good-bye, which is not for long."""
        options = self._wanted.connection
        with trio.move_on_after(GOODBYE if options is None else options.close_seconds + GRACE):
            for wait in self.before_goodbye:
                await wait()
            await self.drained()

    def hurry(self) -> None:
        """Give no connection any more time."""
        self._notice.cancel("the node is ended at once")
        self._last_words.cancel("the node is ended at once")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _urls(endpoint: Endpoint, listener: Listener, *, named: bool) -> list[str]:
    """Return the addresses at which a listener is reached."""
    host = endpoint.host
    if named and host in EVERYWHERE:
        host = socket.gethostname()
    ports = dict.fromkeys(port for _, port in listener.addresses)
    return [attrs.evolve(endpoint, host=host, port=port, target="").url for port in ports]


# --- what a node consumes: agents elsewhere, by where they are

A = TypeVar("A", bound=Agent)


class Consuming:
    """The part of a node that reaches agents elsewhere."""

    _connections: Connections

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
        """Return a ref to an agent elsewhere, once its first connection stands; what breaks later is mended.

        `source` is the `http` or `https` URL of its description, or of a node that serves it; the path of a
        file with its description; or a `ws` or `wss` address, without one. `thing` is the id or the name of
        one of several. `headers` go with every connection, but not along with a redirect to another server;
        `habits`: how a peer behaves whose handshake does not tell. Refs to one address share a connection.
        A description of another host, and redirects, lead to this very machine only where `local` allows it.

        Warns where its description differs from the class in what would break. Raises ConnectFailed when
        nothing is there, ConfigError for a source that leads to no agent.
        """
        from lmos_actors.bindings import consume

        peers, coded = self._connections.peers, coded_headers(headers)
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
        """Return an agent elsewhere whose class is not at hand: its affordances by name. See `consume`."""
        from lmos_actors.bindings import consume_thing

        peers, coded = self._connections.peers, coded_headers(headers)
        return await consume_thing(peers, source, thing=thing, headers=coded, habits=habits, local=local)

    def release(self, ref: Ref[Any] | ConsumedThing) -> None:
        """Let go of an agent elsewhere that was consumed here; the ref is not to be used any more.

        Refs to one address share a connection: it ends with the last of them. Repeated calls do nothing, nor
        does one for an agent of this node. Never waits.
        """
        release_link(ref)
