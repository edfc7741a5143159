"""Signed tokens: which key, which algorithm, every claim looked at. The library is imported when needed."""

from __future__ import annotations

import binascii
import json
import math
import re
from collections import OrderedDict
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors._core import SecretBytes
from lmos_actors.errors import ConfigError

from ._presented import Principal
from ._schemes import SYMMETRIC
from ._secrets import SecretSource
from ._verifiers import Proof

if TYPE_CHECKING:
    from ._presented import Given
    from ._schemes import Jwt
    from ._secrets import Blind

MOST_KEYS: Final = 100
KEPT: Final = (
    1024  # tokens that are known to be good: checking a signature anew takes a hundred times as long
)
SHORTEST_RSA: Final = 256  # bytes
SHORTEST_SHARED: Final = 32
MOST_SCOPES: Final = 256
FOREVER: Final = 10**12  # Unix time, in the year 33658
_BASE64URL: Final = re.compile(rb"[A-Za-z0-9_-]*")
_TO_BASE64: Final = bytes.maketrans(b"-_", b"+/")
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth")
_PARTS: Final = ("kty", "crv", "x", "y", "n", "e", "k")
_KINDS: Final = {"ES": "EC", "RS": "RSA", "PS": "RSA", "HS": "oct", "Ed": "OKP"}
_CURVES: Final = {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
}


class _Members(dict[str, Any]):
    """A JSON object that is not shown: a set of keys may have some that are secret."""

    def __repr__(self) -> str:
        return "{...}"


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


def _signatures(jws: Any, algorithms: tuple[str, ...]) -> Any:
    """Make what checks signatures with these algorithms, and with no other."""
    # members of the header that nobody knows mean nothing (RFC 7515, 4); `crit` is refused by us
    found = jws.JWSRegistry(algorithms=algorithms, strict_check_header=False)
    found.algorithms = {name: copy(found.algorithms[name]) for name in algorithms}
    for each in found.algorithms.values():
        each.security_warning = None  # whoever configured the node has chosen: no word to each token
    return found


class JwtVerifier:
    """Tokens signed by one issuer, for one audience, not expired."""

    kind = "bearer"
    challenge = b'Bearer realm="lmos-actors"'

    def __init__(self, scheme: Jwt, blind: Blind) -> None:
        self._jwk, self._jws, self._jwt = _library()
        self._scheme = scheme
        self._blind = blind
        self._signatures = _signatures(self._jws, scheme.algorithms)
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
            self._add(found, cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}, at + 1)
        return found or self._reject(f"has no key for {', '.join(self._scheme.algorithms)}")

    def _reject(self, why: str) -> dict[str | None, _Key]:
        self._wrong = self._wrong or f"{self._scheme.keys}: {why}"
        return {}

    def _add(self, found: dict[str | None, _Key], entry: dict[str, Any], number: int) -> None:
        """Take a key, unless it is for something else: a set may also have those for encryption."""
        algorithms = tuple(each for each in self._scheme.algorithms if _suits(entry, each))
        kid = entry.get("kid")
        if not algorithms:
            return
        if algorithms[0] not in SYMMETRIC and any(word in entry for word in _PRIVATE):
            self._reject(f"key {number} is a private key, and does not belong here: leave the public part")
        elif not isinstance(kid, str | None) or kid in found:
            self._reject(f"key {number} has no kid of its own")
        elif (key := self._key(entry, algorithms)) is None:
            self._reject(f"key {number} is too short, or is no key")
        else:
            found[kid] = key

    def _key(self, entry: dict[str, Any], algorithms: tuple[str, ...]) -> _Key | None:
        parts = _Members((name, entry[name]) for name in _PARTS if name in entry)
        if not _is_long_enough(parts):
            return None
        try:
            made = self._jwk.import_key(parts)
        except Exception:  # the library has errors of many kinds for what is no key
            return None
        return _Key(self._blind(SecretBytes(json.dumps(parts, sort_keys=True).encode())), made, algorithms)

    # ---- tokens

    def verify(self, given: Given, wall: float) -> Proof | None:
        """Return who it is, None where the token is not good."""
        digest = self._blind(given.value)
        proof = self._good.get(digest)
        if proof is not None:
            self._good.move_to_end(digest)
            return proof if _is_before(wall, proof.until) else None
        proof = self._verified(given.value, wall)
        if proof is None or not _is_before(wall, proof.until):
            return None
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
        try:
            read = self._jwt.decode(token, key.made, algorithms=[alg], registry=self._signatures)
            registry.validate(read.claims)  # nothing of the claims is looked at before this
        except Exception:  # of many kinds, all of which mean the same
            return None
        return cast("dict[str, Any]", read.claims)

    def _proof(self, claims: dict[str, Any], key: _Key) -> Proof | None:
        name, expires = claims.get(self._scheme.principal), claims.get("exp")
        if not isinstance(name, str) or not 0 < len(name) <= 256 or not name.isprintable():
            return None
        if not isinstance(expires, int | float):
            return None
        scopes = scopes_of(claims.get(self._scheme.scopes))
        until = float(min(expires, FOREVER)) + self._scheme.leeway
        return Proof(Principal(name, "jwt", scopes), self, key.digest, until)


def header_of(token: bytes) -> dict[str, Any] | None:
    """Read the header of a signed token in compact form; None where it is none."""
    parts = list(map(SecretBytes, token.split(b".")))  # whoever made a mistake has put a secret here
    if len(parts) != 3 or not all(parts):
        return None
    text = _decoded(parts[0])
    return None if text is None else _object(text)


def _decoded(raw: bytes) -> SecretBytes | None:
    """Read base64url without padding (RFC 7515, 2); None where it is not that."""
    if not _BASE64URL.fullmatch(raw):
        return None
    try:
        return SecretBytes(binascii.a2b_base64(raw.translate(_TO_BASE64) + b"=" * (-len(raw) % 4)))
    except ValueError:
        return None


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
        found = json.loads(text, object_pairs_hook=_Members)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _suits(entry: dict[str, Any], algorithm: str) -> bool:
    """Whether a key may be used with the algorithm: of its kind, on its curve, and not made for another."""
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return False
    if entry.get("kty") != _KINDS[algorithm[:2]] or entry.get("alg", algorithm) != algorithm:
        return False
    curve = _CURVES.get(algorithm)
    return curve is None or entry.get("crv") == curve


def _is_long_enough(entry: dict[str, Any]) -> bool:
    """Whether nobody can find the key by trying (RFC 7518, 3.2 and 3.3)."""
    if entry.get("kty") == "RSA":
        modulus = _decoded(str(entry.get("n", "")).encode())
        return modulus is not None and len(modulus.lstrip(b"\0")) >= SHORTEST_RSA
    return entry.get("kty") != "oct" or len(str(entry.get("k", ""))) * 3 // 4 >= SHORTEST_SHARED
