"""Sessions of the page: what a cookie is good for, for how long, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.security import (
    Access,
    Admission,
    Bearer,
    Guard,
    Jwt,
    Rate,
    Refusal,
    RequestContext,
    Security,
    Sessions,
    SharedToken,
)
from tests.security.sample_credentials import (
    AUDIENCE,
    ISSUER,
    WALL,
    Wall,
    guard_of,
    key_of,
    key_set,
    request,
    token,
    who,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

OWN = "http://localhost:8080"
LIFE = 12 * 3600.0


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALICE", "BOB"):
        monkeypatch.setenv(f"S9_{name}", f"token-of-{name.lower()}")


BEARER = Bearer({"alice": "env:S9_ALICE", "bob": "env:S9_BOB"})


def guard_with(security: Security | None = None, **more: Any) -> Guard:
    return guard_of(security or Security(schemes=(BEARER,)), sessions=Sessions(8080), **more)


def cookie_of(guard: Guard, name: str = "alice", **more: Any) -> str:
    found = guard.log_in(request(origin=OWN, **more), f"Bearer token-of-{name}".encode(), 0.0)
    assert not isinstance(found, Refusal), found
    assert who(found[0]) == name
    return found[1].decode().partition(";")[0]


def reading(cookie: str, **more: str) -> RequestContext:
    given = request(cookie=cookie, **more)
    return RequestContext.of(given.headers, given.peer, secure=given.secure, reads=True)


def admission(guard: Guard, cookie: str, now: float = 0.0) -> Admission:
    found = guard.admit(request(cookie=cookie, origin=OWN), now)
    assert isinstance(found, Admission), found
    return found


def test_a_session_ends_after_half_a_day_whoever_moves_it_on() -> None:
    wall = Wall()
    guard = guard_with(wall=wall)
    cookie = cookie_of(guard)
    found = admission(guard, cookie)
    assert found.until == WALL + LIFE
    wall.time += LIFE - 1
    assert found.valid(0.0)
    assert who(guard.admit(reading(cookie), 0.0)) == "alice"
    wall.time += 1
    assert not found.valid(0.0)
    assert who(guard.admit(reading(cookie), 0.0)) == 401


def test_a_session_ends_when_its_token_does(tmp_path: Path) -> None:
    key, wall = key_of(), Wall()
    jwt = Jwt(keys=write(tmp_path / "keys", key_set(key)), issuer=ISSUER, audience=AUDIENCE, leeway=0.0)
    guard = guard_with(Security(schemes=(jwt,)), wall=wall)
    found = guard.log_in(request(origin=OWN), f"Bearer {token(key)}".encode(), 0.0)
    assert not isinstance(found, Refusal)
    assert b"Max-Age=60;" in found[1]
    cookie = found[1].decode().partition(";")[0]
    assert admission(guard, cookie).until == WALL + 60
    wall.time += 60
    assert who(guard.admit(reading(cookie), 0.0)) == 401
    write(tmp_path / "keys", key_set(key_of("k2")))


def test_a_session_ends_when_its_secret_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "alice"
    bearer = Bearer({"alice": write(path, "token-of-alice\nother"), "bob": "env:S9_BOB"})
    guard = guard_with(Security(schemes=(bearer,)))
    alice, bob = cookie_of(guard), cookie_of(guard, "bob")
    found = admission(guard, alice)
    write(path, "other")
    assert not found.valid(1.0)
    assert who(guard.admit(reading(alice), 1.0)) == 401
    assert who(guard.admit(reading(bob), 1.0)) == "bob"
    write(path, "token-of-alice")
    assert who(guard.admit(reading(alice), 2.0)) == 401  # it has ended, and does not come back


def test_a_log_out_ends_what_was_admitted_by_it() -> None:
    guard = guard_with()
    cookie, other = cookie_of(guard), cookie_of(guard)
    found, stays = admission(guard, cookie), admission(guard, other)
    gone = guard.log_out(request(cookie=cookie, origin=OWN))
    assert isinstance(gone, bytes)
    assert b"=; Path=/; Max-Age=0" in gone
    assert not found.valid(0.0)
    assert stays.valid(0.0)


@pytest.mark.parametrize(
    ("headers", "reads", "counts"),
    [
        ({"origin": OWN}, False, True),
        ({"origin": "HTTP://LOCALHOST:8080"}, False, True),
        ({}, False, False),
        ({"sec_fetch_site": "same-origin"}, False, False),
        ({"origin": "http://localhost:3000"}, False, 403),
        ({"origin": "https://app.example"}, False, False),
        ({"origin": "https://app.example"}, True, False),
        ({"origin": "null"}, True, 403),
        ({}, True, True),
        ({"sec_fetch_site": "same-origin"}, True, True),
        ({"sec_fetch_site": "none"}, True, True),
        ({"sec_fetch_site": "same-site"}, True, 403),
        ({"sec_fetch_site": "cross-site"}, True, 403),
    ],
)
def test_a_cookie_counts_for_the_own_page_alone(
    headers: dict[str, str], reads: bool, counts: bool | int
) -> None:
    guard = guard_with(Security(schemes=(BEARER,), origins=("https://app.example",)))
    given = request(cookie=cookie_of(guard), **headers)
    sent = RequestContext.of(given.headers, given.peer, secure=False, reads=reads)
    assert who(guard.admit(sent, 0.0)) == ("alice" if counts is True else counts or 401)


def test_where_nobody_has_to_log_in_a_bad_cookie_is_none() -> None:
    guard = guard_with(Security(schemes=(BEARER,), access={"*": Access(read="anyone")}))
    assert who(guard.admit(reading("lmos-actors-8080=x"), 0.0)) is None


@pytest.mark.parametrize("origin", [None, "null", "http://localhost:3000", "https://localhost:8080", "x"])
def test_a_log_in_takes_the_own_origin(origin: str | None) -> None:
    guard = guard_with()
    sent = request(**({} if origin is None else {"origin": origin}))
    found = guard.log_in(sent, b"Bearer token-of-alice", 0.0)
    assert isinstance(found, Refusal)
    assert found.status == 403
    gone = guard.log_out(request(cookie=cookie_of(guard), **({} if origin is None else {"origin": origin})))
    assert isinstance(gone, Refusal)


def test_a_log_in_takes_the_name_of_the_node() -> None:
    guard = guard_with()
    sent = request(host="evil.example", origin="http://evil.example")
    assert who(_refusal(guard.log_in(sent, b"Bearer token-of-alice", 0.0))) == 403
    assert who(_refusal(guard.log_out(sent))) == 403


def _refusal(found: object) -> Refusal:
    assert isinstance(found, Refusal)
    return found


def test_other_credentials_of_a_log_in_do_not_count() -> None:
    guard = guard_with()
    sent = request("Bearer token-of-bob", origin=OWN, cookie=cookie_of(guard, "bob"))
    found = guard.log_in(sent, b"Bearer token-of-alice", 0.0)
    assert not isinstance(found, Refusal)
    assert who(found[0]) == "alice"
    assert who(_refusal(guard.log_in(sent, b"Bearer wrong", 0.0))) == 401


def test_the_token_of_a_deployment_opens_no_session() -> None:
    guard = guard_with(shared=SharedToken(b"s" * 64))
    assert who(_refusal(guard.log_in(request(origin=OWN), b"Bearer " + b"s" * 64, 0.0))) == 401


def test_log_ins_count_against_the_rate() -> None:
    guard = guard_with(Security(schemes=(BEARER,), rate=Rate(1, 3)))
    found = [guard.log_in(request(origin=OWN), b"Bearer token-of-alice", 0.0) for _ in range(4)]
    assert [isinstance(each, Refusal) for each in found] == [False, False, False, True]
    assert who(_refusal(found[3])) == 429


def test_one_principal_has_sixteen_sessions() -> None:
    guard = guard_with()
    bob = cookie_of(guard, "bob")
    cookies = [cookie_of(guard) for _ in range(17)]
    assert [who(guard.admit(reading(each), 0.0)) for each in cookies] == [401, *["alice"] * 16]
    assert who(guard.admit(reading(bob), 0.0)) == "bob"


def test_many_principals_have_256(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        monkeypatch.setenv(f"S9_P{number}", f"token-of-p{number}")
    bearer = Bearer({f"p{number}": f"env:S9_P{number}" for number in range(300)})
    sessions = Sessions(8080)
    guard = guard_of(Security(schemes=(bearer,)), sessions=sessions)
    own = [cookie_of(guard, "p0") for _ in range(4)]
    for number in range(1, 300):
        cookie_of(guard, f"p{number}")
    assert len(sessions) == 256
    assert [who(guard.admit(reading(each), 0.0)) for each in own[:3]] == [401] * 3


def test_the_node_keeps_no_cookie_and_shows_none() -> None:
    sessions = Sessions(8080)
    guard = guard_of(Security(schemes=(BEARER,)), sessions=sessions)
    cookie = cookie_of(guard)
    id = cookie.partition("=")[2]
    assert id not in repr(vars(sessions))
    assert id not in repr(reading(cookie))


def test_long_cookies_are_not_looked_at() -> None:
    guard = guard_with()
    cookie = cookie_of(guard)
    assert who(guard.admit(reading(f"{cookie}; a={'b' * 16_000}"), 0.0)) == "alice"
    assert who(guard.admit(reading(f"{cookie}; a={'b' * 16_400}"), 0.0)) == 401


def test_over_tls_only_a_cookie_of_tls_counts() -> None:
    guard = guard_with()
    plain = cookie_of(guard)
    found = guard.log_in(request(origin="https://localhost:8080", secure=True), b"Bearer token-of-bob", 0.0)
    assert not isinstance(found, Refusal)
    assert found[1].startswith(b"__Host-lmos-actors-8080=")
    assert found[1].endswith(b"; Secure")
    for cookie, name in ((plain, 401), (found[1].decode().partition(";")[0], "bob")):
        sent = request(cookie=cookie, origin="https://localhost:8080", secure=True)
        assert who(guard.admit(sent, 0.0)) == name
