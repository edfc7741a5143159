"""JSON Web Tokens: verification of tokens in compact form against a key set (RFC 7515, 7517, 7519).

joserfc does the cryptography. This file decides which key and which algorithm it may use, because the known
attacks on JWT libraries all make the token decide. The module guarantees the following:

- **The token never chooses its algorithm.** Each key is bound, when it is loaded, to the configured
  algorithms that fit its type, curve, `use`, `key_ops` and `alg`; a token's `alg` only has to be one of
  those (RFC 8725, 3.1). So `alg: none` fits no key, and a public RSA key can't be used as an HMAC secret
  (algorithm confusion): `Jwt` refuses shared and public algorithms in one list, and `_is_usable_with`
  refuses key types.
- **The token never brings its key.** `jwk`, `jku`, `x5u` and `x5c` in a header are ignored. Only `kid`
  selects a key, by exact text, and a token without a `kid` is accepted only if the set has a single key.
- **Critical extensions are refused** (`crit`, RFC 7515, 4.1.11): none is implemented. Other unknown
  header members are ignored, as the RFC demands; hence `strict_check_header=False`.
- **Claims are read only after the signature has been verified, and `iss`, `aud`, `exp` must be
  present** (RFC 8725, 3.8, 3.9). `exp` is capped (`LATEST_EXPIRY`) before it becomes a float: a huge JSON
  integer would raise OverflowError.
- **One answer for every fault.** `verify` returns None, whatever is wrong. For hostile input, the
  library raises many unrelated exceptions (ValueError, binascii.Error, RecursionError, its own), so both
  calls of the library catch `Exception`. The reason never reaches the client.
- **No secret in a traceback.** A client may send anything in place of a token, and a key set may hold a
  shared key. So parts of tokens are `SecretBytes`, and JSON objects are `_HiddenObject`.

Checking a signature costs about a hundred times a table look-up. So a bounded number of verified tokens is
kept by keyed digest, with the time they expire; any change of the keys empties that table. The extra `auth`
is optional, so the library is imported when the first verifier is made.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors._core import Bounded, SecretBytes, read_json
from lmos_actors.errors import ConfigError

from ._request import Principal
from ._schemes import SYMMETRIC
from ._secrets import SecretSource
from ._verifiers import Proof

if TYPE_CHECKING:
    from ._request import AuthorizationHeader
    from ._schemes import Jwt
    from ._secrets import KeyedDigest

MAX_KEYS: Final = 100
MAX_CACHED_TOKENS: Final = 1024
MAX_SCOPES: Final = 256
LATEST_EXPIRY: Final = 10**12  # Unix time, in the year 33658
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


class _HiddenObject(dict[str, Any]):
    """A JSON object whose members `repr` hides, because a key set may hold secret keys."""

    def __repr__(self) -> str:
        return "{...}"


@attrs.frozen
class _Key:
    """A key of the set. `digest` identifies it; `algorithms` are those for which it may be used."""

    digest: bytes
    made: Any = attrs.field(repr=False)
    algorithms: tuple[str, ...]


def _library() -> Any:
    try:
        from joserfc import jwk, jws, jwt
    except ImportError:
        raise ConfigError("signed tokens need the extra auth: pip install 'lmos-actors[auth]'") from None
    return jwk, jws, jwt


def _signature_registry(jws: Any, algorithms: tuple[str, ...]) -> Any:
    """Return a joserfc registry that verifies with the given algorithms only."""
    # unknown header members are ignored (RFC 7515, 4); `_key_for` refuses `crit`
    found = jws.JWSRegistry(algorithms=algorithms, strict_check_header=False)
    found.algorithms = {name: copy(found.algorithms[name]) for name in algorithms}
    for each in found.algorithms.values():
        each.security_warning = None  # the configuration chose the algorithm: no warning for each token
    return found


class JwtVerifier:
    """A verifier of tokens that one issuer has signed for one audience and that have not expired."""

    kind = "bearer"
    challenge = b'Bearer realm="lmos-actors"'

    def __init__(self, scheme: Jwt, digest_of: KeyedDigest) -> None:
        self._jwk, self._jws, self._jwt = _library()
        self._scheme = scheme
        self._digest_of = digest_of
        self._signature_registry = _signature_registry(self._jws, scheme.algorithms)
        self._source = SecretSource(scheme.keys)
        self._keys: dict[str | None, _Key] = {}
        self._problem: str | None = None
        self._verified_tokens: Bounded[bytes, Proof] = Bounded(MAX_CACHED_TOKENS)

    # ---- keys

    def refresh(self) -> bool:
        if not self._source.may_have_changed():
            return False
        before = {kid: key.digest for kid, key in self._keys.items()}
        value = self._source.read()
        self._problem = None
        self._keys = {} if value is None else self._read(value)
        changed = before != {kid: key.digest for kid, key in self._keys.items()}
        if changed:
            self._verified_tokens.clear()
        return changed

    def problems(self) -> list[str]:
        return [each for each in (self._source.problem, self._problem) if each]

    def is_valid(self, proof: Proof) -> bool:
        return any(key.digest == proof.key for key in self._keys.values())

    def _read(self, value: SecretBytes) -> dict[str | None, _Key]:
        members = _json_object(value)
        listed = None if members is None else members.get("keys")
        if not isinstance(listed, list):
            return self._reject_key_set("is not a JSON Web Key Set")
        entries = cast("list[object]", listed)
        if len(entries) > MAX_KEYS:
            return self._reject_key_set(f"has more than {MAX_KEYS} keys")
        found: dict[str | None, _Key] = {}
        for at, entry in enumerate(entries):
            self._add_key(found, cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}, at + 1)
        return found or self._reject_key_set(f"has no key for {', '.join(self._scheme.algorithms)}")

    def _reject_key_set(self, why: str) -> dict[str | None, _Key]:
        self._problem = self._problem or f"{self._scheme.keys}: {why}"
        return {}

    def _add_key(self, found: dict[str | None, _Key], entry: dict[str, Any], number: int) -> None:
        """Add a key to `found` if it may be used for tokens; a set may also hold keys for encryption.

        A key that is private, malformed or without a unique `kid` rejects the key set.
        """
        algorithms = tuple(each for each in self._scheme.algorithms if _is_usable_with(entry, each))
        kid = entry.get("kid")
        if not algorithms:
            return
        if algorithms[0] not in SYMMETRIC and any(word in entry for word in _PRIVATE):
            # a private key here would let every reader of the file sign tokens
            self._reject_key_set(f"key {number} is a private key: replace it by its public part")
        elif not isinstance(kid, str | None) or kid in found:
            self._reject_key_set(f"key {number} needs a kid that no other key has")
        elif (key := self._import(entry, algorithms)) is None:
            self._reject_key_set(f"key {number} is too short or malformed")
        else:
            found[kid] = key

    def _import(self, entry: dict[str, Any], algorithms: tuple[str, ...]) -> _Key | None:
        parts = _HiddenObject((name, entry[name]) for name in _PARTS if name in entry)
        if not _is_long_enough(parts):
            return None
        try:
            made = self._jwk.import_key(parts)
        except Exception:  # the library raises unrelated types for malformed keys
            return None
        return _Key(
            self._digest_of(SecretBytes(json.dumps(parts, sort_keys=True).encode())), made, algorithms
        )

    # ---- tokens

    def verify(self, credentials: AuthorizationHeader, wall: float) -> Proof | None:
        """Return the proof of a valid token, or None for any other. `wall` is Unix time. Raises nothing."""
        digest = self._digest_of(credentials.value)
        proof = self._verified_tokens.get(digest)
        if proof is not None:
            self._verified_tokens.move_to_end(digest)
            return proof if _is_current(wall, proof.until) else None
        header = header_of(credentials.value)
        key = None if header is None else self._key_for(header)
        if header is None or key is None:
            return None
        claims = self._claims(credentials.value, key, header["alg"], wall)
        proof = None if claims is None else self._proof(claims, key)
        if proof is None or not _is_current(wall, proof.until):
            return None
        self._verified_tokens[digest] = proof
        return proof

    def _key_for(self, header: dict[str, Any]) -> _Key | None:
        """Return the key named by `kid` if it may be used with `alg`; None otherwise.

        Without `kid`, a key is returned only if the set has a single key. Trying each key would let a token
        choose.
        """
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
            read = self._jwt.decode(token, key.made, algorithms=[alg], registry=self._signature_registry)
            registry.validate(read.claims)  # no claim is read before this
        except Exception:  # the library raises unrelated types for hostile tokens
            return None
        return cast("dict[str, Any]", read.claims)

    def _proof(self, claims: dict[str, Any], key: _Key) -> Proof | None:
        name, expires = claims.get(self._scheme.principal), claims.get("exp")
        if not isinstance(name, str) or not 0 < len(name) <= 256 or not name.isprintable():
            return None
        if not isinstance(expires, int | float):
            return None
        scopes = scopes_of(claims.get(self._scheme.scopes))
        until = float(min(expires, LATEST_EXPIRY)) + self._scheme.leeway
        return Proof(Principal(name, "jwt", scopes), self, key.digest, until)


def header_of(token: bytes) -> dict[str, Any] | None:
    """Return the header of a signed token in compact form; None if the token is malformed.

    See RFC 7515, 7.1.
    """
    parts = list(map(SecretBytes, token.split(b".")))  # a client may send a password here by mistake
    if len(parts) != 3 or not all(parts):
        return None
    text = _decoded(parts[0])
    return None if text is None else _json_object(text)


def _decoded(raw: bytes) -> SecretBytes | None:
    """Return decoded base64url without padding (RFC 7515, 2); None if the text is malformed."""
    if not _BASE64URL.fullmatch(raw):
        return None
    try:
        return SecretBytes(binascii.a2b_base64(raw.translate(_TO_BASE64) + b"=" * (-len(raw) % 4)))
    except ValueError:
        return None


def scopes_of(claim: object) -> tuple[str, ...]:
    """Return the scopes in a claim, which is space-separated text (RFC 8693, 4.2) or a list of texts."""
    listed = claim.split(" ") if isinstance(claim, str) else claim
    if not isinstance(listed, list):
        return ()
    words = [each for each in cast("list[object]", listed) if isinstance(each, str) and each]
    return tuple(words[:MAX_SCOPES])


def _is_current(wall: float, until: float | None) -> bool:
    return until is None or wall < until


def _json_object(text: bytes) -> dict[str, Any] | None:
    try:
        read_json(text)  # refuses what has two meanings
        found = json.loads(text, object_pairs_hook=_HiddenObject)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _is_usable_with(entry: dict[str, Any], algorithm: str) -> bool:
    """Return whether a key fits an algorithm: its type, its curve, and its own `use`, `key_ops` and `alg`."""
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return False
    if entry.get("kty") != _KINDS[algorithm[:2]] or entry.get("alg", algorithm) != algorithm:
        return False
    curve = _CURVES.get(algorithm)
    return curve is None or entry.get("crv") == curve


def _is_long_enough(entry: dict[str, Any]) -> bool:
    """Return whether a key is long enough that it cannot be found by trial (RFC 7518, 3.2 and 3.3)."""
    if entry.get("kty") == "RSA":
        modulus = _decoded(str(entry.get("n", "")).encode())
        return modulus is not None and len(modulus.lstrip(b"\0")) >= 256  # 2048 bits
    # 32 bytes are as long as the hash of HS256
    return entry.get("kty") != "oct" or len(str(entry.get("k", ""))) * 3 // 4 >= 32
