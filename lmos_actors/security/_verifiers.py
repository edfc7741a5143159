"""The schemes at work: from what was presented to who it is, and whether that still holds.

Each verifier keeps digests only, reads its secrets again where they have changed, and answers None for
everything that is not good, whatever is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from lmos_actors.errors import ConfigError

from ._presented import Certificate, Given, Principal, basic_of, is_token
from ._schemes import ClientCertificates, certificate_rule, check_name
from ._secrets import Reference, SecretSource, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmos_actors._core import SecretBytes

    from ._schemes import Basic, Bearer, Rules
    from ._secrets import Blind


@attrs.frozen
class Proof:
    """Why somebody was let in: asked again when secrets have changed. `until` is Unix time, None for ever."""

    principal: Principal
    verifier: Verifier
    key: bytes = attrs.field(repr=False)
    until: float | None = None


class Verifier(Protocol):
    """One scheme of a node."""

    kind: str
    """The scheme in an Authorization header, in lower case; empty where none is needed."""
    challenge: bytes
    """What a refusal says in WWW-Authenticate; empty for nothing."""

    def verify(self, given: Given, wall: float) -> Proof | None:
        """Return who it is, None where the credentials are not good."""
        ...

    def holds(self, proof: Proof) -> bool:
        """Whether a proof that this verifier gave is still one; its time is looked at elsewhere."""
        ...

    def look(self) -> bool:
        """Read what has changed; whether anything that was good may be so no longer. Blocks on the disk."""
        ...

    def troubles(self) -> list[str]:
        """Return what could not be read, or is wrong with it. Secrets are not repeated."""
        ...


class _Source:
    """One reference of one principal, and the digests of what was read there."""

    def __init__(self, name: str, reference: Reference) -> None:
        self.name = name
        self.source = SecretSource(reference)
        self.digests: tuple[bytes, ...] = ()
        self.wrong: str | None = None


class Digests:
    """Secrets of principals, known by their digests: what Basic and Bearer have in common."""

    def __init__(
        self,
        named: Mapping[str, tuple[Reference, ...]],
        digest: Callable[[str, bytes], bytes | None],
        shape: str,
    ) -> None:
        self._digest = digest
        self._shape = shape
        self._sources = [_Source(name, each) for name, references in named.items() for each in references]
        self.table: dict[bytes, str] = {}
        self._shared: list[str] = []

    def look(self) -> bool:
        """Read what has changed; whether the table is another."""
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

    def _read(self, each: _Source) -> bool:
        before, each.wrong = each.digests, None
        value = each.source.read()
        found = () if value is None else tuple(self._digest(each.name, line) for line in lines_of(value))
        if None in found:
            each.wrong = f"{each.source.reference}: {self._shape}"
        each.digests = tuple(digest for digest in found if digest is not None)
        return each.digests != before

    def troubles(self) -> list[str]:
        """Return what could not be read, or is wrong with it."""
        found = [
            trouble for each in self._sources for trouble in (each.source.trouble, each.wrong) if trouble
        ]
        return [*found, *self._shared]


class BasicVerifier:
    """User and password."""

    kind = "basic"
    challenge = b'Basic realm="lmos-actors", charset="UTF-8"'

    def __init__(self, scheme: Basic, blind: Blind) -> None:
        self._blind = blind
        self._digests = Digests(scheme.users, lambda name, line: blind(name.encode(), line), "is no password")

    def verify(self, given: Given, wall: float) -> Proof | None:
        found = basic_of(given.value)
        if found is None:
            return None
        digest = self._blind(*found)
        name = self._digests.table.get(digest)
        return None if name is None else Proof(Principal(name, self.kind), self, digest)

    def holds(self, proof: Proof) -> bool:
        return self._digests.table.get(proof.key) == proof.principal.name

    def look(self) -> bool:
        return self._digests.look()

    def troubles(self) -> list[str]:
        return self._digests.troubles()


class BearerVerifier:
    """Tokens that are known beforehand."""

    kind = "bearer"
    challenge = b'Bearer realm="lmos-actors"'

    def __init__(self, scheme: Bearer, blind: Blind) -> None:
        self._blind = blind
        self._digests = Digests(
            scheme.tokens,
            lambda _, line: blind(line) if is_token(line) else None,
            "holds characters that no bearer token can have",
        )

    def verify(self, given: Given, wall: float) -> Proof | None:
        digest = self._blind(given.value)
        name = self._digests.table.get(digest)
        return None if name is None else Proof(Principal(name, self.kind), self, digest)

    def holds(self, proof: Proof) -> bool:
        return self._digests.table.get(proof.key) == proof.principal.name

    def look(self) -> bool:
        return self._digests.look()

    def troubles(self) -> list[str]:
        return self._digests.troubles()


class CertificateVerifier:
    """Certificates that TLS has verified."""

    kind = ""
    challenge = b""

    def __init__(self, scheme: ClientCertificates) -> None:
        given = scheme.principals
        self._source = SecretSource(given) if isinstance(given, Reference) else None
        self._wrong: list[str] = []
        self._table: dict[str, str] = {}
        if not isinstance(given, Reference):
            self._take(_pairs(given))

    def verify_certificate(self, certificate: Certificate) -> Proof | None:
        """Return whose it is, None where it is nobody's."""
        rules = (f"sha256:{certificate.fingerprint}", *(f"name:{name.lower()}" for name in certificate.names))
        for rule in rules:
            name = self._table.get(rule)
            if name is not None:
                return Proof(Principal(name, "certificate"), self, rule.encode())
        return None

    def verify(self, given: Given, wall: float) -> Proof | None:
        return None

    def holds(self, proof: Proof) -> bool:
        return self._table.get(proof.key.decode()) == proof.principal.name

    def look(self) -> bool:
        if self._source is None or not self._source.may_have_changed():
            return False
        before, self._wrong = self._table, []
        value = self._source.read()
        found = (
            [] if value is None else [_rule_of(line) for line in lines_of(value) if not line.startswith(b"#")]
        )
        if None in found:
            line = found.index(None) + 1
            self._wrong.append(f"{self._source.reference}: entry {line} is no name and certificate")
        self._take(pair for pair in found if pair is not None)
        return self._table != before

    def _take(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._table = {}
        for name, rule in pairs:
            holder = self._table.setdefault(rule, name)
            if holder != name:
                self._wrong.append(f"{holder} and {name} have the same certificate: it counts for {holder}")

    def troubles(self) -> list[str]:
        trouble = None if self._source is None else self._source.trouble
        return [*([trouble] if trouble else []), *self._wrong]


def _pairs(rules: Rules) -> Iterable[tuple[str, str]]:
    return ((name, rule) for name, several in rules.items() for rule in several)


def _rule_of(line: SecretBytes) -> tuple[str, str] | None:
    name, _, rule = line.decode("utf-8", "replace").strip().rpartition(" ")
    try:
        return check_name(name.strip()), certificate_rule(rule)
    except ConfigError:
        return None
