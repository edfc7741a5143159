"""Networks: addresses, and the streams of bytes that result from connecting to them and listening at them."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import attrs
import trio

from lmos_actors._core import read_json
from lmos_actors.errors import ConfigError, ConnectFailed, hint_at

from ._tls import send_alert, whose_certificate, why_failed

_PORTS: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}
_SECURE: Final = ("wss", "https")
_PLAIN: Final = "text/plain"
_PROBLEM: Final = "application/problem+json"
_NAMES_OF_ITSELF: Final = ("localhost", "localhost.localdomain", "ip6-localhost")
_NAMES_USER: Final = re.compile(r"[^/?#]*//[^/?#]*@")


@attrs.frozen
class Endpoint:
    """The target of a URL: `host` without brackets, `target` the path with its query, at least "/".

    `elsewhere`: it has to be on another machine, whatever the name of its host resolves to.
    """

    secure: bool
    host: str
    port: int
    target: str = "/"
    elsewhere: bool = attrs.field(default=False, eq=False)

    @property
    def authority(self) -> str:
        """The host and port as in a `Host` header: with a port only if it is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as a `ws://` or `wss://` URL."""
        return f"{'wss' if self.secure else 'ws'}://{self.authority}{self.target}"


def endpoint_of(url: str) -> Endpoint:
    """Parse a `ws`, `wss`, `http` or `https` URL. Raises ConfigError that names the mistake in it."""
    if _NAMES_USER.match(url):  # before anything says the URL back
        raise ConfigError("user names and passwords do not belong in a URL")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in _PORTS:
        hint = hint_at(parts.scheme, _PORTS) or f": one of {', '.join(_PORTS)} is needed"
        raise ConfigError(f"the scheme {parts.scheme!r} of {url!r} is not known{hint}")
    if not parts.hostname:
        raise ConfigError(f"{url!r} names no host")
    if not all(0 < len(label) < 64 for label in parts.hostname.removesuffix(".").split(".")):
        raise ConfigError(f"{url!r} names no host: each part of a name has 1 to 63 characters")
    if not url.isascii() or any(letter <= " " or letter == "\x7f" for letter in url):
        raise ConfigError(f"{url!r} has characters that a URL must write as %XX (a host as xn--)")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(
        parts.scheme in _SECURE,
        parts.hostname,
        _PORTS[parts.scheme] if port is None else port,
        target,
    )


class Listener(Protocol):
    """A listener for incoming streams. One task accepts at a time."""

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The host and port of each address of the listener, with the actual port if 0 was requested."""
        ...

    async def accept(self) -> tuple[trio.abc.Stream, str]:
        """Wait for the next connection; return its stream, and its peer's address as text.

        Temporary problems, such as a lack of file descriptors, are waited out. Raises
        trio.ClosedResourceError once the listener is closed.
        """
        ...

    async def aclose(self) -> None:
        """Stop listening. Streams accepted before are not affected."""
        ...


class Network(Protocol):
    """The interface to the network: only its implementations open sockets, or stand-ins for sockets."""

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """Open a connection; if the endpoint is secure, the TLS handshake is done before this returns.

        `tls` None means the usual trust in the system's certificates. Raises ConnectFailed, also if the
        endpoint has to be `elsewhere` and its name leads to this machine. The caller sets a deadline.
        """
        ...

    async def listen(self, endpoint: Endpoint) -> Listener:
        """Listen at the host and port of `endpoint`; port 0 selects a free port. TLS is not done here.

        Raises ConfigError if that is not possible: port taken, no such address.
        """
        ...


async def secured(stream: trio.abc.Stream, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
    """Do the client's TLS handshake over a stream, if the endpoint is secure.

    Raises ConnectFailed. If it fails or is cancelled, the stream is closed.
    """
    if not endpoint.secure:
        return stream
    context = ssl.create_default_context() if tls is None else tls
    wrapped = trio.SSLStream(stream, context, server_hostname=endpoint.host, https_compatible=True)
    try:
        await wrapped.do_handshake()
    except trio.BrokenResourceError as error:
        try:
            await send_alert(wrapped)
        finally:
            await trio.aclose_forcefully(stream)
        cause = error.__cause__ or error
        why = f"the TLS handshake failed: {why_failed(cause)}"
        raise ConnectFailed(endpoint.url, why, certificate=whose_certificate(cause)) from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return wrapped


def cut_off(url: str, error: Exception, *, secure: bool, before: str = "") -> ConnectFailed:
    """Return the error for a connection that ended before its server's first answer; see `why_cut`."""
    whose = whose_certificate(error.__cause__)
    if secure and not isinstance(error.__cause__, ssl.SSLError):
        whose = "client"
    return ConnectFailed(url, before + why_cut(error, secure=secure), certificate=whose)


def why_cut(error: Exception, *, secure: bool) -> str:
    """Return why the first answer of a server has not arrived.

    In TLS 1.3 this is the only way for a client to learn that its certificate was refused, and some servers
    give no reason.
    """
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError):
        return why_failed(cause)
    why = f"{error}" or "the connection was reset"
    return f"{why}, as servers do that want a client certificate, or another one" if secure else why


def has_detail(content_type: str) -> bool:
    """Return whether the body of a refusal may contain a one-line reason."""
    return _kind(content_type) in (_PLAIN, _PROBLEM)


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def detail_of(content_type: str, body: bytes) -> str:
    """Return the reason in a refusal, from a line of text or from problem details; "" if there is none."""
    said: object = None
    if _kind(content_type) == _PLAIN:
        said = body.decode("utf-8", "replace")
    elif _kind(content_type) == _PROBLEM:
        try:
            said = read_json(body, dict[str, Any]).get("detail")
        except (ValueError, RecursionError):
            return ""
    line = said.strip() if isinstance(said, str) else ""
    return line if len(line) <= 300 and line.isprintable() else ""


def answered(status: int, phrase: str, detail: str) -> str:
    """Return a line of text about an unexpected answer of a server."""
    return f"it answered {status} {phrase}".rstrip() + (f": {detail}" if detail else "")


# ---- hosts that mean another machine to each machine that resolves them


def is_here(host: str) -> bool:
    """Return whether a host name or address means the machine that uses it, or one on the same link."""
    name = host.lower().rstrip(".")
    if name in _NAMES_OF_ITSELF or name.endswith(".localhost"):
        return True
    try:
        address = _address(host.partition("%")[0])
    except (ValueError, OSError):
        return False
    return address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast


def leads_astray(source_url: str, url: str) -> bool:
    """Return whether a document at one URL leads to a URL that means its reader's own machine.

    The result is False for a document from this machine: it may lead anywhere. Another host that names
    `localhost` means itself. The result is True if the host of the URL is yet to be filled in, because it
    could become any host.
    """
    if is_here(endpoint_of(source_url).host):
        return False
    place = url.partition("{")[0]
    return "{" in urlsplit(url).netloc or is_here(endpoint_of(place).host)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address as connecting does: `127.1` and `0x7f000001` are addresses too."""
    if ":" not in host:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    address = ipaddress.IPv6Address(host)
    return address.ipv4_mapped or address
