"""Consuming: refs to far agents are made from an address, a description or a file."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import attrs

from lmos_actors.actors import Agent, Ref, describe
from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import differences, pointer
from lmos_actors.transport import endpoint_of, is_here

from ..http_client._forms import HttpOperations
from ..lmos._peer_requests import path_of
from ..lmos._remote_interface import ClassInterface, DescribedInterface
from ..lmos._remote_link import RemoteLink
from ._target import SHOWN, Target, find_target, hrefs_of, socket_target, sockets_of
from ._thing import ConsumedThing

if TYPE_CHECKING:
    from lmos_actors.protocol.td import Description

    from ..http_client._link import HttpLink
    from ..lmos._peer import Habits, Headers, Peer
    from ..lmos._remote_interface import RemoteInterface
    from ._peers import Peers

A = TypeVar("A", bound=Agent)
ThingLink: TypeAlias = "RemoteLink | HttpLink"
"""A link to a thing elsewhere: over LMOS alone, or by its forms for HTTP as well."""


class ContractWarning(UserWarning):
    """A difference between an agent's description and the class of its ref that would break calls."""


# ---- the ways in


def remote_ref(
    peers: Peers, cls: type[A], url: str, thing: str | None = None, *, headers: Headers = ()
) -> Ref[A]:
    """Return a ref to a thing, by its id, at a `ws` or `wss` address; it connects in the background.

    The id `thing` may be left out for an address like `ws://host/agents/NAME`. Never waits. Raises
    ConfigError for any other address.
    """
    _check_class(cls)
    reached = _linked(peers, socket_target(url, thing), headers)
    return Ref(reached.link(reached.known_as(cls, None)))


def remote_thing(peers: Peers, url: str, thing: str | None = None, *, headers: Headers = ()) -> ConsumedThing:
    """Return a far thing to be used by names, without a class; otherwise like `remote_ref`."""
    return _thing(_linked(peers, socket_target(url, thing), headers))


async def consume(
    peers: Peers,
    cls: type[A],
    source: str | os.PathLike[str],
    *,
    thing: str | None = None,
    headers: Headers = (),
    habits: Habits = "auto",
    local: bool = False,
) -> Ref[A]:
    """Return a ref to a far agent once the first connection is established; see `consume_thing`.

    With the class `Agent`, any agent is accepted: the ref can then be used only by names, and tools are made
    from the agent's description. For another class, warns (`ContractWarning`) if the description differs from
    it in a way that would break calls.
    """
    _check_class(cls)
    reached = await _connected(peers, source, thing, headers, habits, local)
    link = reached.link(reached.known_as(cls, reached.target.description))
    try:
        if reached.target.description is not None and cls is not Agent:
            _compare(reached.target.description, cls)
    except BaseException:  # the warning is an error
        link.release()
        raise
    return Ref(link)


async def consume_thing(
    peers: Peers,
    source: str | os.PathLike[str],
    *,
    thing: str | None = None,
    headers: Headers = (),
    habits: Habits = "auto",
    local: bool = False,
) -> ConsumedThing:
    """Return a far agent, used by the names of its affordances, once the first connection is established.

    If the connection breaks later, a new one is made in the background.

    The argument `source` is one of these: the `http` or `https` URL of its description; the URL of a server's
    root, where the description is looked for; the path of a file with the description; or a `ws` or `wss`
    address, without a description. `thing` selects one of several things by its id, title or name. `headers`
    are sent with every request to the server of `source`, and with the WebSocket handshake at the address in
    its description, but never after a redirect to another server. `habits` names the habits of the peer, if
    its handshake does not show them. With `local`, the description of another host, and redirects on the way
    to it, may lead to this machine.

    Operations that have no form for LMOS, but one for HTTP, are carried out over HTTP.

    Raises ConnectFailed if no server answers, ConfigError for a source that is invalid or leads neither to
    LMOS over a WebSocket nor to HTTP, DescriptionError (a ConfigError) for a description that cannot be read.
    """
    return _thing(await _connected(peers, source, thing, headers, habits, local))


@attrs.frozen
class ReachedThing:
    """A thing and how it is reached: by a peer over LMOS, by its forms for HTTP, or by both."""

    peers: Peers
    target: Target
    peer: Peer | None
    ways: HttpOperations | None = None
    given: Headers = ()
    meant: str = ""
    is_named: bool = True
    """Whether the thing was asked for by its address, or by a directory of the node's own deployment."""

    def link(self, interface: RemoteInterface) -> ThingLink:
        """Return a link to the thing, which uses the given interface."""
        socket = None if self.peer is None else RemoteLink(self.peer.thing(self.target.thing_id), interface)
        if self.ways is None:
            assert socket is not None
            return socket
        from ..http_client._link import web_link  # a thing reached by LMOS alone needs no HTTP

        found = web_link(self.peers, self.ways, self.given, self.meant, is_named=self.is_named)
        thing_id = self.target.thing_id
        return found(thing_id, interface, socket)

    def described(self, description: Description | None) -> DescribedInterface:
        """Return the interface that a description gives the thing, or one of bare names if there is none."""
        path = path_of(self.target.thing_id)
        return DescribedInterface(description, path, binary=self.ways is not None)

    def known_as(self, cls: type[Agent], declared: Description | None) -> RemoteInterface:
        """Return the interface of the thing for a class and the `declared` description.

        For the class `Agent`, the interface comes from the thing's own description.
        """
        if cls is Agent:
            return self.described(self.target.description)
        return ClassInterface(cls.__contract__, declared)


