"""What this side presents to others: each place its own credentials, and no other place any."""

from __future__ import annotations

import binascii
import ipaddress
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from lmos_actors._core import Headers, SecretBytes
from lmos_actors.errors import ConfigError

from ._presented import is_token
from ._schemes import is_a, reference_of
from ._secrets import Reference, SecretSource, lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_SECURE: Final = ("https", "wss")

Place: TypeAlias = "tuple[bool, str, int]"


@attrs.frozen
class BearerToken:
    """A token for `Authorization: Bearer`: a reference to it. Of several lines in a file the first counts."""

    reference: Reference = attrs.field(converter=reference_of)
    scheme = "bearer"

    def header(self, secret: SecretBytes) -> SecretBytes | None:
        """Return the header's value, None where the secret cannot be one."""
        return SecretBytes(b"Bearer " + secret) if is_token(secret) else None


@attrs.frozen
class BasicAuth:
    """A user and a password for `Authorization: Basic`: the name, and a reference to the password."""

    user: str
    reference: Reference = attrs.field(converter=reference_of)
    scheme = "basic"

    def __attrs_post_init__(self) -> None:
        if not self.user or ":" in self.user or not self.user.isprintable():
            raise ConfigError("the name of a user is printable text without a colon")

    def header(self, secret: SecretBytes) -> SecretBytes | None:
        """Return the header's value."""
        return SecretBytes(b"Basic " + binascii.b2a_base64(self.user.encode() + b":" + secret, newline=False))


Credential: TypeAlias = "BearerToken | BasicAuth"


def place_of(url: str) -> Place:
    """Return what credentials are kept by: whether TLS, host, port. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError("credentials are kept by URL: this is none") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise ConfigError(
            "credentials are kept by a http, https, ws or wss URL that names a host and no user"
        )
    host = parts.hostname.removesuffix(".")
    return parts.scheme in _SECURE, host, _PORTS[parts.scheme] if port is None else port


class Credentials:
    """Credentials by where they are for: `Credentials({"https://a.example:8443": BearerToken("env:TOKEN")})`.

    A place is scheme, host and port: nothing is ever sent to another, and nothing without TLS but to this
    very machine, unless `allow_insecure`. `wss` and `https` count as one scheme, `ws` and `http` too. Secrets
    are read when it is made and, where they have changed, when they are needed. Blocks on the disk. Raises
    ConfigError.
    """

    def __init__(
        self, known: Mapping[str, Credential] | None = None, *, allow_insecure: bool = False
    ) -> None:
        self.allow_insecure = allow_insecure
        self._known: dict[Place, _Kept] = {}
        for url, credential in (known or {}).items():
            self._add(url, credential)

    def _add(self, url: str, credential: Credential) -> None:
        place = place_of(url)
        parts = urlsplit(url)
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ConfigError(f"credentials are for a whole host: {parts.scheme}://{parts.netloc}")
        if not self._may_send(place):
            raise ConfigError(
                f"credentials for {url} would travel without TLS, for anyone on the way to read: use "
                f"{'wss' if parts.scheme == 'ws' else 'https'}, or say allow_insecure=True"
            )
        if not is_a(credential, BearerToken, BasicAuth):
            raise ConfigError(f"credentials for {url} are BearerToken(...) or BasicAuth(...)")
        if place in self._known:
            raise ConfigError(f"there are two credentials for {parts.netloc}")
        kept = self._known[place] = _Kept(credential)
        kept.value(0.0)

    def __repr__(self) -> str:
        shown = ", ".join(f"{url_of(place)!r}: {kept.credential!r}" for place, kept in self._known.items())
        return f"Credentials({{{shown}}})"

    def credential_for(self, url: str) -> Credential | None:
        """Return what is kept for the place of a URL, None where there is nothing. Raises ConfigError."""
        kept = self._known.get(place_of(url))
        return None if kept is None else kept.credential

    def headers_for(self, url: str, now: float) -> Headers:
        """Return the headers that a request to a URL, or a handshake with it, has to carry; () for none.

        To be asked for each request and each (re)connect: secrets change. Their values are not shown by
        `repr`. `now` is seconds of a clock that never goes back. Raises ConfigError where the secret cannot
        be read any more.
        """
        place = place_of(url)
        kept = self._known.get(place)
        if kept is None or not self._may_send(place):
            return ()
        return ((b"authorization", kept.value(now)),)

    def _may_send(self, place: Place) -> bool:
        secure, host, _ = place
        return secure or self.allow_insecure or is_loopback(host)


class _Kept:
    def __init__(self, credential: Credential) -> None:
        self.credential = credential
        self._source = SecretSource(credential.reference)
        self._value: SecretBytes | None = None

    def value(self, now: float) -> SecretBytes:
        if self._source.is_due(now) and self._source.may_have_changed():
            self._value = self._read()
        if self._value is None:
            raise ConfigError(self._source.trouble or f"{self._source.reference}: is no token")
        return self._value

    def _read(self) -> SecretBytes | None:
        read = self._source.read()
        lines = () if read is None else lines_of(read)
        return self.credential.header(lines[0]) if lines else None


def is_loopback(host: str) -> bool:
    """Whether a host is this very machine for sure: `localhost`, or an address that never leaves it."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def url_of(place: Place) -> str:
    """Return a place as a URL."""
    secure, host, port = place
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
