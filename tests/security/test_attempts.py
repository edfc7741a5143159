"""Wrong credentials slow down who guesses, and lock out nobody else of the same address."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from lmos_actors.security import (
    Attempts,
    AuthorizationHeader,
    Basic,
    Bearer,
    Guard,
    Jwt,
    Rate,
    SecretBytes,
    Security,
)
from tests.security.sample_credentials import OFTEN, basic, guard_of, key_of, key_set, request, who, write

if TYPE_CHECKING:
    from pathlib import Path

FAILURES = Rate(0.2, 10)
RANDOM = "3b1f6f4f0e3f4a9d8e2b7c6d5a4f3e21"
SHORT = "guess-me"
PASSWORD = "correct horse"


@pytest.fixture
def security(tmp_path: Path) -> Security:
    def reference(name: str, text: str) -> str:
        return write(tmp_path / name, text)

    return Security(
        schemes=(
            Bearer({"robot": reference("robot", RANDOM), "old": reference("old", SHORT)}),
            Basic({name: reference(name, PASSWORD) for name in ("ann", "bob")}),
        ),
        failures=FAILURES,
    )


def ask(guard: Guard, authorization: str, now: float = 0.0, peer: str = "192.0.2.1:5") -> str | int | None:
    return who(guard.admit(request(authorization, peer=peer), now))


def exhaust(guard: Guard, authorization: str) -> None:
    while ask(guard, authorization) == 401:
        pass
    assert ask(guard, authorization) == 429


WRONG = {
    "tokens without a name": "Bearer nothing",
    "passwords of one name": basic("eve", "wrong"),
    "passwords of ann": basic("ann", "wrong"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_who_was_in_before_goes_on(security: Security, wrong: str) -> None:
    guard = guard_of(security)
    good = {f"Bearer {RANDOM}": "robot", f"Bearer {SHORT}": "old", basic("ann", PASSWORD): "ann"}
    for authorization, name in good.items():
        assert ask(guard, authorization) == name
    exhaust(guard, wrong)
    for authorization, name in good.items():
        assert ask(guard, authorization) == name


def test_ten_thousand_wrong_ones_are_checked_no_oftener_than_the_rate_allows(security: Security) -> None:
    guard = guard_of(security)
    found = [ask(guard, basic("ann", f"{number}"), now=number / 100) for number in range(10_000)]
    assert set(found) == {401, 429}
    assert found.count(401) == 10 + int(99.99 * 0.2)


def test_a_random_token_is_looked_up_whatever_has_failed(security: Security) -> None:
    guard = guard_of(security)
    exhaust(guard, "Bearer nothing")
    assert ask(guard, f"Bearer {RANDOM}") == "robot"
    assert ask(guard, f"Bearer {RANDOM[::-1]}") == 429


def test_what_can_be_guessed_has_to_wait_even_if_it_is_right(security: Security) -> None:
    guard = guard_of(security)
    exhaust(guard, "Bearer nothing")
    exhaust(guard, basic("ann", "wrong"))
    assert ask(guard, f"Bearer {SHORT}") == 429
    assert ask(guard, basic("ann", PASSWORD)) == 429
    assert ask(guard, basic("ann", PASSWORD), now=6.0) == "ann"


def test_each_name_of_an_address_has_its_own_count(security: Security) -> None:
    guard = guard_of(security)
    exhaust(guard, basic("eve", "wrong"))
    exhaust(guard, "Bearer nothing")
    assert ask(guard, basic("bob", PASSWORD)) == "bob"
    assert ask(guard, basic("ann", "wrong")) == 401
    assert ask(guard, basic("eve", "wrong"), peer="192.0.2.2:5") == 401


def test_names_without_end_have_one_count(security: Security) -> None:
    guard = guard_of(security)
    found = [ask(guard, basic(f"name{number}", "x")) for number in range(10_000)]
    assert found.count(401) == 64 + 10
    assert ask(guard, basic("name1", "x")) == 401  # one of the first has its own
    assert ask(guard, basic("name1", "x"), now=3601.0) == 401
    again = [ask(guard, basic(f"other{number}", "x"), now=7300.0) for number in range(10_000)]
    assert again.count(401) == 64 + 10  # old names are forgotten


def signed(subject: object) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": "ES256"}, {"sub": subject})]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in (*parts, b"signature"))


def test_a_signed_token_counts_for_its_subject(tmp_path: Path) -> None:
    keys = write(tmp_path / "keys", key_set(key_of()))
    scheme = Jwt(keys=keys, issuer="https://login.example", audience="us")
    guard = guard_of(Security(schemes=(scheme,), failures=FAILURES))
    exhaust(guard, f"Bearer {signed('eve')}")
    assert ask(guard, f"Bearer {signed('ann')}") == 401
    assert ask(guard, f"Bearer {signed('eve')}") == 429
    exhaust(guard, f"Bearer {signed(7)}")  # no name: by address
    assert ask(guard, f"Bearer {signed(None)}") == 429
    assert ask(guard, f"Bearer {signed('ann')}") == 401


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b'{"sub":7}', b'{"sub":"\\ud800"}', b"\xff", b'{"x":' + b"[" * 5_800],
    ids=["nothing", "no object", "no text", "half a character", "no UTF-8", "very deep"],
)
def test_a_token_that_claims_nothing_readable_counts_by_address(security: Security, payload: bytes) -> None:
    guard = guard_of(security)
    text = f"Bearer eyJ.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.x"
    exhaust(guard, text)
    assert ask(guard, "Bearer nothing") == 429


def is_looked_up(token: bytes) -> bool:
    """Return whether a token is checked where its address has been wrong too often."""
    attempts, shown = Attempts(Rate(1.0, 1)), AuthorizationHeader("bearer", SecretBytes(token))
    assert attempts.judge(AuthorizationHeader("bearer", SecretBytes(b"x")), "a:1", 0.0, lambda: None) == 0.0
    return attempts.judge(shown, "a:1", 0.0, lambda: "found") == "found"


@given(st.binary(min_size=16, max_size=16))
def test_sixteen_random_bytes_are_random_however_they_are_written(raw: bytes) -> None:
    if len(set(raw.hex())) >= 8 and not raw.hex().isdigit():  # digits alone are of another alphabet
        assert is_looked_up(raw.hex().encode())
        assert is_looked_up(raw.hex().upper().encode())
    text = base64.urlsafe_b64encode(raw).rstrip(b"=")
    assert is_looked_up(text) == (len(set(text)) >= 8)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"a" * 1000,
        b"hunter2",
        b"abcdefg" * 30,
        b"3b1f6f4f0e3f4a9d8e2b7c6d5a4f3e",
        b"01234567890123456789012345678901",
    ],
)
def test_what_is_short_or_repeats_itself_is_not(token: bytes) -> None:
    assert not is_looked_up(token)


# ---- pages of other sites

SITES = {
    "none of a browser": ({}, None),
    "its own": ({"sec_fetch_site": "same-origin"}, None),
    "typed": ({"sec_fetch_site": "none"}, None),
    "another": ({"sec_fetch_site": "cross-site"}, 403),
    "another port": ({"sec_fetch_site": "same-site"}, 403),
    "a word of later browsers": ({"sec_fetch_site": "new-word"}, 403),
    "another, which is listed": ({"sec_fetch_site": "cross-site", "origin": "https://app.example"}, None),
    "another, which is not": ({"sec_fetch_site": "cross-site", "origin": "https://evil.example"}, 403),
    "the node's public one": ({"sec_fetch_site": "same-site", "origin": "https://agents.example"}, None),
    "a link to it": ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, 403),
}


@pytest.mark.parametrize(("headers", "expected"), SITES.values(), ids=SITES)
def test_a_page_of_another_site_gets_nothing(headers: dict[str, str], expected: int | None) -> None:
    guard = guard_of(Security(origins=("https://app.example",)), public_url="https://agents.example")
    assert who(guard.admit(request(**headers), 0.0)) == expected


def test_it_is_refused_before_its_credentials_are_looked_at(security: Security) -> None:
    guard = guard_of(security)
    for _ in range(100):
        found = guard.admit(request("Bearer nothing", sec_fetch_site="cross-site"), 0.0)
        assert who(found) == 403
    assert ask(guard, "Bearer nothing") == 401


def test_a_link_leads_to_the_page_and_to_nothing_else() -> None:
    guard = guard_of(Security(failures=OFTEN))
    linked = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    for reads, mode, page, expected in (
        (True, "navigate", True, None),
        (False, "navigate", True, 403),  # a form of another site
        (True, "no-cors", True, 403),  # an image of another site
        (True, "navigate", False, 403),
    ):
        brought = request(reads=reads, **{**linked, "sec_fetch_mode": mode})
        assert who(guard.admit(brought, 0.0, public=True, page=page)) == expected
