"""What a node registers, where it looks for agents, and the directory that it hosts.

Discovery is imported by nodes that do any of it, and by no others.
"""

from __future__ import annotations

import logging
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from lmos_actors.actors import Agent, AgentQuery, Ref, awaited, link_to
from lmos_actors.errors import ConfigError, ForbiddenCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from starlette.routing import BaseRoute

    from lmos_actors.actors import Runtime, Spread
    from lmos_actors.bindings import Descriptions, Exposed, LmosServer
    from lmos_actors.discovery import (
        Announcement,
        Announcer,
        Choice,
        Directory,
        DirectoryOptions,
        Exhibit,
        Explored,
        Found,
        Lookup,
        Registered,
        Registrar,
        Registration,
        Seeking,
    )
    from lmos_actors.security import Security
    from lmos_actors.supervision import SupervisorSpec

    from ._network import Connections


MDNS: Final = "mdns"
"""The source of `discover` that stands for this network."""

DIRECTORY: Final = "directory"
"""The name of the directory that a node hosts, right below its root."""


@attrs.frozen
class Introduced:
    """What `open_node` was told of discovery."""

    register: str | Sequence[str] | Registration | bool | None = None
    lookup: str | Sequence[str] | None = None
    directory: DirectoryOptions | str | PathLike[str] | bool | None = None
    announce: bool | str = False

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was said."""
        return not (self.register or self.lookup or self.directory)

    @property
    def registration(self) -> Registration | None:
        """Where, beside the own directory, is registered, None for nowhere. Raises ConfigError."""
        from lmos_actors.discovery import Registration

        register: Any = self.register
        if register is None or register is True or register is False:
            return None
        return register if isinstance(register, Registration) else Registration(register)

    @property
    def urls(self) -> tuple[str, ...]:
        """All directories that are looked in, beside the node's own."""
        registration = None if self.is_nothing else self.registration
        registered = () if registration is None else registration.directories
        return tuple(dict.fromkeys((*registered, *self.lookups)))

    @property
    def lookups(self) -> tuple[str, ...]:
        """The URLs of the directories that are looked in and not registered at."""
        lookup = self.lookup or ()
        return (lookup,) if isinstance(lookup, str) else tuple(lookup)

    def check(self, *, listens: bool) -> None:
        """Raise ConfigError for what does not go together."""
        if self.register is True and not self.directory:
            raise ConfigError(
                "True is the directory of the node itself: directory=... hosts it", _of("register")
            )
        if self.register and not listens:
            raise ConfigError(
                "goes with listen=, which is not given: nobody could reach its agents", _of("register")
            )
        if self.announce and not listens:
            raise ConfigError("goes with listen=, which is not given", _of("announce"))
        for url in self.urls:
            self._check_directory(url)

    def _check_directory(self, url: str) -> None:
        from lmos_actors.discovery import place_of_directory

        try:
            place_of_directory(url)
        except ConfigError as error:
            raise ConfigError(error.message, _of("lookup" if url in self.lookups else "register")) from None


def _of(name: str) -> str:
    return f"open_node({name}=...)"


