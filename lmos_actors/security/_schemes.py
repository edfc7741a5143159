"""How a node finds out who asks: the schemes, as they are configured and as a description names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

import attrs

from lmos_actors.errors import ConfigError, nearest
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
Written: TypeAlias = "str | Reference | Sequence[str | Reference]"
"""References of one principal: `env:NAME` or `file:PATH`, or several of them while one replaces the other."""


def is_a(value: object, *kinds: type) -> bool:
    """Return whether a value is what its type says: whoever wrote it may run no type checker."""
    return isinstance(value, kinds)


def check_name(name: object) -> str:
    """Check the name of a principal. Raises ConfigError."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 128
        or not name.isprintable()
        or name != name.strip()
    ):
        raise ConfigError("the name of a principal is printable text of 1 to 128 characters")
    if name in (ANYONE, AUTHENTICATED) or name.startswith(SCOPE):
        raise ConfigError(f"no principal can be named {name!r}: the word has a meaning in access lists")
    return name


def reference_of(written: object) -> Reference:
    """Make a reference of its text; one that is made already stays."""
    return written if isinstance(written, Reference) else Reference.parse(written)


def references_of(written: Written) -> tuple[Reference, ...]:
    """Make the references of one principal. Raises ConfigError where there is none, or another thing."""
    if isinstance(written, str | Reference) or not is_a(written, Sequence):
        return (reference_of(written),)
    found = tuple(map(reference_of, written))
    if not found:
        raise ConfigError("a principal without any secret can never be let in: remove the name")
    return found


def named(written: Mapping[str, Written]) -> References:
    """Make the references of all principals of a scheme. Raises ConfigError."""
    if not is_a(written, Mapping):
        raise ConfigError("a mapping of names to references is needed, such as {'alice': 'env:ALICE'}")
    return {check_name(name): references_of(each) for name, each in written.items()}


def _users(written: Mapping[str, Written]) -> References:
    found = named(written)
    if any(":" in name for name in found):
        raise ConfigError("the name of a user cannot hold a colon")
    return found


@attrs.frozen
class NoSec:
    """Nobody is asked who they are. Beside other schemes: who presents nothing is let in, as nobody."""

    name: ClassVar[str] = "nosec_sc"

    def definition(self) -> SecurityScheme:
        """Return its entry in `securityDefinitions`."""
        return SecurityScheme(scheme="nosec")


@attrs.frozen
class Basic:
    """User and password (RFC 7617): `users` gives the references to each user's password.

    `Basic({"alice": "env:ALICE_PASSWORD"})`. A file may hold several, one on each line. Raises ConfigError
    where a reference is none.
    """

    name: ClassVar[str] = "basic_sc"
    users: References = attrs.field(converter=_users)

    def definition(self) -> SecurityScheme:
        """Return its entry in `securityDefinitions`."""
        return SecurityScheme(scheme="basic", location="header")


@attrs.frozen
class Bearer:
    """Tokens that are known beforehand (RFC 6750): `tokens` gives the references to each principal's.

    `Bearer({"alice": ("env:OLD", "env:NEW")})`. A file may hold several, one on each line. Raises ConfigError
    where a reference is none.
    """

    name: ClassVar[str] = "bearer_sc"
    tokens: References = attrs.field(converter=named)

    def definition(self) -> SecurityScheme:
        """Return its entry in `securityDefinitions`."""
        return SecurityScheme(scheme="bearer", location="header", extra={"format": "opaque"})


def _algorithms(written: str | Sequence[str]) -> tuple[str, ...]:
    found = (written,) if isinstance(written, str) else tuple(written)
    known = (*ASYMMETRIC, *SYMMETRIC)
    for each in found:
        if each not in known:
            near = nearest(each, known)
            hint = f", did you mean {near!r}?" if near else f": one of {', '.join(known)}"
            raise ConfigError(f"the algorithm {each!r} is not accepted{hint}")
    if not found:
        raise ConfigError("algorithms names none: no token could be accepted")
    if len({each in SYMMETRIC for each in found}) > 1:
        raise ConfigError(
            "algorithms mixes those with a shared key (HS) and those with a public one: a token signed with "
            "the public key as if it were shared could be accepted"
        )
    return found


@attrs.frozen(kw_only=True)
class Jwt:
    """Signed tokens (RFC 7519) that another place issues, with an audience and an expiry.

    `keys` refers to a JSON Web Key Set with the issuer's public keys; a token names one by its `kid`. The
    file is read again where it has changed, so keys come and go without a restart. A token must have been
    made by `issuer`, for `audience`, with one of `algorithms`, and must have an expiry; `leeway` is the
    seconds that clocks may differ by. `principal` and `scopes` are the claims that say who it is, and what
    for. Needs the extra `auth`. Raises ConfigError.
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
        """Return its entry in `securityDefinitions`."""
        alg = self.algorithms[0] if len(self.algorithms) == 1 else None
        more = {} if alg is None else {"alg": alg}
        return SecurityScheme(scheme="bearer", location="header", extra={"format": "jwt", **more})


HEX: Final = frozenset("0123456789abcdef")


def certificate_rule(text: object) -> str:
    """Read `sha256:` and a fingerprint, or `name:` and a name, as it is compared. Raises ConfigError."""
    kind, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind == "name" and rest and rest.isprintable():
        return f"name:{rest.lower()}"
    digits = rest.replace(":", "").lower()
    if kind == "sha256" and len(digits) == 64 and HEX.issuperset(digits):
        return f"sha256:{digits}"
    raise ConfigError("a certificate is named by sha256: and 64 hexadecimal digits, or by name: and its name")


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
    """Certificates that TLS has verified; `principals` says whose they are.

    `ClientCertificates({"alice": "sha256:<fingerprint>", "bob": "name:bob.example"})`, or the reference to
    a file with such lines (`alice sha256:...`), which is read again where it has changed: a line that is
    taken away is a certificate that is revoked. A name counts only as far as the authority that signed the
    certificate is trusted to give it to nobody else. Raises ConfigError.
    """

    name: ClassVar[str] = "certificate_sc"
    principals: Rules | Reference = attrs.field(converter=_rules)

    def definition(self) -> SecurityScheme:
        """Return its entry in `securityDefinitions`: TLS agrees on it, before anything of HTTP is said."""
        return SecurityScheme(scheme="auto", description="A client certificate, presented to TLS.")


Scheme: TypeAlias = "NoSec | Basic | Bearer | Jwt | ClientCertificates"


def principals_of(scheme: Scheme) -> tuple[str, ...] | None:
    """Return the names that the scheme can find, None where nobody knows them beforehand."""
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
