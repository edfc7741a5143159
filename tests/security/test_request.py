"""Reading Authorization headers: any bytes are read or refused, and what is written well is read back."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given, strategies as st

from lmos_actors.security import RequestContext
from lmos_actors.security._request import (
    LONGEST,
    MALFORMED,
    AuthorizationHeader,
    Malformed,
    authorization_in,
    basic_of,
    is_token,
    parse_authorization,
)

SCHEMES = st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]{0,20}", fullmatch=True)
TOKENS = st.from_regex(r"[A-Za-z0-9._~+/-]{1,60}={0,2}", fullmatch=True)


@given(st.binary(max_size=300))
@example(b"")
@example(b" ")
@example(b"Bearer")
@example(b"Bearer\tx")
@example(b"\xff\xfe x")
def test_any_bytes_are_credentials_or_malformed(raw: bytes) -> None:
    found = parse_authorization(raw)
    assert isinstance(found, AuthorizationHeader | Malformed)
    if isinstance(found, AuthorizationHeader):
        assert found.kind == found.kind.lower()
        assert 0 < len(found.kind) <= 32
        assert bytes(found.value) in raw
        assert repr(found) == "AuthorizationHeader(value=***)"
    assert basic_of(raw) is None or raw == base64.b64encode(b":".join(basic_of(raw) or ()))
    assert isinstance(is_token(raw), bool)


@given(SCHEMES, st.integers(1, 5), TOKENS, st.sampled_from(["", " ", "\t"]))
def test_scheme_and_token_are_read_back(scheme: str, spaces: int, token: str, around: str) -> None:
    found = parse_authorization(f"{around}{scheme}{' ' * spaces}{token}{around}".encode())
    assert isinstance(found, AuthorizationHeader)
    assert (found.kind, bytes(found.value).strip()) == (scheme.lower(), token.encode())
    assert is_token(token.encode())


@given(st.text(st.characters(exclude_characters=":", codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_user_and_password_are_read_back(user: str, password: str) -> None:
    raw = base64.b64encode(f"{user}:{password}".encode())
    assert basic_of(raw) == (user.encode(), password.encode())


@given(st.binary(max_size=60), st.integers(0, 80), st.binary(min_size=1, max_size=1))
def test_one_credential_has_one_spelling(text: bytes, at: int, more: bytes) -> None:
    raw = base64.b64encode(text + b":")
    changed = raw[:at] + more + raw[at:]
    found = basic_of(changed)
    assert found is None or base64.b64encode(b":".join(found)) == changed


@pytest.mark.parametrize("raw", [b"Bearer", b"Bearer " + b"a" * (LONGEST - 7), b"Bearer a b", b"a", b"*x y"])
def test_what_is_still_credentials(raw: bytes) -> None:
    assert isinstance(parse_authorization(raw), AuthorizationHeader)


@pytest.mark.parametrize(
    "raw",
    [b"", b" ", b"\t", b"(x) y", b"Bearer\x00x", b"Bearer\tx", b"B\xc3\xa9arer x", b"Bearer,x",
     b"a" * 33 + b" x", b"Bearer " + b"a" * LONGEST],
)  # fmt: skip
def test_what_is_none(raw: bytes) -> None:
    assert parse_authorization(raw) is MALFORMED


@pytest.mark.parametrize(
    ("value", "is_none"), [(b"null", True), (b" null ", True), (b"Null", False), (b"null x", False)]
)
def test_null_is_no_credentials(value: bytes, is_none: bool) -> None:
    """kotlin-wot's HTTP client sends it when it has none."""
    found = authorization_in(RequestContext.of(((b"authorization", value),), "p", secure=True))
    assert (found is None) is is_none
    twice = authorization_in(RequestContext.of(((b"authorization", value),) * 2, "p", secure=True))
    assert twice is MALFORMED


def test_none_one_two() -> None:
    headers = [(b"authorization", b"Bearer x")]
    found = [authorization_in(RequestContext.of(tuple(headers * n), "p", secure=True)) for n in range(3)]
    assert found[0] is None
    assert isinstance(found[1], AuthorizationHeader)
    assert found[2] is MALFORMED
