"""Signed tokens: every way in which one can be wrong is refused alike; keys come and go."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors import ConfigError
from lmos_actors.errors import Unauthorized
from lmos_actors.security import Admission, Guard, Jwt, Principal, Refusal, RequestContext, Security
from lmos_actors.security._jwt import MAX_CACHED_TOKENS, header_of, scopes_of
from tests.matrix import examples
from tests.security.sample_credentials import (
    AUDIENCE,
    CLAIMS,
    ISSUER,
    OFTEN,
    WALL,
    Wall,
    guard_of,
    key_of,
    key_set,
    part,
    request,
    signed,
    token,
    who,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = key_of()
OTHER = key_of("k2")
STRANGE = key_of("k1")  # the kid of one that is known
RSA = key_of("rsa", "RSA", 2048)


def scheme_of(keys: str, **more: Any) -> Jwt:
    return Jwt(**{"keys": keys, "issuer": ISSUER, "audience": AUDIENCE, **more})


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("keys") / "keys.json", key_set(KEY, OTHER))


def told(guard: Guard, made: str | bytes, now: float = 0.0) -> str | int | None:
    made = made.encode() if isinstance(made, str) else made
    return who(guard.admit(request(b"Bearer " + made), now))


def confused(header: dict[str, Any], secret: bytes) -> str:
    """A token signed with the public key, as if that were a secret both sides share."""
    said = f"{part(header)}.{part(CLAIMS)}"
    return f"{said}.{part(hmac.new(secret, said.encode(), hashlib.sha256).digest())}"


def test_a_good_token_says_who_it_is(keys: str) -> None:
    guard = guard_of(Security(schemes=(scheme_of(keys),)))
    made = token(KEY, {"scope": "read weather.write", "aud": ["other", AUDIENCE]})
    found = guard.admit(request(f"Bearer {made}"), 0.0)
    assert isinstance(found, Admission)
    assert found.principal == Principal("alice", "jwt", ("read", "weather.write"))
    assert found.until == WALL + 90
    assert told(guard, token(OTHER)) == "alice"


def test_claims_by_other_names(keys: str) -> None:
    guard = guard_of(Security(schemes=(scheme_of(keys, principal="client_id", scopes="roles"),)))
    found = guard.admit(request(f"Bearer {token(KEY, {'client_id': 'app', 'roles': ['a', 7, 'b']})}"), 0.0)
    assert isinstance(found, Admission)
    assert found.principal == Principal("app", "jwt", ("a", "b"))
    assert told(guard, token(KEY)) == 401  # there is a sub, but that is not asked


HOSTILE: dict[str, Callable[[], str | bytes]] = {
    "empty": lambda: "",
    "two parts": lambda: ".".join(token(KEY).split(".")[:2]),
    "no signature": lambda: ".".join([*token(KEY).split(".")[:2], ""]),
    "five parts, as encrypted ones": lambda: "a.b.c.d.e",
    "alg none": lambda: f"{part({'alg': 'none', 'kid': 'k1'})}.{part(CLAIMS)}.",
    "alg none with a signature": lambda: f"{part({'alg': 'none', 'kid': 'k1'})}.{part(CLAIMS)}.e30",
    "alg None": lambda: f"{part({'alg': 'None', 'kid': 'k1'})}.{part(CLAIMS)}.",
    "alg nONE": lambda: f"{part({'alg': 'nONE', 'kid': 'k1'})}.{part(CLAIMS)}.e30",
    "alg missing": lambda: f"{part({'kid': 'k1'})}.{part(CLAIMS)}.e30",
    "alg a list": lambda: f"{part({'alg': ['ES256'], 'kid': 'k1'})}.{part(CLAIMS)}.e30",
    "the public key as a shared one, PEM": lambda: confused({"alg": "HS256", "kid": "k1"}, KEY.as_pem(False)),
    "the public key as a shared one, JSON": lambda: confused(
        {"alg": "HS256", "kid": "k1"}, json.dumps(KEY.as_dict(private=False)).encode()
    ),
    "another algorithm": lambda: token(RSA, alg="RS256"),
    "another algorithm for a kid that is known": lambda: token(RSA, alg="RS256", kid="k1"),
    "another curve": lambda: token(key_of("k1", "EC", "P-384"), alg="ES384"),
    "signed by another": lambda: token(STRANGE),
    "signed by the other key": lambda: token(KEY, kid="k2"),
    "kid unknown": lambda: token(KEY, kid="k3"),
    "kid missing, where there are two": lambda: token(KEY, kid=None),
    "kid a number": lambda: f"{part({'alg': 'ES256', 'kid': 1})}.{part(CLAIMS)}.e30",
    "kid a list": lambda: f"{part({'alg': 'ES256', 'kid': ['k1']})}.{part(CLAIMS)}.e30",
    "kid a path": lambda: token(KEY, kid="../../dev/null"),
    "its own key in the header": lambda: token(STRANGE, jwk=STRANGE.as_dict(private=False)),
    "a place to fetch keys from": lambda: token(STRANGE, jku="http://127.0.0.1:1/keys.json"),
    "crit": lambda: signed(KEY, json.dumps(CLAIMS).encode(), crit=["b64"], b64=True),
    "header no JSON": lambda: f"{part(b'{')}.{part(CLAIMS)}.e30",
    "header a list": lambda: f"{part(['ES256'])}.{part(CLAIMS)}.e30",
    "header too deep": lambda: f"{part(b'[' * 5000)}.{part(CLAIMS)}.e30",
    "header no base64": lambda: f"!!!.{part(CLAIMS)}.e30",
    "header with padding": lambda: "=.".join(token(KEY).split(".", 1)),
    "white space inside": lambda: token(KEY).replace(".", " ."),
    "more behind it": lambda: f"{token(KEY)}.",
    "not ASCII": lambda: token(KEY).encode() + "é".encode(),
    "NUL": lambda: token(KEY).encode() + b"\0",
    "claims changed": lambda: swapped(token(KEY), 1, part({**CLAIMS, "sub": "root"})),
    "header changed": lambda: swapped(token(KEY), 0, part({"alg": "ES256", "kid": "k1", "typ": "x"})),
    "signature cut": lambda: token(KEY)[:-4],
    "signature empty numbers": lambda: swapped(token(KEY), 2, part(bytes(64))),  # CVE-2022-21449
    "expired": lambda: token(KEY, {"exp": WALL - 31}),
    "expired long ago": lambda: token(KEY, {"exp": 0}),
    "exp missing": lambda: token(KEY, {"exp": None}),
    "exp text": lambda: token(KEY, {"exp": str(WALL + 60)}),
    "exp true": lambda: token(KEY, {"exp": True}),
    "exp null": lambda: signed(KEY, json.dumps({**CLAIMS, "exp": None}).encode()),
    "exp NaN": lambda: signed(KEY, json.dumps({**CLAIMS, "exp": float("nan")}).encode()),
    "exp Infinity": lambda: signed(KEY, json.dumps({**CLAIMS, "exp": float("inf")}).encode()),
    "exp of too many digits": lambda: signed(KEY, f'{{"exp": {"9" * 5000}}}'.encode()),
    "not before tomorrow": lambda: token(KEY, {"nbf": WALL + 86400}),
    "nbf text": lambda: token(KEY, {"nbf": "now"}),
    "issued tomorrow": lambda: token(KEY, {"iat": WALL + 86400}),
    "for another audience": lambda: token(KEY, {"aud": "other"}),
    "for other audiences": lambda: token(KEY, {"aud": ["other", "weather2"]}),
    "aud the start of ours": lambda: token(KEY, {"aud": "weath"}),
    "aud around ours": lambda: token(KEY, {"aud": "weather.example"}),
    "aud missing": lambda: token(KEY, {"aud": None}),
    "aud empty": lambda: token(KEY, {"aud": ""}),
    "aud no audience": lambda: token(KEY, {"aud": []}),
    "aud a mapping": lambda: token(KEY, {"aud": {"weather": 1}}),
    "from another issuer": lambda: token(KEY, {"iss": "https://evil.example"}),
    "iss missing": lambda: token(KEY, {"iss": None}),
    "iss a list": lambda: token(KEY, {"iss": [ISSUER]}),
    "sub missing": lambda: token(KEY, {"sub": None}),
    "sub empty": lambda: token(KEY, {"sub": ""}),
    "sub a number": lambda: token(KEY, {"sub": 7}),
    "sub a list": lambda: token(KEY, {"sub": ["alice"]}),
    "sub with a line end": lambda: token(KEY, {"sub": "alice\nroot"}),
    "sub too long": lambda: token(KEY, {"sub": "a" * 257}),
    "claims a list": lambda: signed(KEY, b"[]"),
    "claims no JSON": lambda: signed(KEY, b"alice"),
    "claims too deep": lambda: signed(KEY, b'{"a":' * 900 + b"1" + b"}" * 900),
    "huge": lambda: token(KEY, {"sub": "alice", "more": "x" * 9000}),
    "very huge": lambda: "a" * 2_000_000,
    "a huge header": lambda: token(KEY, cty="y" * 3000),
    "many dots": lambda: "." * 8000,
}  # fmt: skip


def swapped(made: str, at: int, other: str) -> str:
    parts = made.split(".")
    parts[at] = other
    return ".".join(parts)


@pytest.mark.parametrize("name", HOSTILE)
def test_an_invalid_token_is_refused_without_a_reason(keys: str, name: str) -> None:
    guard = guard_of(Security(schemes=(scheme_of(keys),)))
    found = guard.admit(request(b"Bearer " + as_bytes(HOSTILE[name]())), 0.0)
    assert isinstance(found, Refusal)
    plain = guard.admit(request("Bearer x"), 0.0)
    assert found == plain or (found.status, found.reason) == (400, "the Authorization header cannot be read")
    assert told(guard, token(KEY)) == "alice"  # and nothing of it sticks


def as_bytes(made: str | bytes) -> bytes:
    return made.encode() if isinstance(made, str) else made


def test_the_table_of_hostile_tokens_would_notice_an_accepted_one(keys: str) -> None:
    """Each is wrong in what it says it is: the same token without that is good."""
    guard = guard_of(Security(schemes=(scheme_of(keys),)))
    for good in (
        token(KEY),
        token(KEY, typ=None),
        token(KEY, {"nbf": WALL - 5, "iat": WALL}),
        token(KEY, {"exp": WALL - 29}),
        token(KEY, {"exp": 10**400}),
        signed(KEY, json.dumps(CLAIMS).encode()),
        token(KEY, {"more": "x" * 3000}),
        signed(KEY, json.dumps(CLAIMS).encode(), nonce="abc"),
    ):
        assert told(guard, good) == "alice"


@pytest.mark.parametrize(
    ("alg", "kind", "size"),
    [
        ("ES256", "EC", "P-256"),
        ("ES384", "EC", "P-384"),
        ("ES512", "EC", "P-521"),
        ("RS256", "RSA", 2048),
        ("PS256", "RSA", 2048),
        ("EdDSA", "OKP", "Ed25519"),
        ("Ed25519", "OKP", "Ed25519"),
        ("HS256", "oct", 256),
        ("HS512", "oct", 512),
    ],
)
def test_each_algorithm_works_with_its_kind_of_key(tmp_path: Path, alg: str, kind: str, size: Any) -> None:
    key = RSA if kind == "RSA" else key_of("k", kind, size)
    keys = write(tmp_path / "keys.json", key_set(key, private=kind == "oct"))
    guard = guard_of(Security(schemes=(scheme_of(keys, algorithms=alg),)))
    assert told(guard, token(key, alg=alg)) == "alice"
    assert told(guard, token(key, {"aud": "other"}, alg=alg)) == 401


def test_a_key_that_says_what_it_is_for_is_for_nothing_else(tmp_path: Path) -> None:
    """PS and RS take the same kind of key: the key's own word decides."""
    entry = {**RSA.as_dict(private=False), "alg": "PS256"}
    keys = write(tmp_path / "keys.json", json.dumps({"keys": [entry]}))
    guard = guard_of(Security(schemes=(scheme_of(keys, algorithms=("RS256", "PS256")),)))
    assert told(guard, token(RSA, alg="PS256")) == "alice"
    assert told(guard, token(RSA, alg="RS256")) == 401


