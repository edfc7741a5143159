"""Consuming: from an address, a description or a file to refs of far agents."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast
from urllib.parse import quote

import attrs
import msgspec
import trio

from lmos_actors._errors import ConfigError, ConnectFailed
from lmos_actors.actors import Agent, Ref, describe
from lmos_actors.protocol.td import (
    MAX_BYTES,
    SUBPROTOCOL,
    Description,
    Form,
    check,
    choose,
    differences,
    effective_forms,
    load,
    pointer,
    resolve,
)
from lmos_actors.transport import endpoint_of

from ._consume_thing import ConsumedThing
from ._exposure import AGENTS, name_in_url
from ._peer_things import path_of
from ._remote_link import RemoteLink
from ._remote_terms import ClassTerms, PlainTerms
from ._web_link_forms import Ways

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from lmos_actors.protocol.td import AnyAffordance
    from lmos_actors.transport import Network

    from ._peer import Habits, Headers, Peer
    from ._peers import Peers
    from ._remote_terms import Terms

A = TypeVar("A", bound=Agent)
HeadersFor: TypeAlias = "Callable[[str, Headers], Headers]"

WAYS: Final = (SUBPROTOCOL, "wss", "ws")
"""How LMOS is spoken here, best first; see `choose`."""

SOCKETS: Final = ("ws://", "wss://")
WEB: Final = ("http://", "https://")
WELL_KNOWN: Final = "/.well-known/wot"
TOLD: Final = 5  # findings and differences


async def fetch(
    network: Network,
    url: str,
    tls: ssl.SSLContext | None,
    headers: Headers = (),
    *,
    headers_for: HeadersFor | None = None,
) -> tuple[bytes, str]:
    """Fetch what is at a URL as JSON; give its text, and the URL that redirects have led to.

    `headers` are for the server of `url` alone. `headers_for` is asked for those of each hop, by its URL and
    what is left of `headers` there.

    Raises ConnectFailed: nobody is there, too late, too long, not found, or no JSON.
    """
    from ._consume_fetch import fetched  # whoever goes by addresses alone needs no HTTP

    return await fetched(network, url, tls, headers, headers_for or alone)


def alone(_: str, headers: Headers) -> Headers:
    """Add nothing to headers that are given."""
    return headers


class ContractWarning(UserWarning):
    """The description of an agent differs from the class that it is consumed as, in what would break."""


@attrs.frozen
class Target:
    """Where a thing is: the address of a WebSocket, its id there, and its description if there is one.

    Where LMOS is spoken by none of its forms there is no such address: then HTTP is, by its description.
    """

    url: str | None
    thing_id: str
    description: Description | None = None
    told_at: str | None = None
    """Where the description was found, after redirects, if it was fetched."""


# ---- the ways in


def remote_ref(
    peers: Peers, cls: type[A], url: str, thing: str | None = None, *, headers: Headers = ()
) -> Ref[A]:
    """Give a ref to the thing of that id at a `ws` or `wss` address; never waits, connects behind it.

    Without `thing` it is that of an address like `ws://host/agents/NAME`. Raises ConfigError for no such
    address.
    """
    _check_class(cls)
    return Ref(_linked(peers, socket_target(url, thing), headers).link(ClassTerms(cls.__contract__)))


def remote_thing(peers: Peers, url: str, thing: str | None = None, *, headers: Headers = ()) -> ConsumedThing:
    """As `remote_ref`, without a class."""
    return _thing(_linked(peers, socket_target(url, thing), headers))


async def consume(
    peers: Peers,
    cls: type[A],
    source: str | os.PathLike[str],
    *,
    thing: str | None = None,
    headers: Headers = (),
    habits: Habits = "auto",
) -> Ref[A]:
    """Give a ref to a far agent, once its first connection stands; see `consume_thing`.

    Warns (`ContractWarning`) where its description differs from the class in what would break.
    """
    _check_class(cls)
    reached = await _connected(peers, source, thing, headers, habits)
    link = reached.link(ClassTerms(cls.__contract__))
    try:
        if reached.target.description is not None:
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
) -> ConsumedThing:
    """Give a far agent by its names, once its first connection stands; later breaks are mended behind it.

    `source` is the `http` or `https` URL of its description, or of a server's root, where the description is
    looked for; the path of a file with the description; or a `ws` or `wss` address, without any. `thing`
    is the id, title or name of one of several. `headers` go with every request to the server of `source`, and
    with the WebSocket to where its description leads; never along with a redirect to another server.
    `habits` say how the peer behaves where its handshake does not.

    What the description has no form for LMOS for, but one for HTTP, goes over HTTP: all of it, or some.

    Raises ConnectFailed when nothing is there, ConfigError for a source that is none or leads neither to LMOS
    over a WebSocket nor to HTTP, DescriptionError (a ConfigError) for a description that cannot be read.
    """
    return _thing(await _connected(peers, source, thing, headers, habits))


@attrs.frozen
class Reached:
    """A thing, and the ways to it: a peer over LMOS, its forms for HTTP, or both."""

    peers: Peers
    target: Target
    peer: Peer | None
    ways: Ways | None = None
    given: Headers = ()
    meant: str = ""

    def link(self, terms: Terms) -> RemoteLink:
        """Give the link to it."""
        socket = None if self.peer is None else RemoteLink(self.peer.thing(self.target.thing_id), terms)
        if self.ways is None:
            assert socket is not None
            return socket
        from ._web_link import web_link  # whoever is reached by LMOS alone needs no HTTP

        found, thing_id = web_link(self.peers, self.ways, self.given, self.meant), self.target.thing_id
        return found(thing_id, terms, socket)


async def _connected(
    peers: Peers, source: str | os.PathLike[str], thing: str | None, headers: Headers, habits: Habits
) -> Reached:
    target, place = await find_target(peers, os.fspath(source), thing, headers), os.fspath(source)
    ways, meant = _web_ways(target, place, headers)
    if target.url is None:
        assert ways is not None
        await peers.web_pool().warm(next(iter(ways.origins().values())))
        return Reached(peers, target, None, ways, headers, meant)
    peer = _peer(peers, target, target.url, headers_for(target, place, headers), habits)
    peers.hold(peer)
    try:
        await peer.first()
    except BaseException:
        peers.let_go(peer)
        raise
    return Reached(peers, target, peer, ways, headers, meant)


def _web_ways(target: Target, source: str, headers: Headers) -> tuple[Ways | None, str]:
    """Give the forms for HTTP where they are needed, and a URL of the server that headers are meant for.

    Raises ConfigError for forms that lead nowhere, and where whom the headers are for is not known.
    """
    if target.description is None:
        return None, source
    ways = Ways(target.description, target.told_at)
    if target.url is not None and not ways.only_web():
        return None, source
    if target.told_at is not None:
        return ways, source
    origins = list(ways.origins().values())
    if headers and len(origins) > 1:
        raise ConfigError(
            f"headers are for one server, and the forms lead to {len(origins)}: use credentials", source
        )
    return ways, origins[0]


def headers_for(target: Target, source: str, headers: Headers) -> Headers:
    """Give the headers that go with a connection: whom they are for is said by who was asked alone.

    Raises ConfigError where they would leave TLS.
    """
    if target.told_at is None or target.url is None or not headers:
        return headers
    asked, told, found = (endpoint_of(url) for url in (source, target.told_at, target.url))
    if found.authority != asked.authority and told.authority != asked.authority:
        return ()
    if asked.secure and not found.secure:
        raise ConfigError(f"headers given for {source} would go to {target.url}, which is not secure")
    return headers


def _peer(peers: Peers, target: Target, url: str, headers: Headers, habits: Habits = "auto") -> Peer:
    peer = peers.peer(url, headers, habits)
    if target.description is not None:
        peer.learn(target.description.offers or ())
    return peer


def _linked(peers: Peers, target: Target, headers: Headers) -> Reached:
    peer = _peer(peers, target, target.url or "", headers)
    peers.hold(peer)
    return Reached(peers, target, peer)


def _check_class(cls: object) -> None:
    if getattr(cls, "__contract__", None) is None:
        raise TypeError(f"an agent is consumed as a class of agents, not as {cls!r}")


def _thing(reached: Reached) -> ConsumedThing:
    description, path = reached.target.description, path_of(reached.target.thing_id)
    if description is None and reached.peer is not None:
        description = reached.peer.thing(reached.target.thing_id).description
    link = reached.link(PlainTerms(description, path))
    link.far.description = description
    return ConsumedThing(link.far, Ref(link))


def _compare(description: Description, cls: type[Agent]) -> None:
    found = [each for each in differences(description, describe(cls)) if each.weight == "breaks"]
    if not found:
        return
    told = "; ".join(f"{pointer(each.place)} {each.message}" for each in found[:TOLD])
    more = f"; and {len(found) - TOLD} more" if len(found) > TOLD else ""
    title = description.title or description.id
    text = f"{title!r} is not what {cls.__name__} expects: {told}{more}"
    warnings.warn(text, ContractWarning, stacklevel=4)


# ---- where it is


def socket_target(url: str, thing: str | None) -> Target:
    """Say where the thing at a WebSocket address is. Raises ConfigError."""
    endpoint = endpoint_of(url)
    name = name_in_url(endpoint.url)
    if thing is None and name is None:
        raise ConfigError(f"{url!r} is an address of many things: say which one by thing=")
    if thing is None:  # the id that an agent without one of its own has in its description
        scheme, before = "https" if endpoint.secure else "http", endpoint.target.rpartition(AGENTS)[0]
        thing = f"{scheme}://{endpoint.authority}{before}{AGENTS}{quote(name or '', safe='')}"
    return Target(endpoint.url, thing)


async def find_target(peers: Peers, source: str, thing: str | None, headers: Headers) -> Target:
    """Say where the thing is that a source tells of. Raises what `consume_thing` does."""
    if source.startswith(SOCKETS):
        return socket_target(source, thing)
    if not source.startswith(WEB):
        return target_of(await _read(source), None, source, thing)
    if endpoint_of(source).target == "/":
        return await _at_root(peers, source.rstrip("/"), thing, headers)
    text, url = await _fetched(peers, source, headers)
    return target_of(text, url, url, thing)


async def _fetched(peers: Peers, url: str, headers: Headers) -> tuple[bytes, str]:
    return await fetch(peers.network, url, peers.tls, headers, headers_for=peers.headers_for)


async def _at_root(peers: Peers, base: str, thing: str | None, headers: Headers) -> Target:
    """Look where a server has the description of its only thing, then where kotlin-wot has those of all."""
    try:
        text, url = await _fetched(peers, base + WELL_KNOWN, headers)
        return target_of(text, url, url, thing)
    except (ConfigError, ConnectFailed) as error:
        try:
            text, url = await _fetched(peers, f"{base}/", headers)
        except ConnectFailed:
            raise error from None
        return target_of(text, url, url, thing)


async def _read(path: str) -> bytes:
    try:
        async with await trio.open_file(path, "rb") as file:
            text: bytes = await file.read(MAX_BYTES + 1)
            return text
    except OSError as error:
        hint = "" if "://" not in path else "; a URL begins with http, https, ws or wss"
        raise ConfigError(f"cannot read the description: {error.strerror}{hint}", path) from None


def target_of(text: bytes, url: str | None, place: str, thing: str | None) -> Target:
    """Say where the thing is that a description tells of, or that one of several does."""
    description = _described(_chosen(text, place, thing), place)
    if thing is not None and not _is(description.id, description.title, thing):
        told = f"this describes {description.id or description.title!r}, not {thing!r}"
        raise ConfigError(told + _links_of(description), place)
    form = next(sockets_of(description, url), None)
    if form is None and not _is_on_web(description, url, place, thing):
        told = f"no form is for LMOS over a WebSocket (subprotocol {SUBPROTOCOL!r}), nor for HTTP"
        raise ConfigError(told + _links_of(description), place)
    thing_id = description.id or url
    if thing_id is None:
        raise ConfigError("the description has no id", place)
    return Target(None if form is None else endpoint_of(form.href).url, thing_id, description, url)


def _is_on_web(description: Description, url: str | None, place: str, thing: str | None) -> bool:
    """Say whether a thing is reached over HTTP; a mere list of others is it only by its own name."""
    if thing is None and any(link.rel == "item" for link in description.links or ()):
        return False
    try:
        return bool(Ways(description, url).origins())
    except ConfigError as error:
        raise ConfigError(f"a form leads nowhere: {error.message}", place) from None


def _links_of(description: Description) -> str:
    """Say what a description that is not for the thing links to, such as that of a node with several."""
    links = [link.href for link in description.links or () if link.rel == "item"]
    more = ", ..." if links[20:] else ""
    return f"; it links to {', '.join(links[:20])}{more}" if links else ""


def _chosen(text: bytes, place: str, thing: str | None) -> Any:
    """Give the only description that a text holds, or the one that is meant, as plain data or as text."""
    if not text.lstrip().startswith(b"["):
        return text
    try:
        listed: list[Any] = msgspec.json.decode(text, type=list[Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"no descriptions: {error}", place) from None
    things = [cast("dict[str, Any]", each) for each in listed if isinstance(each, dict)]
    found = [each for each in things if thing is None or _is(each.get("id"), each.get("title"), thing)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(str(each.get("id") or each.get("title")) for each in things[:20]) or "none"
    asked = "say which one by thing=" if thing is None else f"there is no {thing!r}"
    raise ConfigError(f"{asked}; there are: {known}", place)


def _is(thing_id: Any, title: Any, thing: str) -> bool:
    if thing in (thing_id, title):
        return True
    return isinstance(thing_id, str) and thing in (name_in_url(thing_id), path_of(thing_id))


def _described(data: Any, place: str) -> Description:
    errors = [finding for finding in check(data) if finding.severity == "error"]
    if errors:
        told = "; ".join(f"{pointer(each.place) or '/'} {each.message}" for each in errors[:TOLD])
        more = f"; and {len(errors) - TOLD} more" if len(errors) > TOLD else ""
        raise ConfigError(f"the description is wrong: {told}{more}", place)
    return load(data)


def sockets_of(description: Description, url: str | None) -> Iterator[Form]:
    """Give the forms by which LMOS is spoken to a thing, the best of each affordance, in their order."""
    base = description.base or url
    described = attrs.evolve(description, base=base)
    affordances: list[AnyAffordance] = [
        *(described.properties or {}).values(),
        *(described.actions or {}).values(),
        *(described.events or {}).values(),
    ]
    for each in affordances:
        forms = [form for form in effective_forms(described, each) if "{" not in form.href]
        for op in dict.fromkeys(op for form in forms for op in form.ops):
            found = choose(forms, op, WAYS)
            if found is not None:
                yield attrs.evolve(found, href=resolve(base, found.href))
