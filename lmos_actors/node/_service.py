"""A service of a node besides LMOS and HTTP, such as a chat protocol, a relay or the node's page.

The node knows none of its services by name. It makes each service when it opens, and calls the same methods
of all services, at the same moments of its life:

1. `children` and `begin`, before its agents start: agents of the service's own start before all others.
2. `open`, once the node listens and before it takes connections. A node without an address never calls it,
   nor the methods below.
3. `routes`, `apart` and `wrap` once, for HTTP; `accept` for each WebSocket, in the order of the services,
   until one of them claims the address. All other WebSockets go to LMOS.
4. `run` is a task of the node from then on, and is cancelled at its end.
5. `on_drain` when the node takes no more requests, and again whenever one more connection may have become
   idle. Then `wait_done`: the node ends once no request from others is open.

In addition, the page shows the `views` of the service, its statistics among them, and `/readyz` calls
`why_not_ready`. Only `run` and `wait_done` may block, and only `open` may raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypedDict

import attrs

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from starlette.routing import BaseRoute

    from lmos_actors.actors import Runtime
    from lmos_actors.bindings import Exposure, LmosServer
    from lmos_actors.discovery import Directory
    from lmos_actors.security import Credentials, Guard, IssuedTokens, SharedToken
    from lmos_actors.supervision import ChildSpec, Supervisor
    from lmos_actors.transport import Accept, App, Network, Refuse, Upgrade

View: TypeAlias = "Callable[[], dict[str, Any]]"
"""Returns plain data without null, at once and within bounds; see `docs/reference/live.md`."""


class OwnAgents(TypedDict, total=False):
    """The facts about a service's own agents, as arguments of `Guard`."""

    storage_agents: Collection[str]
    shared: SharedToken | None
    is_approvals: Callable[[str], bool]


@attrs.frozen(kw_only=True)
class ServiceHome:
    """The node of a service, once it listens.

    `exposure` lists the agents that others can reach, `guard` decides who may reach them, `server` counts all
    requests and drains them. `bases` are the addresses over HTTP. `network`, `tls` and `credentials` are for
    connections to others.
    """

    rt: Runtime
    root: Supervisor
    exposure: Exposure
    server: LmosServer
    guard: Guard
    bases: tuple[str, ...]
    network: Network
    tls: ssl.SSLContext | None
    credentials: Credentials | None
    start_soon: Callable[..., None]
    """Start a task of the node: `start_soon(async_fn, *args, name="...")`. It ends with the node."""
    failed: Callable[[BaseException], object]
    """Take an exception that ended one connection, or a part of it; never raises."""
    drain: Callable[[], None]
    """Drain the node, beside its body."""
    guard_with: Callable[[IssuedTokens], Guard]
    """Return a guard that takes these tokens too, and counts failed attempts together with `guard`."""
    views: Callable[[], Mapping[str, View]]
    """Return the views of the network and of all services, by name."""

    @property
    def url(self) -> str:
        """The first address over HTTP."""
        return self.bases[0]


class NodeService:
    """The base class of the services of a node, whose methods do nothing. See the top of this file."""

    name: ClassVar[str] = "service"
    """The name of its task."""

    logs_people_in: ClassVar[bool] = False
    """Whether people log in at it, on a node that asks for credentials."""

    hosts_directory: ClassVar[bool] = False
    """Whether it has a directory of agents, which `directory` returns."""

    unregistered: tuple[str, ...] = ()
    """The paths of its agents that are registered at no directory."""

    page_url: str | None = None
    """The address for browsers, if it has one; see `Node.page_url`."""

    @property
    def apart(self) -> tuple[str, ...]:
        """The paths of HTTP routes that have a guard of their own."""
        return ()

    def children(self) -> Sequence[ChildSpec[Any]]:
        """Return the specs of the service's own agents."""
        return ()

    def begin(self, rt: Runtime, root: Supervisor) -> None:
        """Note the node to which the service belongs, before its agents start."""

    def own_agents(self) -> OwnAgents:
        """Return what the node's guard must know about this service's agents."""
        return {}

    def directory(self, url: str) -> Directory | None:
        """Return the service's directory, served at a base address. Called before the agents start."""
        del url
        return None

    def open(self, home: ServiceHome) -> None:
        """Note the `ServiceHome`, once the node listens. Raises ConfigError."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return the HTTP routes."""
        return ()

    def accept(self, upgrade: Upgrade) -> Accept | Refuse | None:
        """Decide about a WebSocket; return None if its address does not belong to the service."""
        del upgrade
        return None

    def wrap(self, app: App) -> App:
        """Return the application for the node's HTTP: `app`, or another one in front of it."""
        return app

    def views(self) -> Mapping[str, View]:
        """Return the views of this service, by name. Several services may contribute to one view."""
        return {}

    def why_not_ready(self) -> str:
        """Return in a word or two why the node takes no requests now; "" if it takes them."""
        return ""

    async def run(self) -> None:
        """Do the work of the service beside its connections, until cancelled."""

    def on_drain(self) -> None:
        """Accept no more requests; see `LmosServer.drain`."""

    async def wait_done(self) -> None:
        """Wait until no request from others is open."""


def first_of(
    services: Sequence[NodeService], others: Callable[[Upgrade], Accept | Refuse]
) -> Callable[[Upgrade], Accept | Refuse]:
    """Return a function that offers a WebSocket to each service, and to `others` if none claims it."""

    def decided(upgrade: Upgrade) -> Accept | Refuse:
        for service in services:
            found = service.accept(upgrade)
            if found is not None:
                return found
        return others(upgrade)

    return decided


def joined_agents(parts: Iterable[OwnAgents]) -> OwnAgents:
    """Join the facts about all services' agents, so that no service lifts the protection of another's.

    Raise ConfigError if there are two shared tokens.
    """
    names: list[str] = []
    predicates: list[Callable[[str], bool]] = []
    tokens: list[SharedToken] = []
    for part in parts:
        names += part.get("storage_agents", ())
        if (predicate := part.get("is_approvals")) is not None:
            predicates.append(predicate)
        if (token := part.get("shared")) is not None:
            tokens.append(token)
    if len(tokens) > 1:
        raise ConfigError("two of them have a shared token, and a node has one at most", "services")
    return {
        "storage_agents": names,
        "shared": tokens[0] if tokens else None,
        "is_approvals": lambda name: any(predicate(name) for predicate in predicates),
    }


def joined_views(parts: Sequence[Mapping[str, View]]) -> dict[str, View]:
    """Join the views of all services by name; views of one name are merged."""
    found: dict[str, list[View]] = {}
    for part in parts:
        for name, view in part.items():
            found.setdefault(name, []).append(view)
    return {name: _joined(views) for name, views in found.items()}


def _joined(views: Sequence[View]) -> View:
    return lambda: {member: value for view in views for member, value in view().items()}
