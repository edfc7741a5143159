"""Who asks, what they bring along, and what they are told when they are not let in."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from lmos_actors._errors import AgentError, Forbidden, InvalidInput, RateLimited, Unauthorized
from lmos_actors._hidden import Headers as Headers, hide

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
        """Give the values of all headers of that name."""
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
