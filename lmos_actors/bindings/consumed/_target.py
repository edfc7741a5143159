"""Targets: where a thing can be reached, found from an address, a description or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import quote

import attrs
import trio

from lmos_actors._core import read_json
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.protocol.td import (
    MAX_BYTES,
    SUBPROTOCOL,
    Description,
    DescriptionError,
    Form,
    choose,
    effective_forms,
    load_usable,
    pointer,
    resolve,
)
from lmos_actors.transport import endpoint_of, leads_astray

from ..exposure._exposure import AGENTS, name_in_url
from ..http_client._forms import HttpOperations, has_address
from ..lmos._peer_requests import path_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator

    from lmos_actors.protocol.td import AnyAffordance
    from lmos_actors.transport import Network

    from ..lmos._peer import Headers
    from ._peers import Peers

HeadersFor: TypeAlias = "Callable[[str, Headers], Headers]"

SOCKETS: Final = ("ws://", "wss://")
WEB: Final = ("http://", "https://")
WELL_KNOWN: Final = "/.well-known/wot"
SHOWN: Final = 5  # findings and differences


async def fetch(
    network: Network,
    url: str,
    tls: ssl.SSLContext | None,
    headers: Headers = (),
    *,
    headers_for: HeadersFor | None = None,
    local: bool = False,
) -> tuple[bytes, str]:
    """Fetch the JSON at a URL; return its text, and the URL that redirects have led to.

    The `headers` are for the server of `url` alone. For each hop, `headers_for` returns the headers, given
    its URL and those of `headers` that still apply there. With `local`, a redirect may lead from another host
    to this machine.

    Raises ConnectFailed if there is no server, or its answer is too late, too long, not found, or not JSON.
    """
    from ..http_client._fetch import fetched  # a node that connects by addresses alone needs no HTTP

    text, source_url, _ = await fetched(network, url, tls, headers, headers_for or alone, local)
    return text, source_url


def alone(_: str, headers: Headers) -> Headers:
    """Return the given headers, with nothing added."""
    return headers


@attrs.frozen
class Target:
    """The way to a thing: a WebSocket address, the id of the thing there, and its description, if any.

    If the description has no form for LMOS, there is no WebSocket address: the thing is reached over HTTP.
    """

    url: str | None
    thing_id: str
    description: Description | None = None
    source_url: str | None = None
    """The URL of the description, after redirects, if it was fetched."""


def socket_target(url: str, thing: str | None) -> Target:
    """Return the target for a thing at a WebSocket address. Raises ConfigError."""
    endpoint = endpoint_of(url)
    name = name_in_url(endpoint.url)
    if thing is None and name is None:
        raise ConfigError(f"{url!r} is an address of many things: say which one by thing=")
    if thing is None:  # the id in the description of an agent without an id of its own
        scheme, before = "https" if endpoint.secure else "http", endpoint.target.rpartition(AGENTS)[0]
        thing = f"{scheme}://{endpoint.authority}{before}{AGENTS}{quote(name or '', safe='')}"
    return Target(endpoint.url, thing)


async def find_target(
    peers: Peers, source: str, thing: str | None, headers: Headers, *, local: bool = False
) -> Target:
    """Return the target that a source leads to. Raises the same errors as `consume_thing`.

    With `local`, the description of another host may lead to this machine.
    """
    if source.startswith(SOCKETS):
        return socket_target(source, thing)
    if not source.startswith(WEB):
        return target_of(await _read(source), None, source, thing)
    if endpoint_of(source).target == "/":
        return await _at_root(peers, source.rstrip("/"), thing, headers, local)
    return await _target_at(peers, source, thing, headers, local)


async def _target_at(peers: Peers, url: str, thing: str | None, headers: Headers, local: bool) -> Target:
    from ..http_client._fetch import fetched

    text, source_url, here = await fetched(peers.network, url, peers.tls, headers, peers.headers_for, local)
    found = target_of(text, source_url, source_url, thing)
    if found.description is not None:
        places = _places_of(found.description, source_url, found.url)
        if here or local:
            peers.network.allow(places)
        else:
            _check_leads(places, source_url)
            peers.network.distrust(places)
    return found


def _places_of(description: Description, source_url: str, url: str | None) -> tuple[str, ...]:
    """Return all addresses that a description leads to, the chosen one first."""
    chosen = () if url is None else (url,)
    all_of_them = (
        *chosen,
        *HttpOperations(description, source_url).origins().values(),
        *hrefs_of(description, source_url),
    )
    return tuple(href for href in all_of_them if has_address(href))


def _check_leads(places: Iterable[str], source_url: str) -> None:
    """Raise ConfigError if the description of another host leads to this machine."""
    for href in places:
        if leads_astray(source_url, href):
            raise ConfigError(
                f"a form leads to {href[:80]!r}, which is another host there than here "
                "(local=True allows it)",
                source_url,
            )


async def _at_root(peers: Peers, base: str, thing: str | None, headers: Headers, local: bool) -> Target:
    """Fetch the description of a server's only thing, else the list of all, as kotlin-wot serves it."""
    try:
        return await _target_at(peers, base + WELL_KNOWN, thing, headers, local)
    except (ConfigError, ConnectFailed) as error:
        if isinstance(error, ConnectFailed) and error.status is None:  # nothing answers there
            raise
        try:
            return await _target_at(peers, f"{base}/", thing, headers, local)
        except ConnectFailed:
            raise error from None