def test_one_key_needs_no_kid(tmp_path: Path) -> None:
    keys = write(tmp_path / "keys.json", key_set(key_of(None), KEY))
    guard = guard_of(Security(schemes=(scheme_of(keys),)))
    assert told(guard, token(KEY, kid=None)) == 401
    write(tmp_path / "keys.json", key_set(KEY))
    assert told(guard, token(KEY, kid=None), 1.0) == "alice"


def test_keys_come_and_go_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    guard = guard_of(Security(schemes=(scheme_of(write(path, key_set(KEY))),)))
    old, new = token(KEY), token(OTHER)
    found = guard.admit(request(f"Bearer {old}"), 0.0)
    assert isinstance(found, Admission)
    assert told(guard, new) == 401
    write(path, key_set(KEY, OTHER))
    assert (told(guard, old, 0.9), told(guard, new, 0.9)) == ("alice", 401)  # nobody has looked yet
    assert (told(guard, old, 1.0), told(guard, new, 1.0)) == ("alice", "alice")
    assert found.valid(1.0)
    write(path, key_set(OTHER))
    assert found.valid(1.9)
    assert not found.valid(2.0)
    with pytest.raises(Unauthorized):
        found.check("desk", "read", 2.0)
    assert (told(guard, old, 2.0), told(guard, new, 2.0)) == (401, "alice")


