"""Discovery of one node: registration, search, announcement, and the directory that it hosts.

The package `discovery` is imported inside functions: a node that uses none of it does not load it.
"""

from __future__ import annotations

import logging
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.errors import ConfigError, ForbiddenCall

from ._options import argument

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Headers
    from lmos_actors.actors import AgentQuery, Link, Runtime, Spread
    from lmos_actors.bindings import Exposed
    from lmos_actors.discovery import (
        AgentFinder,
        Announcement,
        Announcer,
        Directory,
        Exploration,
        Found,
        Lookup,
        Registered,
        Registrar,
        ReplicaLink,
    )
    from lmos_actors.protocol.td import Description

    from ._network import Connections
    from ._options import RuntimeOptions


MDNS: Final = "mdns"
"""The source of `discover` that means the local network."""


class Discovery:
    """The discovery of one node."""

    def __init__(self, rt: Runtime, connections: Connections, options: RuntimeOptions) -> None:
        self._rt = rt
        self._connections = connections
        self._options = options
        self._registrars: list[Registrar] = []
        self._own: Directory | None = None
        self._registration = options.registration
        self._announcing_scope = trio.CancelScope()
        self._announcing_ended = trio.Event()
        connections.registrations = lambda: self.registrations
        rt.spread = self._spread
        self._host = next((each for each in connections.services if each.hosts_directory), None)
        if options.register or options.lookup or self._host is not None:
            rt.seeker = self

    # ---- hosting

    def enable_lookup(self) -> None:
        """Make the hosted directory searchable, once the node listens and before its children start."""
        if self._host is not None:
            self._own = self._host.directory(self._web_url())

    def _web_url(self) -> str:
        """Return the base URL of this node over HTTP; an invalid URL if it serves nothing."""
        descriptions = self._connections.descriptions
        if descriptions is None:
            return "http://own-directory.invalid"
        from lmos_actors.bindings import http_of

        return http_of(descriptions.bases[0])

    # ---- finding

    def beyond(self, sought: AgentQuery) -> ReplicaLink:
        """See `RemoteLookup`."""
        return self._finder.beyond(sought)

    def _spread(self, sought: AgentQuery, by: Spread, key: str | None) -> ReplicaLink:
        return self._finder.spread(sought, by, key)

    async def search(self, sought: AgentQuery, *, near: bool, directory: str | None) -> list[Found]:
        """See `Node.search`."""
        if directory is None:
            return await self._finder.search(sought, near=near, directories=None)
        there = self._remote_directory(directory)
        return await self._finder.search(sought, near=near, directories=[there])

    async def explore(self, source: str, sought: AgentQuery) -> Exploration:
        """See `Node.discover`."""
        from lmos_actors.discovery import browse, explore, explore_all

        peers, refer = self._connections.peers, self._lookup.refer
        if source != MDNS:
            return await explore(peers, source, sought, refer)
        announced = await browse(real=not self._connections.is_in_memory)
        return await explore_all(peers, announced, sought, refer)

    @cached_property
    def _finder(self) -> AgentFinder:
        from lmos_actors.discovery import AgentFinder

        return AgentFinder(self._rt, self._lookup, self._id_of, self._url_of)

    @cached_property
    def _lookup(self) -> Lookup:
        from lmos_actors.discovery import Lookup

        there = self._connections
        directories = [] if self._own is None else [self._own]
        directories += map(self._remote_directory, self._options.directory_urls)
        return Lookup(self._rt, self._link_to, directories, there.start_soon, there.authorities)

    def _link_to(self, cls: Any, description: Description, source_url: str) -> Link:
        from lmos_actors.bindings import found_link

        # The nodes of one deployment share a token for a directory.
        given = None if self._registration is None else self._registration.token
        is_shared = self._connections.own_agents.get("shared") is not None
        is_named = (is_shared and source_url.startswith(self._web_url())) or (
            given is not None and bool(given.headers_for(source_url))
        )
        return found_link(self._connections.peers, cls, description, source_url, is_named=is_named)

    def _remote_directory(self, url: str, *, keep: bool = False) -> Directory:
        from lmos_actors.discovery import HttpDirectory

        peers, registration = self._connections.peers, self._registration
        headers_for: Callable[[str], Headers] = peers.headers_for
        if registration is not None and url in registration.directories:
            headers_for = registration.headers_for(headers_for)
        return HttpDirectory(peers.network, url, tls=peers.tls, headers_for=headers_for, keep=keep)

    def _id_of(self, link: Any) -> str:
        exposed = self._exposed(link.path)
        own = getattr(getattr(link, "spec", None), "id", None)
        return exposed.thing_id if exposed is not None else own or link.path

    def _url_of(self, link: Any) -> str | None:
        descriptions = self._connections.descriptions
        if descriptions is None:
            return None
        from lmos_actors.bindings import public_name, url_of

        return url_of(descriptions.bases[0], public_name(link.path))

    def _exposed(self, path: str) -> Exposed | None:
        descriptions: Any = self._connections.descriptions
        if descriptions is None:
            return None
        from lmos_actors.bindings import public_name

        found: Exposed | None = descriptions.catalogue.named(public_name(path))
        return found

    # ---- registering

    def start(self) -> None:
        """Start registering and announcing the exposed agents; clients must be able to reach them."""
        descriptions = self._connections.descriptions
        if self._options.announce and descriptions is not None:
            from lmos_actors.discovery import Announcer

            announced, announcer = self._announcements(), Announcer()
            self._connections.start_soon(self._announce, announcer, announced, name="announcement")
            self._connections.before_goodbye.append(self._announcing_ended.wait)
            self._connections.at_stop_accepting.append(self._stop_announcing)
        if not self._options.register or descriptions is None:
            return
        from lmos_actors.discovery import TTL, Registrar, ServedAgents, notifier_of

        exhibits = ServedAgents(descriptions, self._is_registered)
        ttl = TTL if self._registration is None else self._registration.ttl
        registries = [self._own] if self._own is not None and self._options.register is True else []
        urls = () if self._registration is None else self._registration.directories
        registries += [self._remote_directory(url, keep=True) for url in urls]
        self._registrars = [Registrar(self._rt, each, exhibits, ttl) for each in registries]
        if self._options.register is True:
            self._connections.before_stop.append(self.wait_withdrawn)
        self._connections.at_stop_accepting.append(self.withdraw)
        self._connections.before_goodbye.append(self.wait_withdrawn)
        self._rt.population.watchers.append(notifier_of(self._registrars))
        for registrar in self._registrars:
            self._connections.start_soon(registrar.run, name=f"registration at {registrar.state.directory}")

    def _is_registered(self, path: str) -> bool:
        return self._host is None or path not in self._host.unregistered

    def _announcements(self) -> list[Announcement]:
        """Return the announcements of the node and of the directory it hosts. Raises ConfigError."""
        from lmos_actors.discovery import Announcement, addresses_of, name_of
        from lmos_actors.transport import endpoint_of

        places = [endpoint_of(url) for url in self._connections.urls]
        if self._connections.is_in_memory:
            raise ForbiddenCall("announce= is about this network, which is not there on virtual time")
        try:
            addresses = addresses_of(self._connections.hosts)
        except ConfigError as error:
            raise ConfigError(error.message, argument("announce")) from None
        said = self._options.announce
        name = said if isinstance(said, str) else f"{socket.gethostname()} {places[0].port}"
        one = Announcement(name_of(name), places[0].port, addresses, secure=places[0].secure)
        hosted = attrs.evolve(one, name=f"{one.name} directory", is_directory=True)
        return [one, hosted] if self._host is not None else [one]

    def _stop_announcing(self) -> None:
        self._announcing_scope.cancel("the node takes no more requests")

    async def _announce(self, announcer: Announcer, announcements: list[Announcement]) -> None:
        """Announce until the node takes no more requests; a failure is logged and does not end the node."""
        try:
            with self._announcing_scope:
                try:
                    await announcer.open(announcements)
                    await trio.sleep_forever()
                except ConfigError as error:
                    logging.getLogger("lmos_actors").warning("announcing: %s", error)
                finally:
                    await announcer.close()
        finally:
            self._announcing_ended.set()

    @property
    def registrations(self) -> tuple[Registered, ...]:
        """The state of the registration at each directory."""
        return tuple(each.state for each in self._registrars)

    def withdraw(self) -> None:
        """Start removing the registrations, so that no search finds agents that take no more requests."""
        for each in self._registrars:
            each.leave()

    async def wait_withdrawn(self) -> None:
        """Wait until the registrations are removed; each registrar bounds the wait. Call `withdraw` first."""
        for each in self._registrars:
            await each.left.wait()
