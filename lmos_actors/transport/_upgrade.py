"""A request to change to WebSocket: what is looked at, and what whoever decides may say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from ._head import Head, Headers, Refused, malformed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ._certificates import ClientCertificate
    from ._websocket import Connection

_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")  # 16 bytes, as base64
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
TO_WEBSOCKET = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))  # what a 426 has to say
_VERSION = (*TO_WEBSOCKET, (b"Sec-WebSocket-Version", b"13"))


@attrs.frozen
class Upgrade:
    """A well-formed request for a WebSocket, that nobody has answered yet.

    `target` is as it came, `path` its percent-decoded path, `query` what follows the "?". `headers` are all
    of the request's, names lower-cased. `offered` are the subprotocols, best first. `peer` is the address it
    comes from; `secure` says whether it came over TLS, `certificate` is the client's, if it has shown one.
    """

    target: str
    path: str
    query: str
    headers: Headers
    offered: tuple[str, ...]
    peer: str
    secure: bool
    certificate: ClientCertificate | None = None


@attrs.frozen
class Accept:
    """The WebSocket is opened, with `headers` more in its answer; then `serve` has it until it returns.

    `subprotocol` is one of those offered, or None.
    """

    subprotocol: str | None
    serve: Callable[[Connection], Awaitable[None]]
    headers: Headers = ()


@attrs.frozen
class Refuse:
    """The WebSocket is not opened: an HTTP status from 400 up, and a short reason that the peer is told.

    `headers` are further ones of the answer.
    """

    status: int
    reason: str
    headers: Headers = ()


def asks_for_websocket(head: Head) -> bool:
    """Whether the request wants to be a WebSocket, well-formed or not."""
    return "websocket" in [token.lower() for token in head.tokens(b"upgrade")]


def upgrade_of(
    head: Head, peer: str, *, secure: bool, certificate: ClientCertificate | None = None
) -> Upgrade:
    """Check the opening handshake (RFC 6455, 4.2.1). Raises `Refused`."""
    if head.method != "GET":
        raise Refused(405, "a WebSocket is opened with GET", "upgrade", ((b"Allow", b"GET"),))
    if head.version != "1.1":
        raise _wrong("a WebSocket is opened with HTTP/1.1")
    if "upgrade" not in [token.lower() for token in head.tokens(b"connection")]:
        raise _wrong("Connection does not say Upgrade; a proxy in between may have taken that away")
    if head.values(b"sec-websocket-version") != ["13"]:
        raise Refused(426, "only version 13 of the WebSocket protocol is spoken here", "upgrade", _VERSION)
    keys = head.values(b"sec-websocket-key")
    if len(keys) != 1 or not _KEY.fullmatch(keys[0]):
        raise _wrong("Sec-WebSocket-Key is not 16 bytes in base64")
    if head.chunked or head.length:
        raise _wrong("a request with a body cannot become a WebSocket")
    _check_host(head)
    return Upgrade(
        head.target, head.path, head.query, head.headers, _offered(head), peer, secure, certificate
    )


def _wrong(why: str) -> Refused:
    return Refused(400, why, "upgrade")


def _offered(head: Head) -> tuple[str, ...]:
    offered = tuple(head.tokens(b"sec-websocket-protocol"))
    if any(not _TOKEN.fullmatch(name) for name in offered):
        raise _wrong("Sec-WebSocket-Protocol is not a list of names")
    return offered


def _check_host(head: Head) -> None:
    """The WebSocket library reads the host as an international name, and does not expect that to fail."""
    try:
        head.values(b"host")[0].encode("ascii").decode("idna")
    except UnicodeError:
        raise malformed("Host is not a host") from None


def same_origin(upgrade: Upgrade, allowed: Iterable[str] = ()) -> bool:
    """Whether a page may open this WebSocket: one of this very host, or of an `allowed` origin.

    An origin is written as browsers write it, "https://example.org". Programs that are no browsers send no
    Origin: for them the answer is True, since they could send any. Behind a proxy that changes Host, name
    the outer origin in `allowed`.
    """
    headers = dict(upgrade.headers)
    origin = headers.get(b"origin", b"").decode("ascii").lower()
    if not origin:
        return True
    own = f"{'https' if upgrade.secure else 'http'}://{headers.get(b'host', b'').decode('ascii').lower()}"
    return origin == own or origin in [each.lower() for each in allowed]