def test_a_key_of_the_same_kid_is_another_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    guard = guard_of(Security(schemes=(scheme_of(write(path, key_set(KEY))),)))
    found = guard.admit(request(f"Bearer {token(KEY)}"), 0.0)
    assert isinstance(found, Admission)
    write(path, key_set(STRANGE))
    assert not found.valid(5.0)
    assert told(guard, token(KEY), 5.0) == 401
    assert told(guard, token(STRANGE), 5.0) == "alice"


def test_a_token_ends_when_it_expires_and_not_before(keys: str) -> None:
    wall = Wall()
    guard = guard_of(Security(schemes=(scheme_of(keys, leeway=10.0),)), wall=wall)
    made = token(KEY)
    found = guard.admit(request(f"Bearer {made}"), 0.0)
    assert isinstance(found, Admission)
    wall.time = WALL + 69.9
    assert found.valid(0.0)
    assert told(guard, made) == "alice"
    wall.time = WALL + 70
    assert not found.valid(0.0)
    assert told(guard, made) == 401


def test_clocks_that_differ_by_more_than_the_leeway(keys: str) -> None:
    wall = Wall()
    guard = guard_of(Security(schemes=(scheme_of(keys, leeway=0.0),)), wall=wall)
    made = token(KEY, {"nbf": WALL + 1})
    assert told(guard, made) == 401
    wall.time = WALL + 1
    assert told(guard, made) == "alice"
    wall.time = WALL - 1  # the clock was set back: what was good once is not remembered as such
    assert told(guard_of(Security(schemes=(scheme_of(keys, leeway=0.0),)), wall=wall), made) == 401


