"""Authentication schemes: their configuration, and their entries in a Thing Description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

import attrs

from lmos_actors.errors import ConfigError, hint_at
from lmos_actors.protocol.td import SecurityScheme

from ._secrets import Reference

ANYONE: Final = "anyone"
AUTHENTICATED: Final = "authenticated"
SCOPE: Final = "scope:"

ASYMMETRIC: Final = (
    "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA", "Ed25519",
)  # fmt: skip
SYMMETRIC: Final = ("HS256", "HS384", "HS512")
LONGEST_LEEWAY: Final = 300.0

References: TypeAlias = "Mapping[str, tuple[Reference, ...]]"
ReferenceInput: TypeAlias = "str | Reference | Sequence[str | Reference]"
"""References of one principal: `env:NAME` or `file:PATH`, or several while one secret replaces another."""


def is_a(value: object, *kinds: type) -> bool:
    """Return the result of `isinstance` without narrowing the type, for checks of annotated arguments."""
    return isinstance(value, kinds)


def check_name(name: object) -> str:
    """Validate the name of a principal and return it. Raises ConfigError."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 128
        or not name.isprintable()
        or name != name.strip()
    ):
        raise ConfigError("the name of a principal is printable text of 1 to 128 characters")
    if name in (ANYONE, AUTHENTICATED) or name.startswith(SCOPE):
        raise ConfigError(f"a principal cannot be named {name!r}: access lists reserve it")
    return name


def reference_of(written: object) -> Reference:
    """Parse a text into a reference; a `Reference` is returned unchanged. Raises ConfigError."""
    return written if isinstance(written, Reference) else Reference.parse(written)


def references_of(written: ReferenceInput) -> tuple[Reference, ...]:
    """Return the references of one principal. Raises ConfigError if there are none, or if one is invalid."""
    if isinstance(written, str | Reference) or not is_a(written, Sequence):
        return (reference_of(written),)
    found = tuple(map(reference_of, written))
    if not found:
        raise ConfigError("a principal needs a secret: add a reference, or remove the name")
    return found


def references_by_name(written: Mapping[str, ReferenceInput]) -> References:
    """Return the references of a scheme's principals, by name. Raises ConfigError."""
    if not is_a(written, Mapping):
        raise ConfigError("a mapping of names to references is needed, such as {'alice': 'env:ALICE'}")
    return {check_name(name): references_of(each) for name, each in written.items()}


def _users(written: Mapping[str, ReferenceInput]) -> References:
    found = references_by_name(written)
    if any(":" in name for name in found):
        raise ConfigError("the name of a user cannot hold a colon")
    return found


@attrs.frozen
class NoSec:
    """No authentication. Next to other schemes: clients without credentials are admitted as anonymous."""

    name: ClassVar[str] = "nosec_sc"

    def definition(self) -> SecurityScheme:
        """Return the scheme's entry in `securityDefinitions`."""
        return SecurityScheme(scheme="nosec")


@attrs.frozen
class Basic:
    """Users and passwords (RFC 7617): `users` maps each user to references to the password.

    `Basic({"alice": "env:ALICE_PASSWORD"})`. A file may hold several passwords, one on each line. Raises
    ConfigError for an invalid name or reference.
    """

    name: ClassVar[str] = "basic_sc"
    users: References = attrs.field(converter=_users)

    def definition(self) -> SecurityScheme:
        """Return the scheme's entry in `securityDefinitions`."""
        return SecurityScheme(scheme="basic", location="header")


@attrs.frozen
class Bearer:
    """Configured bearer tokens (RFC 6750): `tokens` maps each principal to references to its tokens.

    `Bearer({"alice": ("env:OLD", "env:NEW")})`. A file may hold several tokens, one on each line. Raises
    ConfigError for an invalid name or reference.
    """

    name: ClassVar[str] = "bearer_sc"
    tokens: References = attrs.field(converter=references_by_name)

    def definition(self) -> SecurityScheme:
        """Return the scheme's entry in `securityDefinitions`."""
        return SecurityScheme(scheme="bearer", location="header", extra={"format": "opaque"})


def _algorithms(written: str | Sequence[str]) -> tuple[str, ...]:
    found = (written,) if isinstance(written, str) else tuple(written)
    known = (*ASYMMETRIC, *SYMMETRIC)
    for each in found:
        if each not in known:
            hint = hint_at(each, known) or f": one of {', '.join(known)}"
            raise ConfigError(f"the algorithm {each!r} is not accepted{hint}")
    if not found:
        raise ConfigError("algorithms is empty, so no token could be accepted: name at least one")
    if len({each in SYMMETRIC for each in found}) > 1:
        raise ConfigError(
            "algorithms mixes shared keys (HS) with public keys: a token signed with the public key as if it "
            "were shared could be accepted; list one kind only"
        )
    return found


