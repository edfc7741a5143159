"""Fetching descriptions over HTTP, by the network of the node: bounded in bytes, redirects and time.

No pool is needed, as each connection carries one request; and commands fetch before there is a node. The
caller's headers are not sent to another server after a redirect; `headers_for` is called for each hop.
"""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.protocol.td import MAX_BYTES
from lmos_actors.transport import answered, detail_of, endpoint_of, has_detail, is_here

from ._redirects import REDIRECTS, redirected
from ._stream import BadAnswer, HttpStream, Unanswered, Unsendable, WebRequest, connect_failed

if TYPE_CHECKING:
    import ssl

    from lmos_actors.transport import Endpoint, Network

    from ._stream import Head, Headers

SECONDS: Final = 30.0
"""Seconds for the whole fetch, redirects included."""

PATIENCE: Final = 1.0
"""Seconds to wait for the reason of a refusal, once its status is known."""

KINDS: Final = ("application/td+json", "application/json", "application/ld+json")

_HEADERS: Final = (
    (b"Accept", b"application/td+json, application/json;q=0.9"),
    (b"Accept-Encoding", b"identity"),
    (b"Connection", b"close"),
)
_PHRASES: Final = {each.value: each.phrase for each in HTTPStatus}


async def fetched(
    network: Network, url: str, tls: ssl.SSLContext | None, headers: Headers, headers_for: Any, local: bool
) -> tuple[bytes, str, bool]:
    """Fetch as `fetch` does, and also return whether this machine answered, under any of its names."""
    with trio.move_on_after(SECONDS):
        try:
            return await _fetched(network, url, tls, headers, headers_for, local)
        except ConnectFailed as error:
            if error.url == endpoint_of(url).url:  # the network names the address of the socket
                raise error.at(url) from error
            raise
        except Unsendable as error:
            raise ConfigError(f"the request to {url} cannot be sent: {error}") from None
        except Unanswered as error:
            raise connect_failed(url, error, secure=url.lower().startswith("https")) from error
        except BadAnswer as error:
            raise ConnectFailed(url, f"{error}") from error
    raise ConnectFailed(url, f"no description within {SECONDS:g} s")


async def _fetched(
    network: Network, url: str, tls: ssl.SSLContext | None, headers: Headers, headers_for: Any, local: bool
) -> tuple[bytes, str, bool]:
    may_be_here = True  # the caller's URL may lead here, and so may a redirect of this machine
    at, endpoint = url, endpoint_of(url)
    for _ in range(REDIRECTS + 1):
        stream, here = await _connected(network, endpoint, tls, may_be_here=may_be_here)
        may_be_here = here or local
        try:
            own = headers_for(at, headers)
            named = {name.lower() for name, _ in own}
            usual = (each for each in _HEADERS if each[0].lower() not in named)
            head = await stream.ask(WebRequest("GET", at), (*usual, *own), None)
            led = redirected(head, local=may_be_here)
            if led is None:
                return await _text(head, stream, url), _plain(endpoint), here
        finally:
            await stream.aclose()
        before = endpoint.authority
        at, endpoint = led
        if endpoint.authority != before:
            headers = ()  # they are for the server that the caller named
    raise ConnectFailed(url, f"more than {REDIRECTS} redirects")


def _plain(endpoint: Endpoint) -> str:
    """Return an HTTP URL in its canonical form, for example without the default port."""
    return f"{'https' if endpoint.secure else 'http'}://{endpoint.authority}{endpoint.target}"


async def _connected(
    network: Network, endpoint: Endpoint, tls: ssl.SSLContext | None, *, may_be_here: bool
) -> tuple[HttpStream, bool]:
    """Return a new connection, and whether it leads to this machine."""
    here = is_here(endpoint.host)
    try:
        return HttpStream(await network.connect(attrs.evolve(endpoint, elsewhere=not here), tls)), here
    except ConnectFailed as error:
        if not (error.leads_here and may_be_here):
            raise
    return HttpStream(await network.connect(endpoint, tls)), True


async def _text(head: Head, stream: HttpStream, url: str) -> bytes:
    if head.status != 200:
        why = answered(head.status, _PHRASES.get(head.status, ""), await _detail(head, stream))
        raise ConnectFailed(url, why, status=head.status)
    if head.header(b"content-encoding") not in ("", "identity"):  # its length is not known then
        raise ConnectFailed(url, "the answer is compressed, which was not asked for", status=200)
    if head.kind not in KINDS:
        why = f"the answer is {head.kind or 'of no known type'}, not a description"
        raise ConnectFailed(url, why, status=200)
    return await stream.body(MAX_BYTES)


async def _detail(head: Head, stream: HttpStream) -> str:
    kind, body = head.header(b"content-type"), b""
    if has_detail(kind):
        with trio.move_on_after(PATIENCE), suppress(BadAnswer, Unanswered):
            body = await stream.body(MAX_BYTES)
    return detail_of(kind, body)