class Discovering:
    """The discovery of one node."""

    def __init__(self, rt: Runtime, connections: Connections, told: Introduced, *, listens: bool) -> None:
        told.check(listens=listens)
        self._rt = rt
        self._connections = connections
        self._told = told
        self._registrars: list[Registrar] = []
        self._own: Directory | None = None
        self._registration = None if told.is_nothing else told.registration
        self._announcing = trio.CancelScope()
        self._silenced = trio.Event()
        rt.spread = self._spread
        if not told.is_nothing:
            rt.seeker = self
        if told.directory:
            connections.more_routes = self._routes
            connections.keepers = (DIRECTORY,)

    # ---- hosting

    def planted(self, tree: SupervisorSpec) -> SupervisorSpec:
        """Return the tree with the directory that the node hosts, if any, before all others."""
        if not self._told.directory:
            return tree
        from lmos_actors.discovery import directory_spec

        spec = directory_spec(self._options, DIRECTORY)
        return attrs.evolve(tree, children=(spec, *tree.children))

    def begin(self) -> None:
        """The node listens, its children are about to start: what they look for is found."""
        if self._told.directory:
            from lmos_actors.discovery import OwnDirectory

            self._own = OwnDirectory(self._directory_ref(), self._web_url())

    def _web_url(self) -> str:
        """Return the address of what this node serves; one that leads nowhere if it serves nothing."""
        descriptions = self._connections.descriptions
        if descriptions is None:
            return "http://own-directory.invalid"
        from lmos_actors.bindings import http_of

        return http_of(descriptions.bases[0])

    def _routes(self, server: LmosServer, bases: Sequence[str], security: Security | None) -> list[BaseRoute]:
        """Return what the hosted directory serves over HTTP."""
        from lmos_actors.discovery import directory_routes

        return directory_routes(
            self._directory_ref(),
            self._options,
            name=DIRECTORY,
            bases=bases,
            security=security,
            new_id=self._rt.entropy.new_id,
            server=server,
        )

    @cached_property
    def _options(self) -> DirectoryOptions:
        from lmos_actors.discovery import DirectoryOptions

        assert self._told.directory is not None
        return DirectoryOptions.of(self._told.directory)

    def _directory_ref(self) -> Ref[Any]:
        return Ref(link_to(self._rt, AgentQuery(None, DIRECTORY), None, None))

    # ---- finding

    def beyond(self, sought: AgentQuery) -> Choice:
        """See `RemoteLookup`."""
        return self._seeking.beyond(sought)

    def _spread(self, sought: AgentQuery, by: Spread, key: str | None) -> Choice:
        return self._seeking.spread(sought, by, key)

    async def search(self, sought: AgentQuery, *, near: bool, directory: str | None) -> list[Found]:
        """See `Node.search`."""
        if directory is None:
            return await self._seeking.search(sought, near=near, directories=None)
        there = self._elsewhere(directory)
        return await self._seeking.search(sought, near=near, directories=[there])

    async def explore(self, source: str, sought: AgentQuery) -> Explored:
        """See `Node.discover`."""
        from lmos_actors.discovery import browse, explore, explore_all

        peers, refer = self._connections.peers, self._lookup.refer
        if source != MDNS:
            return await explore(peers, source, sought, refer)
        announced = await browse(real=not self._connections.is_in_memory)
        return await explore_all(peers, announced, sought, refer)

    @cached_property
    def _seeking(self) -> Seeking:
        from lmos_actors.discovery import Seeking

        return Seeking(self._rt, self._lookup, self._id_of, self._url_of)

    @cached_property
    def _lookup(self) -> Lookup:
        from lmos_actors.discovery import Lookup

        there = self._connections
        return Lookup(self._rt, lambda: there.peers, self._directories(), there.start_soon, there.authorities)

    def _directories(self) -> list[Directory]:
        own = [] if self._own is None else [self._own]
        return [*own, *map(self._elsewhere, self._told.urls)]

    def _elsewhere(self, url: str, *, keep: bool = False) -> Directory:
        from lmos_actors.discovery import HttpDirectory

        peers = self._connections.peers
        return HttpDirectory(peers.network, url, tls=peers.tls, headers_for=peers.headers_for, keep=keep)

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
        """Begin to register what the node exposes; others can reach it by now."""
        descriptions = self._connections.descriptions
        if self._told.announce and descriptions is not None:
            from lmos_actors.discovery import Announcer

            announced, announcer = self._announcements(), Announcer()
            self._connections.start_soon(self._announce, announcer, announced, name="announcement")
            self._connections.before_goodbye.append(self._silenced.wait)
            self._connections.at_refuse.append(self._silence)
        if not self._told.register or descriptions is None:
            return
        from lmos_actors.discovery import Registrar, paths_of

        exhibits, ttl = _Exhibits(descriptions), self._ttl()
        self._registrars = [Registrar(self._rt, each, exhibits, ttl) for each in self._registries()]
        if self._told.register is True:
            self._connections.before_stop.append(self.left)
        self._connections.at_refuse.append(self.leave)
        self._connections.before_goodbye.append(self.left)
        self._rt.population.watchers.append(paths_of(self._registrars))
        for registrar in self._registrars:
            self._connections.start_soon(registrar.run, name=f"registration at {registrar.state.directory}")

    def _announcements(self) -> list[Announcement]:
        """Return what is announced: the node, and the directory that it hosts. Raises ConfigError."""
        from lmos_actors.discovery import Announcement, addresses_of, name_of
        from lmos_actors.transport import endpoint_of

        places = [endpoint_of(url) for url in self._connections.urls]
        if self._connections.is_in_memory:
            raise ForbiddenCall("announce= is about this network, which is not there on virtual time")
        try:
            addresses = addresses_of(self._connections.hosts)
        except ConfigError as error:
            raise ConfigError(error.message, _of("announce")) from None
        said = self._told.announce
        name = said if isinstance(said, str) else f"{socket.gethostname()} {places[0].port}"
        one = Announcement(name_of(name), places[0].port, addresses, secure=places[0].secure)
        hosted = attrs.evolve(one, name=f"{one.name} directory", is_directory=True)
        return [one, hosted] if self._told.directory else [one]

    def _silence(self) -> None:
        self._announcing.cancel("the node takes no more requests")

    async def _announce(self, announcer: Announcer, announcements: list[Announcement]) -> None:
        """Announce until the node takes no more requests. That it cannot does not trouble the node."""
        try:
            with self._announcing:
                try:
                    await announcer.open(announcements)
                    await trio.sleep_forever()
                except ConfigError as error:
                    logging.getLogger("lmos_actors").warning("announcing: %s", error)
                finally:
                    await announcer.close()
        finally:
            self._silenced.set()

    def _ttl(self) -> float:
        from lmos_actors.discovery import TTL

        return TTL if self._registration is None else self._registration.ttl

    def _registries(self) -> list[Directory]:
        own = [self._own] if self._own is not None and self._told.register is True else []
        urls = () if self._registration is None else self._registration.directories
        return [*own, *(self._elsewhere(url, keep=True) for url in urls)]

    @property
    def registrations(self) -> tuple[Registered, ...]:
        """How it stands with each directory."""
        return tuple(each.state for each in self._registrars)

    def leave(self) -> None:
        """Begin to take away what is registered: who looks is not to find what takes no more requests."""
        for each in self._registrars:
            each.leave()

    async def left(self) -> None:
        """Wait until it is taken away, which is not for long; `leave` comes before."""
        for each in self._registrars:
            await each.left.wait()