def test_good_tokens_are_remembered_and_only_so_many(keys: str, monkeypatch) -> None:
    guard = guard_of(Security(schemes=(scheme_of(keys),)))
    verifier = guard._verifiers[0]
    checked: list[int] = []
    real = verifier._claims
    monkeypatch.setattr(verifier, "_claims", lambda *args: checked.append(1) or real(*args))
    made = token(KEY)
    for _ in range(3):
        assert told(guard, made) == "alice"
    assert len(checked) == 1
    forged = token(STRANGE)
    for _ in range(3):
        assert told(guard, forged) == 401
    assert len(checked) == 4
    proof = next(iter(verifier._verified_tokens.values()))
    for n in range(MAX_CACHED_TOKENS + 10):
        verifier._verified_tokens[str(n).encode()] = proof
    assert told(guard, token(KEY, {"jti": "new"})) == "alice"
    assert len(verifier._verified_tokens) == MAX_CACHED_TOKENS


def test_an_expired_token_is_not_remembered_as_good(keys: str) -> None:
    wall = Wall()
    guard = guard_of(Security(schemes=(scheme_of(keys),)), wall=wall)
    assert told(guard, token(KEY, {"exp": WALL - 30})) == 401
    assert guard._verifiers[0]._verified_tokens == {}
    exact = guard_of(Security(schemes=(scheme_of(keys, leeway=0.5),)), wall=wall)
    assert told(exact, token(KEY, {"exp": WALL - 0.4})) == "alice"
    assert told(exact, token(KEY, {"exp": WALL - 0.6})) == 401  # the library counts in whole seconds


