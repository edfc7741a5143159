"""Who asks, what they bring along, and what they are told when they are not let in."""

from __future__ import annotations

import binascii
import re
from enum import Enum
from typing import Final, Literal, TypeAlias

import attrs

from lmos_actors._core import Headers as Headers, SecretBytes, hide
from lmos_actors.errors import AgentError, Forbidden, InvalidInput, RateLimited, Unauthorized

Verb: TypeAlias = Literal["read", "write", "invoke", "subscribe"]
"""What is asked of an agent.

`read`: read, read all, observe. `write`: write, write many. `invoke`: invoke, query, cancel.
`subscribe`: events.
"""

VERBS: Final[tuple[Verb, ...]] = ("read", "write", "invoke", "subscribe")


@attrs.frozen
class Principal:
    """Who was authenticated: `name`, by which `scheme`, with which `scopes`."""

    name: str
    scheme: str
    scopes: tuple[str, ...] = ()


@attrs.frozen
class Certificate:
    """A client's certificate that TLS has verified.

    `subject` is its distinguished name as text, `names` the names it was made for (subject alternative names,
    else the common name), `fingerprint` the SHA-256 of its DER form in lower-case hexadecimal digits.
    """

    subject: str
    names: tuple[str, ...]
    fingerprint: str


@attrs.frozen
class Presented:
    """What a request, or an upgrade, brings along: `headers` with lower-cased names, `peer` its address.

    `secure` says whether it came over TLS, `host` what it calls this node, None where it does not say.
    Credentials in the headers are not shown by `repr`.
    """

    headers: Headers = attrs.field(converter=hide)
    peer: str
    secure: bool
    host: str | None
    certificate: Certificate | None = None

    @classmethod
    def of(
        cls, headers: Headers, peer: str, *, secure: bool, certificate: Certificate | None = None
    ) -> Presented:
        """Make it of the headers alone: `host` is what the Host header says, "" where there are two."""
        headers = hide(headers)
        hosts = [value for name, value in headers if name == b"host"]
        host = None if not hosts else hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        return cls(headers, peer, secure, host, certificate)

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all headers of that name."""
        return [value for each, value in self.headers if each == name]


@attrs.frozen
class Refusal:
    """Nobody is let in: an HTTP `status` (400, 401, 403, 429), a short `reason`, and headers of the answer.

    Which part of the credentials was wrong is never said.
    """

    status: int
    reason: str
    headers: Headers = ()
    retry_in: float | None = None

    @property
    def error(self) -> AgentError:
        """The exception that says the same."""
        if self.status == 401:
            return Unauthorized(self.reason)
        if self.status == 403:
            return Forbidden(self.reason)
        return RateLimited(self.retry_in) if self.status == 429 else InvalidInput(self.reason)


# --- what an Authorization header says (RFC 9110, 11.6.2; RFC 7617; RFC 6750). Nothing here raises

LONGEST: Final = 1 << 13
"""Bytes of credentials that are looked at; nobody's are longer."""

_SCHEME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_BASE64: Final = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class Wrong(Enum):
    """The type of `MALFORMED`."""

    MALFORMED = "malformed"


MALFORMED: Final = Wrong.MALFORMED
"""Stands for a header that is no credentials at all, or for two of them."""


@attrs.frozen
class Given:
    """Credentials as they came: the scheme's name in lower case, and what follows it."""

    kind: str = attrs.field(repr=False)  # where somebody forgets it, the secret stands in its place
    value: SecretBytes


def given_in(presented: Presented) -> Given | Wrong | None:
    """Return the credentials of a request, None where there are none.

    `Authorization: null` is none: kotlin-wot's HTTP client sends it when it has no credentials.
    """
    headers = presented.values(b"authorization")
    if not headers or [each.strip(b" \t") for each in headers] == [b"null"]:
        return None
    return MALFORMED if len(headers) > 1 else given_of(headers[0])


def given_of(header: bytes) -> Given | Wrong:
    """Read the value of one Authorization header."""
    if len(header) > LONGEST:
        return MALFORMED
    text = SecretBytes(header.strip(b" \t"))
    space = text.find(b" ")
    end = len(text) if space < 0 else space
    if not _SCHEME.fullmatch(text, 0, end):
        return MALFORMED
    return Given(text[:end].decode("ascii").lower(), SecretBytes(text[end:].strip(b" ")))


def basic_of(value: bytes) -> tuple[SecretBytes, SecretBytes] | None:
    """Read what Basic credentials hold, user and password; None where it is not that."""
    if not _BASE64.fullmatch(value):
        return None
    text = SecretBytes(binascii.a2b_base64(value))
    colon = text.find(b":")
    return None if colon < 0 else (SecretBytes(text[:colon]), SecretBytes(text[colon + 1 :]))


def is_token(value: bytes) -> bool:
    """Whether Bearer credentials can be these."""
    return _TOKEN.fullmatch(value) is not None