class _Exhibits:
    """What a node exposes, as it is registered: pools as one, and not the directory itself."""

    def __init__(self, descriptions: Descriptions) -> None:
        self._descriptions = descriptions

    def all(self) -> Iterator[tuple[str, Exhibit]]:
        """See `Exhibits`."""
        catalogue: Any = self._descriptions.catalogue
        for exposed in tuple(catalogue):
            found = self._exhibit(exposed)
            if found is not None:
                yield exposed.link.path, found

    def at(self, path: str) -> Exhibit | None:
        """See `Exhibits`."""
        from lmos_actors.bindings import public_name

        exposed: Any = self._descriptions.catalogue.named(public_name(path))
        return None if exposed is None or exposed.link.path != path else self._exhibit(exposed)

    def _exhibit(self, exposed: Any) -> Exhibit | None:
        from lmos_actors.discovery import Exhibit
        from lmos_actors.supervision import is_member

        if exposed.link.path == DIRECTORY or is_member(exposed.link):
            return None
        return Exhibit(exposed.thing_id, self._descriptions.served(exposed).text)


# --- what a node finds: agents here and elsewhere, one for a ref or all in a list

A = TypeVar("A", bound=Agent)


class Reaching:
    """The part of a node that finds agents."""

    _rt: Runtime
    _discovering: Discovering

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
    ) -> Ref[A]:
        """Return a ref to an agent of that class, by its name or path, or the first started.

        `title`, `type` (a word of its `@type`), `capability` (one that its `About` names) and `affordance`
        (the name of an action, property or event) have to fit as well. Agents of this node come first; if
        there is none, the directories of `register` and `lookup` are asked. One that was found elsewhere is
        kept until it cannot be reached.

        With `spread` the ref leads to all of them, here and elsewhere, and each request to one: in turn
        (`"round_robin"`), to the one with the least to do (`"least_loaded"`), or by an argument (`"key"`),
        that called `key`, else the first. Who is down is passed over where a request has not begun.

        Never waits and never fails: the ref resolves on first use; `await ref.ready()` waits for it.
        """
        sought = AgentQuery(cls, name, title, type, capability, affordance)
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
        """Return all agents that `find` would look for: those of this node first, then those elsewhere.

        `directory` is the URL of the one to ask, in place of those of `register` and `lookup`; without
        `near` agents of this node are left out. What a directory tells is checked; what is not fit for use
        is left out. Raises a TransportError where nothing was found and a directory did not answer.
        """
        sought = AgentQuery(cls, name, title, type, capability, affordance)
        return await self._discovering.search(sought, near=near, directory=directory)

    @awaited("node.")
    async def discover(
        self,
        source: str,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
    ) -> Explored:
        """Return which agents are at an address: `.things`, and which directories have told of some of them.

        `source` is the URL of a description, of a directory or of a server, or a host with its port, whose
        well-known URL tells (WoT Discovery); or `"mdns"`: who announces itself on this network by DNS-SD,
        which takes three seconds, and up to thirty for asking them, and the extra `mdns`. What is told there
        is checked: `.left_out` says what is not fit for use.

        Raises ConnectFailed where nothing is there, ConfigError for no such address, ForbiddenCall for
        `"mdns"` on virtual time.
        """
        sought = AgentQuery(None, None, title, type, capability, affordance)
        return await self._discovering.explore(source, sought)

    @property
    def registrations(self) -> tuple[Registered, ...]:
        """How the registration of its agents stands, for each directory of `register`."""
        return self._discovering.registrations