BROKEN_SETS = {
    "no JSON": ("{", "is not a JSON Web Key Set"),
    "a list": ("[]", "is not a JSON Web Key Set"),
    "no keys": ('{"keys": []}', "has no key for ES256"),
    "keys a mapping": ('{"keys": {}}', "is not a JSON Web Key Set"),
    "no mapping": ('{"keys": [1]}', "has no key for ES256"),
    "nested": ("[" * 100_000, "is not a JSON Web Key Set"),
    "another kind": (key_set(RSA), "has no key for ES256"),
    "another curve": (key_set(key_of("p384", "EC", "P-384")), "has no key for ES256"),
    "for encryption": (json.dumps({"keys": [{**KEY.as_dict(private=False), "use": "enc"}]}), "has no key"),
    "not to verify": (
        json.dumps({"keys": [{**KEY.as_dict(private=False), "key_ops": ["sign"]}]}),
        "has no key",
    ),
    "private": (key_set(KEY, private=True), "key 1 is a private key"),
    "off the curve": (
        json.dumps({"keys": [{**KEY.as_dict(private=False), "x": part(bytes(32))}]}),
        "key 1 is too short or malformed",
    ),
    "a kid twice": (key_set(KEY, STRANGE), "key 2 needs a kid that no other key has"),
    "a kid that is a number": (
        json.dumps({"keys": [{**KEY.as_dict(private=False), "kid": 1}]}),
        "key 1 needs a kid that no other key has",
    ),
    "too many": (json.dumps({"keys": [{}] * 101}), "has more than 100 keys"),
    "too large": (" " * (1 << 18) + "{}", "is larger than"),
    "empty": ("", "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_SETS)
def test_unusable_keys_fail_the_start(tmp_path: Path, name: str) -> None:
    text, why = BROKEN_SETS[name]
    reference = write(tmp_path / "keys.json", text)
    with pytest.raises(ConfigError, match=why) as caught:
        guard_of(Security(schemes=(scheme_of(reference),)))
    assert reference in str(caught.value)


@pytest.mark.parametrize("name", BROKEN_SETS)
def test_keys_that_break_later_admit_no_client_and_are_reported_once(tmp_path: Path, name: str) -> None:
    text, why = BROKEN_SETS[name]
    path = tmp_path / "keys.json"
    said: list[str] = []
    guard = guard_of(Security(schemes=(scheme_of(write(path, key_set(OTHER))),)), report=said.append)
    made = token(OTHER)
    assert told(guard, made) == "alice"
    write(path, text)
    for now in (1.0, 2.0, 3.0, 9.0):
        assert told(guard, made, now) == 401
    assert len(said) == 1
    assert why in said[0]
    write(path, key_set(OTHER))
    assert told(guard, made, 20.0) == "alice"


def test_keys_for_other_uses_are_passed_over(tmp_path: Path) -> None:
    whole = {"keys": [*json.loads(key_set(RSA, KEY))["keys"], {"kty": "magic", "kid": "m"}]}
    guard = guard_of(Security(schemes=(scheme_of(write(tmp_path / "k.json", json.dumps(whole))),)))
    assert told(guard, token(KEY)) == "alice"


@pytest.mark.parametrize(
    ("alg", "entry"),
    [
        ("RS256", {"kty": "RSA", "kid": "k", "n": part(b"\xff" * 128), "e": "AQAB"}),
        ("RS256", {"kty": "RSA", "kid": "k", "n": part(bytes(200) + b"\xff" * 128), "e": "AQAB"}),
        ("HS256", {"kty": "oct", "kid": "k", "k": part(b"short")}),
        ("HS256", {"kty": "oct", "kid": "k"}),
        ("RS256", {"kty": "RSA", "kid": "k", "n": 7, "e": "AQAB"}),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of the library, which would refuse them for us here
def test_keys_that_can_be_guessed_are_refused(tmp_path: Path, alg: str, entry: dict[str, Any]) -> None:
    keys = write(tmp_path / "keys.json", json.dumps({"keys": [entry]}))
    with pytest.raises(ConfigError, match="key 1 is too short or malformed"):
        guard_of(Security(schemes=(scheme_of(keys, algorithms=alg),)))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"algorithms": ("none",)}, "'none' is not accepted"),
        ({"algorithms": ("ES265",)}, "did you mean 'ES256'"),
        ({"algorithms": ()}, "algorithms is empty"),
        ({"algorithms": ("RS256", "HS256")}, "mixes"),
        ({"keys": '{"keys": []}'}, "the secret itself does not belong here"),
        ({"audience": ""}, "audience"),
        ({"issuer": None}, "issuer"),
        ({"leeway": 301}, "leeway"),
        ({"leeway": float("nan")}, "leeway"),
        ({"principal": ""}, "principal"),
    ],
)
def test_a_scheme_that_cannot_be_meant_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        scheme_of(**{"keys": "file:keys.json", **wrong})