@attrs.frozen(kw_only=True)
class Jwt:
    """Signed tokens (RFC 7519) of an external issuer, for one audience, with an expiry.

    `keys` refers to a JSON Web Key Set with the issuer's public keys; a token names one by its `kid`. The
    file is read again when it changes, so keys are rotated without a restart. A token must come from
    `issuer`, be for `audience`, be signed with one of `algorithms`, and have an expiry; `leeway` is the
    allowed difference of clocks in seconds. `principal` and `scopes` name the claims with the client's name
    and its scopes. The extra `auth` is needed. Raises ConfigError.
    """

    name: ClassVar[str] = "jwt_sc"
    keys: Reference = attrs.field(converter=reference_of)
    issuer: str
    audience: str
    algorithms: tuple[str, ...] = attrs.field(default=("ES256",), converter=_algorithms)
    leeway: float = 30.0
    principal: str = "sub"
    scopes: str = "scope"

    def __attrs_post_init__(self) -> None:
        for word in ("issuer", "audience", "principal", "scopes"):
            if not isinstance(getattr(self, word), str) or not getattr(self, word):
                raise ConfigError(f"{word} must be text, and not empty")
        if not 0 <= self.leeway <= LONGEST_LEEWAY:
            raise ConfigError(f"leeway must be 0 to {LONGEST_LEEWAY:g} seconds")

    def definition(self) -> SecurityScheme:
        """Return the scheme's entry in `securityDefinitions`."""
        alg = self.algorithms[0] if len(self.algorithms) == 1 else None
        more = {} if alg is None else {"alg": alg}
        return SecurityScheme(scheme="bearer", location="header", extra={"format": "jwt", **more})


HEX: Final = frozenset("0123456789abcdef")


def certificate_rule(text: object) -> str:
    """Return a normalized rule: `sha256:` and a fingerprint, or `name:` and a name. Raises ConfigError."""
    kind, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind == "name" and rest and rest.isprintable():
        return f"name:{rest.lower()}"
    digits = rest.replace(":", "").lower()
    if kind == "sha256" and len(digits) == 64 and HEX.issuperset(digits):
        return f"sha256:{digits}"
    raise ConfigError("write a certificate as sha256: and 64 hexadecimal digits, or as name: and its name")


Rules: TypeAlias = "Mapping[str, tuple[str, ...]]"


def _are_several(written: object) -> bool:
    return isinstance(written, Sequence) and not isinstance(written, str)


def _rules(written: Mapping[str, str | Sequence[str]] | str | Reference) -> Rules | Reference:
    if isinstance(written, str | Reference):
        return reference_of(written)
    if not is_a(written, Mapping):
        raise ConfigError("a mapping of names to certificates is needed, or the reference to a file of them")
    return {
        check_name(name): tuple(map(certificate_rule, rules if _are_several(rules) else (rules,)))
        for name, rules in written.items()
    }


@attrs.frozen
class ClientCertificates:
    """Client certificates that TLS has verified; `principals` maps each principal to its certificates.

    `ClientCertificates({"alice": "sha256:<fingerprint>", "bob": "name:bob.example"})`, or a reference to a
    file of such lines (`alice sha256:...`), read again when it changes: removing a line revokes the
    certificate. Use `name:` only where the signing authority is trusted to issue that name to one holder.
    Raises ConfigError.
    """

    name: ClassVar[str] = "certificate_sc"
    principals: Rules | Reference = attrs.field(converter=_rules)

    def definition(self) -> SecurityScheme:
        """Return the entry in `securityDefinitions`: `auto`, as TLS negotiates it before any HTTP."""
        return SecurityScheme(scheme="auto", description="A client certificate, presented to TLS.")


Scheme: TypeAlias = "NoSec | Basic | Bearer | Jwt | ClientCertificates"


def principals_of(scheme: Scheme) -> tuple[str, ...] | None:
    """Return the principals that a scheme can produce, or None if they are not known in advance."""
    match scheme:
        case NoSec():
            return ()
        case Basic():
            return tuple(scheme.users)
        case Bearer():
            return tuple(scheme.tokens)
        case ClientCertificates() if not isinstance(scheme.principals, Reference):
            return tuple(scheme.principals)
        case _:
            return None
