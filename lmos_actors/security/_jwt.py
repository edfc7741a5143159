"""Signed tokens: which key, which algorithm, and every claim looked at. The library is imported when needed."""

from __future__ import annotations

import binascii
import json
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors._errors import ConfigError

from ._references import SecretSource
from ._schemes import SYMMETRIC
from ._verifiers import Proof
from ._who import Principal

if TYPE_CHECKING:
    from lmos_actors._hidden import SecretBytes

    from ._authorization import Given
    from ._blinding import Blind
    from ._schemes import Jwt

MOST_KEYS: Final = 100
KEPT: Final = (
    1024  # tokens that are known to be good: checking a signature anew takes a hundred times as long
)
MOST_SCOPES: Final = 256
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth")
_KINDS: Final = {"ES": "EC", "RS": "RSA", "PS": "RSA", "HS": "oct", "Ed": "OKP"}
_CURVES: Final = {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
}


@attrs.frozen
class _Key:
    """One key of the set: `digest` tells it from others, `algorithms` are those it may be used with."""

    digest: bytes
    made: Any = attrs.field(repr=False)
    algorithms: tuple[str, ...]


def _library() -> Any:
    try:
        from joserfc import jwk, jws, jwt
    except ImportError:
        raise ConfigError("signed tokens need the extra auth: pip install 'lmos-actors[auth]'") from None
    return jwk, jws, jwt


