"""Client credentials: what a node or command presents to remote hosts; each host gets only its own."""

from __future__ import annotations

import binascii
import ipaddress
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from lmos_actors._core import Headers, SecretBytes
from lmos_actors.errors import ConfigError

from ._request import is_token
from ._schemes import is_a, reference_of
from ._secrets import Reference, SecretSource, lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_SECURE: Final = ("https", "wss")

Place: TypeAlias = "tuple[bool, str, int]"

NO_USER: Final = (
    "a reference to a secret is needed, after the user: USER:env:NAME or USER:file:PATH; "
    "the secret itself does not belong here"
)


@attrs.frozen
class BearerToken:
    """A token for `Authorization: Bearer`, by reference. If a file has several lines, the first counts."""

    reference: Reference = attrs.field(converter=reference_of)
    scheme = "bearer"

    def __str__(self) -> str:
        return f"bearer:{self.reference}"

    def value(self, secret: SecretBytes) -> SecretBytes | None:
        """Return the value of the Authorization header; None if the secret is not a valid token."""
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

    def __str__(self) -> str:
        return f"basic:{self.user}:{self.reference}"

    def value(self, secret: SecretBytes) -> SecretBytes | None:
        """Return the value of the Authorization header."""
        return SecretBytes(b"Basic " + binascii.b2a_base64(self.user.encode() + b":" + secret, newline=False))


@attrs.frozen
class ApiKey:
    """An API key, by reference, for things whose descriptions require one (`apikey`).

    The description states where the key goes: into a header, the query, a variable of the URL or a cookie. If
    a file has several lines, the first counts.
    """

    reference: Reference = attrs.field(converter=reference_of)
    scheme = "apikey"

    def __str__(self) -> str:
        return f"apikey:{self.reference}"

    def value(self, secret: SecretBytes) -> SecretBytes | None:
        """Return the key; None if the secret has characters that no header can hold."""
        return secret if all(0x21 <= each <= 0x7E for each in secret) else None


Credential: TypeAlias = "BearerToken | BasicAuth | ApiKey"


def credential_of(kind: str, text: object, folder: Path | None = None) -> Credential:
    """Parse a credential of an option or a file: `bearer` or `apikey` with REF, or `basic` with USER:REF.

    A relative path is resolved in `folder`, else in the working directory. The secret itself is not read.
    Raises ConfigError, which does not repeat the text, as it may be a secret.
    """
    if kind in ("bearer", "apikey"):
        reference = Reference.parse(text, folder)
        return BearerToken(reference) if kind == "bearer" else ApiKey(reference)
    user, _, named = text.partition(":") if isinstance(text, str) else ("", "", "")
    try:
        return BasicAuth(user, Reference.parse(named, folder))
    except ConfigError:
        raise ConfigError(NO_USER) from None


def place_of(url: str) -> Place:
    """Return the key under which the credentials for a URL are stored: TLS or not, host, port.

    Raises ConfigError.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError("credentials need the URL of a host, such as https://a.example") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise ConfigError("credentials need a http, https, ws or wss URL with a host and without a user")
    host = parts.hostname.removesuffix(".")
    return parts.scheme in _SECURE, host, _PORTS[parts.scheme] if port is None else port


class Credentials:
    """Credentials by host: `Credentials({"https://a.example:8443": BearerToken("env:TOKEN")})`.

    The key is scheme, host and port; no other host receives the credentials. Without TLS they are sent to
    this machine only, unless `allow_insecure`. `wss` counts as `https`, and `ws` as `http`. Secrets are read
    by the constructor and, when they have changed, on use. Blocks on the disk. Raises ConfigError.
    """

    def __init__(
        self, known: Mapping[str, Credential] | None = None, *, allow_insecure: bool = False
    ) -> None:
        self.allow_insecure = allow_insecure
        self._by_place: dict[Place, _LoadedCredential] = {}
        for url, credential in (known or {}).items():
            self._add_place(url, credential)

    def _add_place(self, url: str, credential: Credential) -> None:
        place = place_of(url)
        parts = urlsplit(url)
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ConfigError(f"credentials are for a whole host: {parts.scheme}://{parts.netloc}")
        if not self._may_send(place):
            raise ConfigError(in_the_clear(url, "allow_insecure=True"))
        if not is_a(credential, BearerToken, BasicAuth, ApiKey):
            raise ConfigError(f"credentials for {url} are BearerToken(...), BasicAuth(...) or ApiKey(...)")
        if place in self._by_place:
            raise ConfigError(f"there are two credentials for {parts.netloc}")
        kept = self._by_place[place] = _LoadedCredential(credential)
        kept.value(0.0)

    def __repr__(self) -> str:
        shown = ", ".join(f"{url_of(place)!r}: {kept.credential!r}" for place, kept in self._by_place.items())
        return f"Credentials({{{shown}}})"

    def credential_for(self, url: str) -> Credential | None:
        """Return the credential for the host of a URL; None if there is none. Raises ConfigError."""
        kept = self._by_place.get(place_of(url))
        return None if kept is None else kept.credential

    def headers_for(self, url: str, now: float) -> Headers:
        """Return the headers for a request to a URL, or for a handshake.

        Return () if the host has no credential, or has an API key. Call this for each request and each
        (re)connect, as secrets change. `repr` does not show the values. `now` is monotonic time in seconds.
        Raises ConfigError if the secret can no longer be read.
        """
        kept = self._sendable(url)
        if kept is None or isinstance(kept.credential, ApiKey):
            return ()
        return ((b"authorization", kept.value(now)),)

    def key_for(self, url: str, now: float) -> SecretBytes | None:
        """Return the API key for a URL; None if there is none. See `headers_for`."""
        kept = self._sendable(url)
        return kept.value(now) if kept is not None and isinstance(kept.credential, ApiKey) else None

    def _sendable(self, url: str) -> _LoadedCredential | None:
        place = place_of(url)
        return self._by_place.get(place) if self._may_send(place) else None

    def _may_send(self, place: Place) -> bool:
        return self.allow_insecure or is_private(place)


class _LoadedCredential:
    def __init__(self, credential: Credential) -> None:
        self.credential = credential
        self._source = SecretSource(credential.reference)
        self._value: SecretBytes | None = None

    def value(self, now: float) -> SecretBytes:
        if self._source.is_due(now) and self._source.may_have_changed():
            self._value = self._read()
        if self._value is None:
            raise ConfigError(self._source.problem or f"{self._source.reference}: is not a token")
        return self._value

    def _read(self) -> SecretBytes | None:
        read = self._source.read()
        lines = () if read is None else lines_of(read)
        return self.credential.value(lines[0]) if lines else None


def is_private(place: Place) -> bool:
    """Return whether data for a server is protected on the way: by TLS, or by staying on this machine."""
    secure, host, _ = place
    return secure or is_loopback(host)


def in_the_clear(url: str, permission: str) -> str:
    """Return the error message for credentials that would be sent to a place that is not private.

    `permission` names the setting that would allow this.
    """
    better = "wss" if url.startswith("ws") else "https"
    return (
        f"credentials for {url} would be sent without TLS, readable by anyone on the way: use {better}, "
        f"or {permission}"
    )


def is_loopback(host: str) -> bool:
    """Return whether a host is certainly this machine: `localhost`, or a loopback address."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def url_of(place: Place) -> str:
    """Return the URL of a place, which is a key of `Credentials`."""
    secure, host, port = place
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
