"""Verifiers of the schemes: they turn credentials into a principal, and check whether a proof is still valid.

A verifier keeps keyed digests instead of secrets (`_secrets.KeyedDigest`), reloads secrets that have changed,
and returns None for every rejected credential, whatever is wrong with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from lmos_actors.errors import ConfigError

from ._request import AuthorizationHeader, Certificate, Principal, basic_of, is_token
from ._schemes import ClientCertificates, certificate_rule, check_name
from ._secrets import Reference, SecretSource, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmos_actors._core import SecretBytes

    from ._schemes import Basic, Bearer, Rules
    from ._secrets import KeyedDigest
    from ._shared_token import SharedToken


@attrs.frozen
class Proof:
    """The basis of an admission, checked again when secrets change; `until` is Unix time or None."""

    principal: Principal
    verifier: Verifier
    key: bytes = attrs.field(repr=False)
    until: float | None = None


class Verifier(Protocol):
    """An authentication scheme in use, with its secrets."""

    kind: str
    """The scheme in an Authorization header, in lower case; empty where none is needed."""
    challenge: bytes
    """Value of WWW-Authenticate in refusals; empty for none."""

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        """Return the proof for valid credentials, else None; `wall` is Unix time."""
        ...

    def is_valid(self, proof: Proof) -> bool:
        """Return whether a proof of this verifier is still valid, regardless of its expiry."""
        ...

    def refresh(self) -> bool:
        """Reload changed secrets. Return whether a proof may have become invalid. Blocks on the disk."""
        ...

    def problems(self) -> list[str]:
        """Return descriptions of the secrets that could not be read or used; they contain no secret."""
        ...


class IssuedTokens(Protocol):
    """Bearer tokens that an agent issues, stores and revokes, such as those of an AgentRelay."""

    def find(self, token: str) -> str | None:
        """Return the name of the principal that has this token, or None if the token is unknown."""
        ...

    def has(self, name: str) -> bool:
        """Return whether a principal still has a token."""
        ...


ISSUED: Final = "issued"
"""The scheme of a principal that has shown an issued token."""


class IssuedTokenVerifier:
    """Verifier of tokens that are issued while the node runs."""

    kind = "bearer"
    challenge = b'Bearer realm="lmos-actors"'

    def __init__(self, tokens: IssuedTokens) -> None:
        self._tokens = tokens

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        name = self._tokens.find(credentials.value.decode("latin-1"))
        return None if name is None else Proof(Principal(name, ISSUED), self, b"")

    def is_valid(self, proof: Proof) -> bool:
        return self._tokens.has(proof.principal.name)

    def refresh(self) -> bool:
        return False

    def problems(self) -> list[str]:
        return []


SHARED: Final = "shared"
"""The scheme of a principal that has shown a shared token."""


class SharedTokenVerifier:
    """Verifier of the token shared by nodes that were started together."""

    kind = "bearer"
    challenge = b""

    def __init__(self, token: SharedToken) -> None:
        self._token = token
        self._principal = Principal(token.name, SHARED)

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        is_it = credentials.kind == self.kind and self._token.is_it(credentials.value)
        return Proof(self._principal, self, b"") if is_it else None

    def is_valid(self, proof: Proof) -> bool:
        return True

    def refresh(self) -> bool:
        return False

    def problems(self) -> list[str]:
        return []


class _SecretDigests:
    """The reference of one principal, and the digests of the secrets read there."""

    def __init__(self, name: str, reference: Reference) -> None:
        self.name = name
        self.source = SecretSource(reference)
        self.digests: tuple[bytes, ...] = ()
        self.problem: str | None = None


class SecretVerifier(ABC):
    """Verifier of configured secrets, with a table from digests of secrets to principals."""

    kind: str
    challenge: bytes

    @abstractmethod
    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None: ...

    def __init__(
        self,
        named: Mapping[str, tuple[Reference, ...]],
        digest: Callable[[str, bytes], bytes | None],
        shape: str,
    ) -> None:
        self._digest = digest
        self._shape = shape
        self._sources = [
            _SecretDigests(name, each) for name, references in named.items() for each in references
        ]
        self.table: dict[bytes, str] = {}
        self._shared: list[str] = []

    def refresh(self) -> bool:
        """Reload changed secrets. Return whether the table changed. Blocks on the disk."""
        changed = [self._read(each) for each in self._sources if each.source.may_have_changed()]
        if not any(changed):
            return False
        self.table, self._shared = {}, []
        for each in self._sources:
            for digest in each.digests:
                holder = self.table.setdefault(digest, each.name)
                if holder != each.name:
                    self._shared.append(
                        f"{holder} and {each.name} have the same secret: it counts for {holder}"
                    )
        return True

    def _read(self, each: _SecretDigests) -> bool:
        before, each.problem = each.digests, None
        value = each.source.read()
        found = () if value is None else tuple(self._digest(each.name, line) for line in lines_of(value))
        if None in found:
            each.problem = f"{each.source.reference}: {self._shape}"
        each.digests = tuple(digest for digest in found if digest is not None)
        return each.digests != before

    def problems(self) -> list[str]:
        """Return descriptions of the secrets that could not be read or used."""
        found = [
            problem for each in self._sources for problem in (each.source.problem, each.problem) if problem
        ]
        return [*found, *self._shared]

    def is_valid(self, proof: Proof) -> bool:
        return self.table.get(proof.key) == proof.principal.name

    def _proof(self, digest: bytes) -> Proof | None:
        name = self.table.get(digest)
        return None if name is None else Proof(Principal(name, self.kind), self, digest)


class BasicVerifier(SecretVerifier):
    """Verifier of users and passwords (RFC 7617)."""

    kind = "basic"
    challenge = b'Basic realm="lmos-actors", charset="UTF-8"'

    def __init__(self, scheme: Basic, digest_of: KeyedDigest) -> None:
        self._digest_of = digest_of
        super().__init__(scheme.users, lambda name, line: digest_of(name.encode(), line), "is not a password")

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        found = basic_of(credentials.value)
        return None if found is None else self._proof(self._digest_of(*found))


class BearerVerifier(SecretVerifier):
    """Verifier of configured tokens (RFC 6750)."""

    kind = "bearer"
    challenge = b'Bearer realm="lmos-actors"'

    def __init__(self, scheme: Bearer, digest_of: KeyedDigest) -> None:
        self._digest_of = digest_of
        super().__init__(
            scheme.tokens,
            lambda _, line: digest_of(line) if is_token(line) else None,
            "holds characters that no bearer token can have",
        )

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        return self._proof(self._digest_of(credentials.value))


class CertificateVerifier:
    """Verifier of client certificates whose signature TLS has checked."""

    kind = ""
    challenge = b""

    def __init__(self, scheme: ClientCertificates) -> None:
        credentials = scheme.principals
        self._source = SecretSource(credentials) if isinstance(credentials, Reference) else None
        self._problems: list[str] = []
        self.table: dict[str, str] = {}
        if not isinstance(credentials, Reference):
            self._set_rules(_pairs(credentials))

    def verify_certificate(self, certificate: Certificate) -> Proof | None:
        """Return the proof for a configured certificate, else None; a fingerprint precedes a name."""
        rules = (f"sha256:{certificate.fingerprint}", *(f"name:{name.lower()}" for name in certificate.names))
        for rule in rules:
            name = self.table.get(rule)
            if name is not None:
                return Proof(Principal(name, "certificate"), self, rule.encode())
        return None

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        return None

    def is_valid(self, proof: Proof) -> bool:
        return self.table.get(proof.key.decode()) == proof.principal.name

    def refresh(self) -> bool:
        if self._source is None or not self._source.may_have_changed():
            return False
        before, self._problems = self.table, []
        value = self._source.read()
        found = (
            [] if value is None else [_rule_of(line) for line in lines_of(value) if not line.startswith(b"#")]
        )
        if None in found:
            line = found.index(None) + 1
            self._problems.append(f"{self._source.reference}: entry {line} is not a name and a certificate")
        self._set_rules(pair for pair in found if pair is not None)
        return self.table != before

    def _set_rules(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.table = {}
        for name, rule in pairs:
            holder = self.table.setdefault(rule, name)
            if holder != name:
                self._problems.append(
                    f"{holder} and {name} have the same certificate: it counts for {holder}"
                )

    def problems(self) -> list[str]:
        problem = None if self._source is None else self._source.problem
        return [*([problem] if problem else []), *self._problems]


def _pairs(rules: Rules) -> Iterable[tuple[str, str]]:
    return ((name, rule) for name, several in rules.items() for rule in several)


def _rule_of(line: SecretBytes) -> tuple[str, str] | None:
    name, _, rule = line.decode("utf-8", "replace").strip().rpartition(" ")
    try:
        return check_name(name.strip()), certificate_rule(rule)
    except ConfigError:
        return None
