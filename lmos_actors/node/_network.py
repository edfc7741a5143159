"""The network of one node: the addresses at which it listens, and the peers that its refs reach.

`Connections` is a stage around the supervisors: while children stop, their last answers still go out. The
packages `transport` and `bindings` are imported inside functions: a node that neither listens nor consumes
loads none of them.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import TOTAL, Budget, BudgetStatistics, ShieldedNursery
from lmos_actors.errors import is_interrupt

from ._options import sessions_at, urls_at, without_none
from ._service import NodeService, ServiceHome, first_of, joined_agents, joined_views
from ._traffic import BoundedWarnings, traffic_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from lmos_actors.actors import Ref, Runtime
    from lmos_actors.bindings import Descriptions, Exposure, LmosServer, Peers
    from lmos_actors.discovery import Registered
    from lmos_actors.observe import Metrics
    from lmos_actors.protocol.lmos import SessionOptions
    from lmos_actors.security import Credentials, Guard, IssuedTokens, Sessions
    from lmos_actors.supervision import Supervisor, SupervisorSpec
    from lmos_actors.transport import Accept, App, FrontDoor, Listener, Network, Refuse, Upgrade

    from ._options import RuntimeOptions
    from ._readiness import Readiness
    from ._service import OwnAgents, View

NOTICE: Final = 1.0
"""Limit for `before_stop`, in seconds."""


class Connections:
    """The connections of one node, as a stage of its life; see the module docstring."""

    home: ServiceHome | None = None
    """The node as its services see it, once it listens."""

    registrations: Callable[[], tuple[Registered, ...]] | None = None
    """Returns the state of the registration at each directory."""

    def __init__(self, rt: Runtime, options: RuntimeOptions, nursery: trio.Nursery) -> None:
        self._rt = rt
        rt.remote_ref = self._remote_ref
        rt.wires = self
        self._options = options
        self.services = [make() for make in options.all_services()]
        """The services of the node, beside LMOS and HTTP."""
        self._stage = ShieldedNursery(nursery)
        self._network = options.network
        self._budget: Budget | None = None
        self._listeners: list[Listener] = []
        self._doors: list[FrontDoor] = []
        self._open: dict[FrontDoor, None] = {}
        self._all_closed = trio.Event()
        self._server: LmosServer | None = None
        self._peers: Peers | None = None
        self._before_stop_scope = trio.CancelScope()
        self._goodbye_scope = trio.CancelScope()
        self._refused = BoundedWarnings("TLS", real=rt.real)
        self.urls: tuple[str, ...] = ()
        """The addresses at which the node listens, with actual ports."""
        self.descriptions: Descriptions | None = None
        """The descriptions that are served; None before `listen`."""
        self.at_stop_accepting: list[Callable[[], None]] = []
        """Called when no more requests are taken in; must not raise."""
        self.before_stop: list[Callable[[], Awaitable[None]]] = []
        """Awaited before the agents are stopped, for `NOTICE` seconds at most."""
        self.before_goodbye: list[Callable[[], Awaitable[None]]] = []
        """Awaited, within the time for closing, before connections are closed."""
        self.failures: deque[BaseException] = deque(maxlen=options.limits.connection_failures)
        """The last exceptions that ended single connections: bugs of the runtime or of an agent."""
        self.metrics: Metrics | None = None
        """The node's metrics, if it keeps any."""

    def watch(self, root: Supervisor) -> None:
        """Start the metrics and traces of requests, if the options ask for them. Raises ConfigError."""
        options = self._options
        if not (options.metrics or options.tracing):
            return
        from lmos_actors.observe import metrics_options, watch_edge

        self.metrics = watch_edge(
            self._rt,
            root,
            metrics_options(options.metrics),
            options.tracing,
            lambda: traffic_of(self._doors, self._server, self._peers, self.budget),
            self.note_failure,
        )

    @cached_property
    def readiness(self) -> Readiness:
        """The readiness of the node to take requests."""
        from ._readiness import Readiness

        return Readiness(
            self._rt, drains=self._drains, is_open=lambda: bool(self._open), services=self.services
        )

    @property
    def network(self) -> Network:
        """The network that opens and accepts connections."""
        if self._network is None:
            from lmos_actors.transport import default_network

            self._network = default_network()
        return self._network

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        """The TLS context of outgoing connections; None for the system's default."""
        return self._options.client_tls

    @property
    def credentials(self) -> Credentials | None:
        """The credentials that outgoing connections present."""
        return self._options.credentials

    @property
    def budget(self) -> Budget:
        """The memory that all peers of this node may hold together."""
        if self._budget is None:
            self._budget = Budget(self._total_bytes)
        return self._budget

    @property
    def _total_bytes(self) -> int:
        connection = self._options.connection
        return TOTAL if connection is None else connection.total_bytes

    def memory(self) -> BudgetStatistics:
        """Return how much memory peers hold now."""
        budget = self._budget
        return BudgetStatistics(0, self._total_bytes, 0) if budget is None else budget.statistics()

    @property
    def is_in_memory(self) -> bool:
        """Whether connections stay inside the process."""
        from lmos_actors.transport import MemoryNetwork

        return isinstance(self.network, MemoryNetwork)

    @property
    def _has_names(self) -> bool:
        """Whether the node can be reached by the name of the machine."""
        return not self.is_in_memory

    # ---- connections from peers

    async def listen(self, root: Supervisor) -> None:
        """Listen at all addresses. Connections wait in the backlog until `start`. Raises ConfigError."""
        if not self._options.endpoints:
            return
        urls: list[str] = []
        if self._has_names:
            self._options.check_exposed()
        for endpoint in self._options.endpoints:
            listener = await self.network.listen(endpoint)
            self._listeners.append(listener)
            urls += urls_at(endpoint, listener, named=self._has_names)
        self.urls = tuple(urls)
        self._build(root)

    def _build(self, root: Supervisor) -> None:
        from lmos_actors.bindings import Descriptions, Exposure, LmosServer, http_of
        from lmos_actors.bindings.http import http_app
        from lmos_actors.observe import health_routes

        options = self._options
        bases = self.urls if options.public_url is None else (options.public_url,)
        exposure = Exposure(root, [http_of(base) for base in bases])
        sessions = None
        if any(service.logs_people_in for service in self.services):
            sessions = sessions_at(options, self.urls[0])  # None if no client needs them, either
        guard = self._guard(exposure, sessions=sessions)
        server = self._server = LmosServer(
            self._rt,
            exposure,
            options=options.session,
            guard=guard,
            on_failure=self.note_failure,
            budget=self.budget,
        )
        descriptions = self.descriptions = Descriptions(exposure, bases, guard.security, options.public_url)
        self.home = self._home(root, exposure, server, guard, tuple(map(http_of, bases)))
        for service in self.services:
            service.open(self.home)
            server.join(service)
        app = http_app(
            descriptions,
            server,
            extra=[
                *health_routes(self.readiness.word, self.metrics),
                *(route for service in self.services for route in service.routes()),
            ],
            guard=guard,
            apart=tuple(path for service in self.services for path in service.apart),
            options=options.http,
        )
        for service in self.services:
            app = service.wrap(app)
        self._open_doors(first_of(self.services, server.accept), app)

    def _open_doors(self, route: Callable[[Upgrade], Accept | Refuse], app: App) -> None:
        from lmos_actors.transport import FrontDoor

        options = self._options
        for endpoint, listener in zip(options.endpoints, self._listeners, strict=True):
            door = FrontDoor(
                listener,
                route=route,
                app=app,
                tls=options.tls if endpoint.secure else None,
                on_failure=self.note_failure,
                on_refusal=self._refused.warn,
                now=self._rt.entropy.now,
                budget=self.budget,
                **without_none(options=options.door, connection=options.connection),
            )
            self._doors.append(door)

    def _home(
        self, root: Supervisor, exposure: Exposure, server: LmosServer, guard: Guard, bases: tuple[str, ...]
    ) -> ServiceHome:
        """Return the node as its services see it."""
        return ServiceHome(
            rt=self._rt,
            root=root,
            exposure=exposure,
            server=server,
            guard=guard,
            bases=bases,
            network=self.network,
            tls=self.client_tls,
            credentials=self.credentials,
            start_soon=self.start_soon,
            failed=self.note_failure,
            drain=self._begin_drain,
            guard_with=partial(self._guard, exposure, beside=guard),
            views=partial(self._views, server),
        )

    def _views(self, server: LmosServer) -> dict[str, View]:
        """Return the views of the network and of all services, by name."""
        from ._network_views import connections_view, directories_view

        own: dict[str, View] = {
            "connections": lambda: connections_view(
                zip(self.urls, self._doors, strict=False), server, self._peers, self.budget, self.failures
            ),
            "directories": lambda: directories_view(
                () if self.registrations is None else self.registrations()
            ),
        }
        return joined_views([own, *(service.views() for service in self.services)])

    def add_door(self, door: FrontDoor, listener: Listener, service: NodeService) -> None:
        """Serve a service at one more door until the node stops. The node must be listening."""
        assert self._server is not None  # the node listens
        self._server.join(service)
        self._doors, self._listeners = [*self._doors, door], [*self._listeners, listener]
        self._open[door] = None
        self.start_soon(self._serve, door, name=f"front door of the {service.name}")

    def with_children(self, tree: SupervisorSpec) -> SupervisorSpec:
        """Return the tree with the agents of the services as its first children."""
        own = tuple(child for service in self.services for child in service.children())
        return attrs.evolve(tree, children=(*own, *tree.children)) if own else tree

    @cached_property
    def own_agents(self) -> OwnAgents:
        """The facts about the services' own agents, as arguments of the guard."""
        return joined_agents(service.own_agents() for service in self.services)

    def _guard(
        self,
        exposure: Exposure,
        tokens: IssuedTokens | None = None,
        sessions: Sessions | None = None,
        beside: Guard | None = None,
    ) -> Guard:
        """Return a guard for this node, which shares the counts of failed attempts with `beside`.

        Raises ConfigError.
        """
        from lmos_actors.security import Guard

        entropy, options = self._rt.entropy, self._options
        return Guard(
            options.effective_security(),
            wall=lambda: entropy.now().timestamp(),
            hosts=options.host_names(named=self._has_names),
            public_url=options.public_url,
            pool_of=exposure.pool_of,
            report=self._report,
            tokens=tokens,
            operations=options.allow_operations,
            sessions=sessions,
            attempts=None if beside is None else beside.attempts,
            **self.own_agents,
        )

    def _report(self, trouble: str) -> None:
        if self._rt.real:
            logging.getLogger("lmos_actors").error("security: %s", trouble)

    def _drains(self) -> bool:
        return self._server is not None and (self._server.context.leaving or self._server.context.draining)

    def start(self) -> None:
        """Accept connections."""
        for door, url in zip(self._doors, self.urls, strict=False):
            self._open[door] = None
            self.start_soon(self._serve, door, name=f"front door of {url}")
        if self.home is not None:
            for service in self.services:
                if type(service).run is not NodeService.run:
                    self.start_soon(service.run, name=service.name)

    def start_soon(self, async_fn: Callable[..., Awaitable[object]], *args: Any, name: str) -> None:
        """Start a task of this stage in the node's context, even if the caller is an agent's run."""
        context = self._rt.base_context.copy()
        context.run(partial(self._stage.start_soon, async_fn, *args, name=name))

    async def _serve(self, door: FrontDoor) -> None:
        try:
            await door.serve()
        finally:
            del self._open[door]
            if not self._open:
                self._all_closed.set()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of `listen`, as written there."""
        return tuple(endpoint.host for endpoint in self._options.endpoints)

    def authorities(self) -> tuple[str, ...]:
        """Return host and port of all addresses at which this node is reached, `public_url` included."""
        from lmos_actors.transport import endpoint_of

        bases = () if self.descriptions is None else self.descriptions.bases
        return tuple(endpoint_of(url).authority for url in (*self.urls, *bases))

    def count(self) -> int:
        """Return the number of incoming connections."""
        return sum(door.statistics().open for door in self._doors)

    # ---- outgoing connections

    @property
    def peers(self) -> Peers:
        """The peers that refs of this node reach; made at the first use."""
        if self._peers is None:
            self._peers = self.peers_with(tls=self._options.client_tls, credentials=self._options.credentials)
        return self._peers

    def _remote_ref(self, cls: type[Any], url: str, thing: str) -> Ref[Any]:
        from lmos_actors.bindings import remote_ref

        return remote_ref(self.peers, cls, url, thing)

    def peers_with(
        self,
        *,
        tls: ssl.SSLContext | None,
        credentials: Credentials | None,
        network: Network | None = None,
        session: SessionOptions | None = None,
    ) -> Peers:
        """Return separate peers that use this TLS context and these credentials; they share no connections.

        `network` and `session` default to the node's own.
        """
        from lmos_actors.bindings import Peers

        return Peers(
            self.network if network is None else network,
            self._rt,
            self.start_soon,
            session=self._options.session if session is None else session,
            connection=self._options.connection,
            http=self._options.http,
            tls=tls,
            credentials=credentials,
            on_failure=self.note_failure,
            budget=self.budget,
        )

    def note_failure(self, error: BaseException) -> None:
        """Note an exception that has ended a single connection, or a part of it."""
        self.failures.append(error)
        if self._rt.fatal is not None and is_interrupt(error):
            self._rt.fatal(error)
        elif self._rt.real:
            logging.getLogger("lmos_actors").error("a connection failed", exc_info=error)

    # ---- the end

    async def leave(self, seconds: float) -> None:
        """Accept no more connections; close the open ones over `seconds`. Call `stop_accepting` next."""
        self._withdraw()
        if self._server is not None:
            await self._server.leave(seconds)

    def _withdraw(self) -> None:
        callbacks, self.at_stop_accepting = self.at_stop_accepting, []
        for callback in callbacks:
            callback()

    def stop_accepting(self) -> None:
        """Accept no more connections and requests; open requests are still answered."""
        self._withdraw()
        for door in self._doors:
            door.stop_accepting()
        if self._server is not None:
            self._server.drain()

    def _begin_drain(self) -> None:
        """Drain as `Node.drain` does, alongside the node's body."""
        self.stop_accepting()
        self.start_soon(self.wait_drained, name="drain")

    async def wait_drained(self) -> None:
        """Wait until all requests are answered and all connections closed; call `stop_accepting` first.

        Peers that only have subscriptions are not waited for.
        """
        if self._server is not None:
            self._server.finish()
        if self._open:
            await self._all_closed.wait()
        if self._server is not None:
            await self._server.wait_done()

    async def run_before_stop(self) -> None:
        """Await `before_stop`, while the agents still run; call `stop_accepting` first."""
        if self.before_stop:
            with trio.CancelScope(shield=True), self._before_stop_scope, trio.move_on_after(NOTICE):
                for wait in self.before_stop:
                    await wait()

    @enable_ki_protection
    async def close(self) -> None:
        """Close all connections, waiting for peers within limits; Ctrl-C meanwhile closes them at once."""
        try:
            with trio.CancelScope(shield=True), self._goodbye_scope:
                await self._say_goodbye()
        except KeyboardInterrupt:
            self.force_stop()
            await self.close()
            raise
        self._stage.end()
        with trio.CancelScope(shield=True):
            for listener in self._listeners:
                await listener.aclose()

    async def _say_goodbye(self) -> None:
        """Await `before_goodbye`, then wait for peers, within the time for closing."""
        connection = self._options.connection
        # without options the defaults, whose package a node without connections does not load
        patience = 10.0 if connection is None else connection.close_seconds + connection.stop_seconds
        with trio.move_on_after(patience):
            for wait in self.before_goodbye:
                await wait()
            await self.wait_drained()

    def force_stop(self) -> None:
        """Close all connections at once, without draining."""
        self._before_stop_scope.cancel("the node is ended at once")
        self._goodbye_scope.cancel("the node is ended at once")
