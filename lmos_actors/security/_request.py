"""Request context of access control: principals, certificates, refusals, and the Authorization header."""

from __future__ import annotations

import binascii
import re
from enum import Enum
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qs

import attrs

from lmos_actors._core import Headers as Headers, SecretBytes, hide
from lmos_actors.errors import AgentError, Forbidden, InvalidInput, RateLimited, Unauthorized

Verb: TypeAlias = Literal["read", "write", "invoke", "subscribe", "inspect", "operate", "approve"]
"""Kind of access to an agent.

`read`: read, read all, observe. `write`: write, write many. `invoke`: invoke, query, cancel.
`subscribe`: events. `inspect`: look at its state and its messages. `operate`: stop, restart, hold it.
`approve`: decide what an agent asks approval for.
"""

PERSONAL: Final[tuple[Verb, ...]] = ("inspect", "operate", "approve")
"""The rights of operators. No client has them unless a list names it."""

VERBS: Final[tuple[Verb, ...]] = ("read", "write", "invoke", "subscribe", *PERSONAL)


@attrs.frozen
class Principal:
    """An authenticated client: its `name`, the `scheme` that identified it, and its `scopes`."""

    name: str
    scheme: str
    scopes: tuple[str, ...] = ()


@attrs.frozen
class Certificate:
    """A client certificate that TLS has verified.

    `subject` is its distinguished name as text. `names` are its subject alternative names, or its common name
    if it has none. `fingerprint` is the SHA-256 of its DER form in lower-case hexadecimal digits.
    """

    subject: str
    names: tuple[str, ...]
    fingerprint: str


@attrs.frozen
class RequestContext:
    """A request or upgrade, reduced to the data that access control needs.

    `headers` have lower-case names. `peer` is the client's address, `secure` whether the request came over
    TLS, `host` the value of its Host header (None if absent), and `query` the part of its address after the
    `?`. `reads` is whether it is an HTTP request that only reads (GET, HEAD). `repr` shows credentials in the
    headers as `***` and omits the query.
    """

    headers: Headers = attrs.field(converter=hide)
    peer: str
    secure: bool
    host: str | None
    certificate: Certificate | None = None
    query: str = attrs.field(default="", repr=False)
    reads: bool = False

    @classmethod
    def of(
        cls,
        headers: Headers,
        peer: str,
        *,
        secure: bool,
        certificate: Certificate | None = None,
        query: str = "",
        reads: bool = False,
    ) -> RequestContext:
        """Return the context for these headers; two Host headers make `host` "", which is then refused."""
        headers = hide(headers)
        hosts = [value for name, value in headers if name == b"host"]
        host = None if not hosts else hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        return cls(headers, peer, secure, host, certificate, query, reads)

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all headers of that name."""
        return [value for each, value in self.headers if each == name]


@attrs.frozen
class Refusal:
    """A refused request: an HTTP `status` (400, 401, 403, 429), a short `reason`, and headers of the answer.

    The reason never names the part of the credentials that is wrong: that would help guessing.
    """

    status: int
    reason: str
    headers: Headers = ()
    retry_in: float | None = None

    @property
    def error(self) -> AgentError:
        """The exception that is equivalent to the refusal."""
        if self.status == 401:
            return Unauthorized(self.reason)
        if self.status == 403:
            return Forbidden(self.reason)
        return RateLimited(self.retry_in) if self.status == 429 else InvalidInput(self.reason)


# --- parsing an Authorization header (RFC 9110, 11.6.2; RFC 7617; RFC 6750). Nothing here raises: what a
# client sends is data, and a malformed header is answered with 400

LONGEST: Final = 1 << 13
"""Bytes of an Authorization header that are accepted; real tokens are shorter."""

_SCHEME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_BASE64: Final = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class Malformed(Enum):
    """The type of `MALFORMED`."""

    MALFORMED = "malformed"


MALFORMED: Final = Malformed.MALFORMED
"""Stands for an Authorization header that cannot be parsed, and for more than one of them."""


@attrs.frozen
class AuthorizationHeader:
    """Parsed Authorization header: the scheme in lower case, and the credentials after it."""

    # not shown: a client that leaves the scheme out sends the secret in its place
    kind: str = attrs.field(repr=False)
    value: SecretBytes


def authorization_in(request: RequestContext) -> AuthorizationHeader | Malformed | None:
    """Return the credentials of a request, or None if it has none.

    `Authorization: null` counts as none: kotlin-wot's HTTP client sends it when it has no credentials. Two
    Authorization headers are malformed, because proxies and servers disagree on which of them counts.
    """
    headers = request.values(b"authorization")
    if not headers or [each.strip(b" \t") for each in headers] == [b"null"]:
        return None
    return MALFORMED if len(headers) > 1 else parse_authorization(headers[0])


def token_in_query(request: RequestContext) -> AuthorizationHeader | Malformed | None:
    """Return the bearer token in the parameter `token` of a request's address, or None if there is none."""
    found = parse_qs(request.query[:LONGEST], keep_blank_values=True).get("token")
    if found is None:
        return None
    return MALFORMED if len(found) > 1 else AuthorizationHeader("bearer", SecretBytes(found[0].encode()))


def parse_authorization(header: bytes) -> AuthorizationHeader | Malformed:
    """Parse the value of one Authorization header."""
    if len(header) > LONGEST:
        return MALFORMED
    text = SecretBytes(header.strip(b" \t"))
    space = text.find(b" ")
    end = len(text) if space < 0 else space
    if not _SCHEME.fullmatch(text, 0, end):
        return MALFORMED
    return AuthorizationHeader(text[:end].decode("ascii").lower(), SecretBytes(text[end:].strip(b" ")))


def basic_of(value: bytes) -> tuple[SecretBytes, SecretBytes] | None:
    """Return the user and the password in Basic credentials (RFC 7617), or None if they are malformed."""
    if not _BASE64.fullmatch(value):
        return None
    text = SecretBytes(binascii.a2b_base64(value))
    colon = text.find(b":")
    return None if colon < 0 else (SecretBytes(text[:colon]), SecretBytes(text[colon + 1 :]))


def is_token(value: bytes) -> bool:
    """Return whether a value is a `b64token` (RFC 6750, 2.1), as Bearer credentials are."""
    return _TOKEN.fullmatch(value) is not None