class JwtVerifier:
    """Tokens signed by one issuer, for one audience, not expired."""

    kind = "bearer"
    challenge = b'Bearer realm="lmos-actors"'

    def __init__(self, scheme: Jwt, blind: Blind) -> None:
        self._jwk, self._jws, self._jwt = _library()
        self._scheme = scheme
        self._blind = blind
        self._source = SecretSource(scheme.keys)
        self._keys: dict[str | None, _Key] = {}
        self._wrong: str | None = None
        self._good: OrderedDict[bytes, Proof] = OrderedDict()

    # ---- keys

    def look(self) -> bool:
        if not self._source.may_have_changed():
            return False
        before = {kid: key.digest for kid, key in self._keys.items()}
        value = self._source.read()
        self._wrong = None
        self._keys = {} if value is None else self._read(value)
        changed = before != {kid: key.digest for kid, key in self._keys.items()}
        if changed:
            self._good.clear()
        return changed

    def troubles(self) -> list[str]:
        return [each for each in (self._source.trouble, self._wrong) if each]

    def holds(self, proof: Proof) -> bool:
        return any(key.digest == proof.key for key in self._keys.values())

    def _read(self, value: SecretBytes) -> dict[str | None, _Key]:
        members = _object(value)
        listed = None if members is None else members.get("keys")
        if not isinstance(listed, list):
            return self._reject("is no JSON Web Key Set")
        entries = cast("list[object]", listed)
        if len(entries) > MOST_KEYS:
            return self._reject(f"has more than {MOST_KEYS} keys")
        found: dict[str | None, _Key] = {}
        for at, entry in enumerate(entries):
            key = self._key(cast("dict[str, Any]", entry)) if isinstance(entry, dict) else None
            kid = cast("dict[str, Any]", entry).get("kid") if isinstance(entry, dict) else None
            if key is None or not isinstance(kid, str | None):
                self._reject(f"key {at + 1} is none that is accepted here")
            elif kid in found:
                self._reject(f"key {at + 1} has the kid of another")
            else:
                found[kid] = key
        return found

    def _reject(self, why: str) -> dict[str | None, _Key]:
        self._wrong = self._wrong or f"{self._scheme.keys}: {why}"
        return {}

    def _key(self, entry: dict[str, Any]) -> _Key | None:
        """Make a key, None where it cannot be one for the algorithms accepted here."""
        shared = self._scheme.algorithms[0] in SYMMETRIC
        if entry.get("use", "sig") != "sig" or (not shared and any(word in entry for word in _PRIVATE)):
            return None
        algorithms = tuple(each for each in self._scheme.algorithms if _suits(entry, each))
        if not algorithms:
            return None
        try:
            made = self._jwk.import_key({**entry, "use": "sig"})
        except Exception:  # the library has errors of many kinds for what is no key
            return None
        return _Key(self._blind(json.dumps(entry, sort_keys=True).encode()), made, algorithms)

    # ---- tokens

    def verify(self, given: Given, wall: float) -> Proof | None:
        """Say who it is, None where the token is not good."""
        digest = self._blind(given.value)
        proof = self._good.get(digest)
        if proof is not None:
            self._good.move_to_end(digest)
            return proof if _is_before(wall, proof.until) else None
        proof = self._verified(given.value, wall)
        if proof is not None:
            self._good[digest] = proof
            while len(self._good) > KEPT:
                self._good.popitem(last=False)
        return proof

    def _verified(self, token: SecretBytes, wall: float) -> Proof | None:
        header = header_of(token)
        key = None if header is None else self._key_for(header)
        if header is None or key is None:
            return None
        claims = self._claims(token, key, header["alg"], wall)
        return None if claims is None else self._proof(claims, key)

    def _key_for(self, header: dict[str, Any]) -> _Key | None:
        """Choose the key by `kid`; a token that names none is good only where there is no choice."""
        alg, kid = header.get("alg"), header.get("kid")
        if "crit" in header or not isinstance(kid, str | None):
            return None
        if kid is None:
            key = next(iter(self._keys.values())) if len(self._keys) == 1 else None
        else:
            key = self._keys.get(kid)
        return key if key is not None and alg in key.algorithms else None

    def _claims(self, token: SecretBytes, key: _Key, alg: str, wall: float) -> dict[str, Any] | None:
        registry = self._jwt.JWTClaimsRegistry(
            now=int(wall),
            leeway=math.ceil(self._scheme.leeway),
            iss={"essential": True, "value": self._scheme.issuer},
            aud={"essential": True, "value": self._scheme.audience},
            exp={"essential": True},
        )
        signatures = self._jws.JWSRegistry(algorithms=[alg])
        try:
            read = self._jwt.decode(token, key.made, algorithms=[alg], registry=signatures)
            registry.validate(read.claims)  # nothing of the claims is looked at before this
        except Exception:  # of many kinds, all of which mean the same
            return None
        return cast("dict[str, Any]", read.claims)

    def _proof(self, claims: dict[str, Any], key: _Key) -> Proof | None:
        name, expires = claims.get(self._scheme.principal), claims.get("exp")
        if not isinstance(name, str) or not 0 < len(name) <= 256 or not name.isprintable():
            return None
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            return None
        scopes = scopes_of(claims.get(self._scheme.scopes))
        until = min(float(expires), 1e15) + self._scheme.leeway
        return Proof(Principal(name, "jwt", scopes), self, key.digest, until)


def header_of(token: bytes) -> dict[str, Any] | None:
    """Read the header of a signed token in compact form; None where it is none."""
    parts = token.split(b".")
    if len(parts) != 3 or not all(parts):
        return None
    first = parts[0]
    try:
        text = binascii.a2b_base64(
            first.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(first) % 4), strict_mode=True
        )
    except ValueError:
        return None
    return None if b"+" in first or b"/" in first else _object(text)


def scopes_of(claim: object) -> tuple[str, ...]:
    """Read a claim of scopes: text with spaces between (RFC 8693), or a list of texts."""
    listed = claim.split(" ") if isinstance(claim, str) else claim
    if not isinstance(listed, list):
        return ()
    words = [each for each in cast("list[object]", listed) if isinstance(each, str) and each]
    return tuple(words[:MOST_SCOPES])


def _is_before(wall: float, until: float | None) -> bool:
    return until is None or wall < until


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _suits(entry: dict[str, Any], algorithm: str) -> bool:
    """Whether a key may be used with the algorithm: of its kind, on its curve, and not made for another."""
    if entry.get("kty") != _KINDS[algorithm[:2]] or entry.get("alg", algorithm) != algorithm:
        return False
    curve = _CURVES.get(algorithm)
    return curve is None or entry.get("crv") == curve