def test_without_the_extra_the_error_names_it(keys: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(ConfigError, match=r"pip install 'lmos-actors\[auth\]'"):
        guard_of(Security(schemes=(scheme_of(keys),)))


def test_tokens_known_beforehand_and_signed_ones_side_by_side(keys: str, monkeypatch) -> None:
    from lmos_actors.security import Bearer

    monkeypatch.setenv("S1_ROBOT", "not-a-signed-one")
    guard = guard_of(Security(schemes=(Bearer({"robot": "env:S1_ROBOT"}), scheme_of(keys))))
    assert (told(guard, "not-a-signed-one"), told(guard, token(KEY)), told(guard, "x")) == (
        "robot",
        "alice",
        401,
    )


GUARD: list[Guard] = []


@given(st.binary(max_size=200) | st.text("abc.=-_ ey", max_size=200).map(str.encode))
@settings(max_examples=examples(300))
def test_no_bytes_are_a_token_and_none_raise(keys: str, raw: bytes) -> None:
    if not GUARD:
        GUARD.append(guard_of(Security(schemes=(scheme_of(keys),), failures=OFTEN)))
    found = GUARD[0].admit(RequestContext.of(((b"authorization", b"Bearer " + raw),), "p", secure=True), 0.0)
    assert isinstance(found, Refusal)


@given(st.data())
@settings(max_examples=examples(200))
def test_a_token_with_any_byte_changed_is_refused(keys: str, data: st.DataObject) -> None:
    if not GUARD:
        GUARD.append(guard_of(Security(schemes=(scheme_of(keys),), failures=OFTEN)))
    raw = bytearray(token(KEY).encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    found = GUARD[0].admit(
        RequestContext.of(((b"authorization", b"Bearer " + bytes(raw)),), "p", secure=True), 0.0
    )
    # the last letter of a part has bits that mean nothing
    last_letters = {len(head) - 1 for head in prefixes(token(KEY))}
    assert isinstance(found, Refusal) or at in last_letters


def prefixes(made: str) -> list[str]:
    first, second, third = made.split(".")
    return [first, f"{first}.{second}", f"{first}.{second}.{third}"]


@given(st.binary(max_size=100))
def test_reading_a_header_never_raises(raw: bytes) -> None:
    found = header_of(raw + b".a.b")
    assert found is None or isinstance(found, dict)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@settings(max_examples=examples(50))
def test_scopes_are_words_whatever_the_claim(claim: object) -> None:
    found = scopes_of(claim)
    assert all(isinstance(each, str) and each for each in found)
    assert len(found) <= 256