async def _read(path: str) -> bytes:
    try:
        async with await trio.open_file(path, "rb") as file:
            text: bytes = await file.read(MAX_BYTES + 1)
            return text
    except OSError as error:
        hint = "" if "://" not in path else "; a URL begins with http, https, ws or wss"
        raise ConfigError(f"cannot read the description: {error.strerror}{hint}", path) from None


def target_of(text: bytes, url: str | None, place: str, thing: str | None) -> Target:
    """Return the target for the thing that a text describes, alone or in a list of several."""
    description = _described(_chosen(text, place, thing), url, place)
    if thing is not None and not _is(description.id, description.title, thing):
        why = f"this describes {description.id or description.title!r}, not {thing!r}"
        raise ConfigError(why + _links_of(description), place)
    form = next(sockets_of(description, url), None)
    if form is None:
        # over HTTP; a thing that lists others has to be named
        is_at_root = url is not None and endpoint_of(url).target in ("/", WELL_KNOWN)
        lists_others = any(link.rel == "item" for link in description.links or ())
        is_unnamed = thing is None and is_at_root and lists_others
        if is_unnamed or not HttpOperations(description, url).origins():
            why = f"no form is for LMOS over a WebSocket (subprotocol {SUBPROTOCOL!r}), nor for HTTP"
            faults = description.faults
            if faults:
                listed = "; ".join(f"{pointer(each.place) or '/'} {each.message}" for each in faults[:SHOWN])
                more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
                why = f"{why}; the description is wrong: {listed}{more}"
            raise ConfigError(why + _links_of(description), place)
    thing_id = description.id or url or (place if form is None else None)  # HTTP needs no id
    if thing_id is None:
        raise ConfigError("the description has no id", place)
    return Target(None if form is None else endpoint_of(form.href).url, thing_id, description, url)


def _links_of(description: Description) -> str:
    """Return text for an error: the links of a description to other things, such as a node's agents."""
    links = [link.href for link in description.links or () if link.rel == "item"]
    more = ", ..." if links[20:] else ""
    return f"; it links to {', '.join(links[:20])}{more}" if links else ""


def _chosen(text: bytes, place: str, thing: str | None) -> Any:
    """Return the only description in a text, or the one that `thing` selects, as plain data or as text."""
    if not text.lstrip().startswith(b"["):
        return text
    try:
        listed: list[Any] = read_json(text, list[Any])
    except (ValueError, RecursionError) as error:
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


def _described(data: Any, url: str | None, place: str) -> Description:
    try:
        return load_usable(data, url)
    except DescriptionError as error:
        where = pointer(error.place) or "/"
        raise ConfigError(f"the description is wrong: {where} {error.message}", place) from None


def hrefs_of(description: Description, source_url: str) -> Iterator[str]:
    """Yield the addresses of all forms of a description, made absolute."""
    base = resolve(source_url, description.base) if description.base else source_url
    affordances: list[Any] = [
        *(description.properties or {}).values(),
        *(description.actions or {}).values(),
        *(description.events or {}).values(),
    ]
    forms = [
        *(description.forms or ()),
        *(f for each in affordances for f in effective_forms(description, each)),
    ]
    for href in dict.fromkeys(form.href for form in forms):
        yield resolve(base, href)


def sockets_of(description: Description, url: str | None) -> Iterator[Form]:
    """Yield the forms of a thing for LMOS: the best one for each operation of each affordance."""
    ways = HttpOperations(description, url)
    described = ways.description
    affordances: list[AnyAffordance] = [
        *(described.properties or {}).values(),
        *(described.actions or {}).values(),
        *(described.events or {}).values(),
    ]
    for each in affordances:
        forms = [
            form
            for form in effective_forms(described, each)
            if "{" not in form.href and has_address(form.href)
        ]
        for op in dict.fromkeys(op for form in forms for op in form.ops):
            found = choose(forms, op, ways.sockets)
            if found is not None:
                yield found