async def _connected(
    peers: Peers,
    source: str | os.PathLike[str],
    thing: str | None,
    headers: Headers,
    habits: Habits,
    local: bool,
) -> ReachedThing:
    place = os.fspath(source)
    target = await find_target(peers, place, thing, headers, local=local)
    ways, meant = _web_ways(target, place, headers)
    if target.url is None:
        assert ways is not None
        await peers.web_pool().warm(next(iter(ways.origins().values())))
        return ReachedThing(peers, target, None, ways, headers, meant)
    peer = _peer(peers, target, target.url, headers_for(target, place, headers), habits)
    peer.named = True
    peers.hold(peer)
    try:
        await peer.first()
    except BaseException:
        peers.release_peer(peer)
        raise
    return ReachedThing(peers, target, peer, ways, headers, meant)


def _web_ways(target: Target, source: str, headers: Headers) -> tuple[HttpOperations | None, str]:
    """Return the operations over HTTP (None if LMOS is enough), and a URL of the server for the headers.

    Raises ConfigError for forms without a usable address, and for headers whose server is unknown.
    """
    if target.description is None:
        return None, source
    ways = HttpOperations(target.description, target.source_url)
    if target.url is not None and not ways.only_web():
        return None, source
    if target.source_url is not None:
        return ways, source
    origins = list(ways.origins().values())
    if headers and len(origins) > 1:
        raise ConfigError(
            f"headers are for one server, and the forms lead to {len(origins)}: use credentials", source
        )
    return ways, origins[0]


def headers_for(target: Target, source: str, headers: Headers) -> Headers:
    """Return the headers for a connection.

    They go to the server that the caller named, and to the address in that server's own description, but not
    to an address that only a third host has named. Raises ConfigError if they would leave TLS.
    """
    if target.source_url is None or target.url is None or not headers:
        return headers
    named, publisher, found = (endpoint_of(url) for url in (source, target.source_url, target.url))
    if found.authority != named.authority and publisher.authority != named.authority:
        return ()
    if named.secure and not found.secure:
        raise ConfigError(f"headers given for {source} would go to {target.url}, which is not secure")
    return headers


def _peer(peers: Peers, target: Target, url: str, headers: Headers, habits: Habits = "auto") -> Peer:
    peer = peers.peer(url, headers, habits)
    if target.description is not None:
        peer.learn(target.description.offers or ())
    return peer


def _linked(peers: Peers, target: Target, headers: Headers) -> ReachedThing:
    peer = _peer(peers, target, target.url or "", headers)
    peer.named = True
    peers.hold(peer)
    return ReachedThing(peers, target, peer)


def thing_described(
    peers: Peers, description: Description, source_url: str, *, is_named: bool
) -> ReachedThing:
    """Return the thing that another host's description describes; it connects in the background.

    With `is_named`, that host belongs to the node's own deployment. Never waits. Raises ConfigError for a
    description without a usable address.
    """
    form = next(sockets_of(description, source_url), None)
    if description.id is None:
        raise ConfigError("the description has no id", source_url)
    publisher = endpoint_of(source_url)
    if not is_here(publisher.host):  # but the publisher's own name, and so its agents, may lead here
        peers.network.distrust(hrefs_of(description, source_url), but=publisher.host)
    url = None if form is None else endpoint_of(form.href).url
    target = Target(url, description.id, description, source_url)
    ways, meant = _web_ways(target, source_url, ())
    if url is None:
        return ReachedThing(peers, target, None, ways, (), meant, is_named)
    peer = _peer(peers, target, url, ())
    peer.named = peer.named or is_named
    peers.hold(peer)
    return ReachedThing(peers, target, peer, ways, (), meant, is_named)


def _check_class(cls: object) -> None:
    if cls is not Agent and getattr(cls, "__contract__", None) is None:
        raise TypeError(f"an agent is consumed as a class of agents, not as {cls!r}")


def _thing(reached: ReachedThing) -> ConsumedThing:
    description = reached.target.description
    if description is None and reached.peer is not None:
        description = reached.peer.thing(reached.target.thing_id).description
    link = reached.link(reached.described(description))
    link.far.description = description
    return ConsumedThing(link.far, Ref(link), description)


def _compare(description: Description, cls: type[Agent]) -> None:
    found = [each for each in differences(description, describe(cls)) if each.weight == "breaks"]
    if not found:
        return
    listed = "; ".join(f"{pointer(each.place)} {each.message}" for each in found[:SHOWN])
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    title = description.title or description.id
    text = f"{title!r} is not what {cls.__name__} expects: {listed}{more}"
    warnings.warn(text, ContractWarning, stacklevel=4)
