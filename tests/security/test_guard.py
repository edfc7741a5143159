"""Letting in: schemes, names of the node, pages in browsers, and how often somebody may be wrong."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors import ConfigError
from lmos_actors.errors import Forbidden, RateLimited, Unauthorized
from lmos_actors.security import (
    ANYONE,
    AUTHENTICATED,
    Access,
    Admission,
    Basic,
    Bearer,
    Buckets,
    Certificate,
    ClientCertificates,
    Guard,
    NoSec,
    Principal,
    Rate,
    Refusal,
    RequestContext,
    Security,
    address_of,
)
from lmos_actors.security._origins import Hosts, host_of, origin_of
from tests.rows import each_row
from tests.security.sample_credentials import basic, guard_of, request, who, write

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "alice-token-0123456789"
PASSWORD = "pässword with:colon"


@pytest.fixture(autouse=True)
def secrets_of_the_test(monkeypatch) -> None:
    monkeypatch.setenv("S1_ALICE", TOKEN)
    monkeypatch.setenv("S1_ALICE_NEW", "alice-token-9876543210")
    monkeypatch.setenv("S1_BOB", PASSWORD)
    monkeypatch.setenv("S1_CAROL", "carol-token-0123456789")


BEARER = Bearer({"alice": ("env:S1_ALICE", "env:S1_ALICE_NEW"), "carol": "env:S1_CAROL"})
BASIC = Basic({"bob": "env:S1_BOB"})


def admitted(guard: Guard, *authorization: str, now: float = 0.0, **more: Any) -> Admission:
    found = guard.admit(request(*authorization, **more), now)
    assert isinstance(found, Admission)
    return found


def refused(guard: Guard, *authorization: str | bytes, now: float = 0.0, **more: Any) -> Refusal:
    found = guard.admit(request(*authorization, **more), now)
    assert isinstance(found, Refusal)
    return found


# ---- credentials


@each_row(
    ("authorization", "name"),
    [
        (f"Bearer {TOKEN}", "alice"),
        (f"bearer {TOKEN}", "alice"),
        (f"BEARER   {TOKEN} ", "alice"),
        ("Bearer alice-token-9876543210", "alice"),
        ("Bearer carol-token-0123456789", "carol"),
        (basic("bob", PASSWORD), "bob"),
        (basic("bob", PASSWORD).replace("Basic", "bAsIc"), "bob"),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN.upper()}", 401),
        (f"Bearer {TOKEN} {TOKEN}", 401),
        (f"Bearer {TOKEN}, Bearer {TOKEN}", 401),
        (f"Bearer={TOKEN}", 400),
        (f"Basic {TOKEN}", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("Basic", 401),
        (TOKEN, 401),
        ("", 400),
        ("Digest username=bob", 401),
        ("Negotiate AAAA", 401),
        ("Bearer \x00", 401),
        ("Be@rer x", 400),
        (basic("bob", "wrong"), 401),
        (basic("bob", ""), 401),
        (basic("alice", PASSWORD), 401),
        (basic("BOB", PASSWORD), 401),
        (basic("", PASSWORD), 401),
        (basic("alice", TOKEN), 401),
        ("Basic Ym9i", 401),  # no colon
        ("Basic Ym9iOg", 401),  # no padding
        ("Basic !!!!", 401),
        (f"{basic('bob', PASSWORD)}====", 401),
        (f"Bearer {'a' * 9000}", 400),
    ],
)
def test_credentials_are_good_or_they_are_not(authorization: str, name: str | int) -> None:
    guard = guard_of(Security(schemes=(BEARER, BASIC)))
    assert who(guard.admit(request(authorization), 0.0)) == name


def test_two_authorization_headers_are_no_credentials() -> None:
    guard = guard_of(Security(schemes=(BEARER,)))
    assert refused(guard, f"Bearer {TOKEN}", f"Bearer {TOKEN}").status == 400


def test_nothing_of_a_refusal_says_what_was_wrong() -> None:
    guard = guard_of(Security(schemes=(BASIC, BEARER)))
    wrong = [
        basic("bob", "wrong"),
        basic("nobody", PASSWORD),
        basic("alice", TOKEN),
        f"Bearer {TOKEN}x",
        "Bearer x",
        "Basic x",
        "Digest x",
    ]
    assert len({refused(guard, each) for each in wrong}) == 1


def test_what_a_refusal_asks_for() -> None:
    guard = guard_of(Security(schemes=(BASIC, BEARER)))
    assert refused(guard) == Refusal(
        401,
        "credentials are needed",
        (
            (b"www-authenticate", b'Basic realm="lmos-actors", charset="UTF-8"'),
            (b"www-authenticate", b'Bearer realm="lmos-actors"'),
        ),
    )
    assert refused(guard, "Bearer x").headers[1] == (
        b"www-authenticate",
        b'Bearer realm="lmos-actors", error="invalid_token"',
    )


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (Refusal(401, "a"), Unauthorized),
        (Refusal(403, "a"), Forbidden),
        (Refusal(429, "a", retry_in=3.0), RateLimited),
    ],
)
def test_a_refusal_is_an_exception_too(refusal: Refusal, error: type[Exception]) -> None:
    assert type(refusal.error) is error
    assert getattr(refusal.error, "retry_in", refusal.retry_in) == refusal.retry_in


def test_secrets_are_compared_without_telling_how_much_of_one_was_right(monkeypatch) -> None:
    """No comparison sees a secret, nor what was sent: only digests under a key of this process."""
    guard = guard_of(Security(schemes=(BEARER, BASIC)))
    other = guard_of(Security(schemes=(BEARER, BASIC)))
    tables = [[verifier.table for verifier in each._verifiers] for each in (guard, other)]
    held = [key for one in tables for table in one for key in table]
    assert len(held) == 8
    assert len(set(held)) == 8  # another key, other digests
    assert {len(key) for key in held} == {32}
    for secret in (TOKEN.encode(), PASSWORD.encode()):
        assert not any(secret in key or hmac.compare_digest(secret, key) for key in held)
    everything = repr([vars(each) for guard in (guard, other) for each in guard._verifiers])
    assert TOKEN not in everything


def test_nobody_is_asked_where_nothing_is_demanded() -> None:
    guard = guard_of(Security())
    assert guard.security.is_open
    assert admitted(guard).principal is None
    assert admitted(guard, "Bearer whatever").principal is None
    assert admitted(guard, "", "Bearer whatever").principal is None  # what a proxy adds is nobody's concern
    admitted(guard).check("desk", "invoke", 0.0)


def test_open_agents_admit_anonymous_clients_but_no_wrong_credentials() -> None:
    guard = guard_of(Security(schemes=(BEARER,), access={"desk": Access(read=ANYONE)}))
    found = admitted(guard)
    found.check("desk", "read", 0.0)
    with pytest.raises(Unauthorized, match="credentials are needed"):
        found.check("desk", "write", 0.0)
    assert refused(guard, "Bearer x").status == 401


def test_what_is_public_needs_no_credentials_but_takes_no_wrong_ones() -> None:
    guard = guard_of(Security(schemes=(BEARER,), public_descriptions=True))
    assert refused(guard).status == 401
    found = guard.admit(request(), 0.0, public=True)
    assert isinstance(found, Admission)
    assert found.principal is None
    with pytest.raises(Unauthorized):
        found.check("desk", "read", 0.0)
    assert who(guard.admit(request("Bearer x"), 0.0, public=True)) == 401
    assert who(guard.admit(request(f"Bearer {TOKEN}"), 0.0, public=True)) == "alice"
    assert who(guard.admit(request(host="evil.example"), 0.0, public=True)) == 403


# ---- certificates

ALICE = Certificate("CN=alice", ("Alice.example", "alice"), "a1" * 32)
MALLORY = Certificate("CN=mallory", ("mallory.example",), "b2" * 32)


@pytest.mark.parametrize(
    ("rules", "certificate", "name"),
    [
        ({"alice": f"sha256:{'a1' * 32}"}, ALICE, "alice"),
        ({"alice": "SHA256".lower() + ":" + ":".join(["A1"] * 32)}, ALICE, "alice"),
        ({"alice": "name:Alice.Example"}, ALICE, "alice"),
        ({"alice": ("name:other.example", "name:alice.example")}, ALICE, "alice"),
        ({"alice": "name:alice.example"}, MALLORY, 401),
        ({"alice": "name:example"}, ALICE, 401),
        ({"alice": f"sha256:{'a1' * 31}a2"}, ALICE, 401),
        ({"alice": "name:alice.example"}, None, 401),
    ],
)
def test_a_certificate_admits_by_name_or_fingerprint(
    rules: dict[str, Any], certificate: Certificate | None, name: str | int
) -> None:
    guard = guard_of(Security(schemes=(ClientCertificates(rules),)))
    found = guard.admit(request(certificate=certificate, secure=True), 0.0)
    assert who(found) == name
    if isinstance(found, Admission):
        assert found.principal == Principal("alice", "certificate")
    else:
        assert found.headers == ()


def test_a_certificate_is_revoked_by_taking_its_line_away(tmp_path: Path) -> None:
    path = tmp_path / "people"
    text = f"# who\nalice sha256:{'a1' * 32}\n\nmallory name:mallory.example\r\n"
    guard = guard_of(Security(schemes=(ClientCertificates(write(path, text)),)))
    alice = admitted(guard, certificate=ALICE)
    mallory = admitted(guard, certificate=MALLORY)
    write(path, text.replace("mallory ", "#mallory "))
    assert alice.valid(1.0)
    assert not mallory.valid(1.0)
    assert refused(guard, certificate=MALLORY, now=1.0).status == 401
    write(path, f"mallory sha256:{'a1' * 32}")
    assert not alice.valid(2.0)  # the certificate is somebody else's now


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alice", "entry 1 is not a name and a certificate"),
        (f"alice sha256:{'a1' * 32}\nbob name:", "entry 2 is not a name"),
        ("alice sha256:aa", "entry 1"),
        ("anyone name:x", "entry 1"),
        ("\n", "is empty"),
        ("alice name:a\nbob name:A", "alice and bob have the same certificate: it counts for alice"),
    ],
)
def test_a_file_of_certificates_that_cannot_be_read(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        guard_of(Security(schemes=(ClientCertificates(write(tmp_path / "people", text)),)))


def test_credentials_that_are_presented_count_before_the_certificate() -> None:
    guard = guard_of(Security(schemes=(BEARER, ClientCertificates({"al": "name:alice"}))))
    assert admitted(guard, certificate=ALICE).principal == Principal("al", "certificate")
    found = admitted(guard, "Bearer carol-token-0123456789", certificate=ALICE).principal
    assert found == Principal("carol", "bearer")
    assert refused(guard, "Bearer x", certificate=ALICE).status == 401


# ---- names of the node (DNS rebinding)


@each_row(
    ("host", "status"),
    [
        ("localhost", None),
        ("LOCALHOST:8080", None),
        ("app.localhost:1", None),
        ("127.0.0.1:8080", None),
        ("192.0.2.7", None),
        ("[::1]:8080", None),
        ("weather.example", None),
        ("Weather.Example.:443", None),
        ("a.lan", None),
        ("b.a.lan:80", None),
        (None, None),
        ("evil.example", 403),
        ("weather.example.evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("evillocalhost", 403),
        ("lan", 403),
        ("evil-a.lan.example", 403),
        ("2130706433", 403),  # 127.0.0.1 as one number is no address here
        ("", 400),
        (":80", 400),
        (".", 400),
        ("a b", 400),
        ("user@localhost", 400),
        ("localhost:80:80", 400),
        ("localhost:http", 400),
        ("[localhost]", 400),
        ("[::1", 400),
        ("[::g]", 400),
        ("localhost/", 400),
        ("local\x00host", 400),
        ("wéather.example", 400),
        ("a" * 300, 400),
    ],
)
def test_the_node_is_asked_by_its_own_name(host: str | None, status: int | None) -> None:
    guard = guard_of(Security(hosts=("weather.example", "*.lan")))
    assert who(guard.admit(request(host=host), 0.0)) == status


def test_two_hosts_are_none() -> None:
    guard = guard_of(Security())
    two = RequestContext.of(((b"host", b"localhost"), (b"host", b"localhost")), "p", secure=False)
    assert who(guard.admit(two, 0.0)) == 400


def test_host_names_given_to_the_guard_are_accepted() -> None:
    guard = guard_of(Security(), hosts=("desk",))
    assert who(guard.admit(request(host="desk:80"), 0.0)) is None
    assert who(guard.admit(request(host="desk2"), 0.0)) == 403
    assert who(guard_of(Security(hosts=("*",))).admit(request(host="any.thing"), 0.0)) is None


def test_the_name_is_looked_at_before_the_credentials() -> None:
    guard = guard_of(Security(schemes=(BEARER,), failures=Rate(0.5, 1)))
    assert refused(guard, f"Bearer {TOKEN}", host="evil.example").status == 403
    assert refused(guard, "Bearer x", host="evil.example").status == 403
    assert refused(guard, "Bearer x").status == 401  # the first that counts


@pytest.mark.parametrize(
    "wrong", ["http://a.example", "a.example:80", "a b", "", "a..b", "**", "*a", 7, "a/b"]
)
def test_what_is_no_name_of_a_host(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is not a host name"):
        Security(hosts=(wrong,))


@given(st.text(max_size=60))
def test_reading_a_host_never_raises(text: str) -> None:
    found = host_of(text)
    if found is not None:
        host, port = found
        assert host == host.lower()
        assert not port or port.isdigit()
        assert (
            not Hosts(()).has(host) or host == "localhost" or host.endswith(".localhost") or is_address(host)
        )


def is_address(host: str) -> bool:
    return all(letter in "0123456789abcdef.:" for letter in host)


# ---- pages in browsers


@each_row(
    ("origin", "host", "secure", "allowed"),
    [
        ("http://localhost:8080", "localhost:8080", False, True),
        ("HTTP://LOCALHOST:8080", "localhost:8080", False, True),
        ("http://localhost", "localhost:80", False, True),
        ("https://localhost", "localhost:443", True, True),
        ("http://[::1]:8080", "[::1]:8080", False, True),
        ("https://app.example", "localhost:8080", False, True),
        ("https://app.example:443", "localhost:8080", False, True),
        ("chrome-extension://abcdef", "localhost:8080", False, True),
        ("https://localhost:8080", "localhost:8080", False, False),
        ("http://localhost:8080", "localhost:8080", True, False),
        ("http://localhost:8081", "localhost:8080", False, False),
        ("http://127.0.0.1:8080", "localhost:8080", False, False),
        ("http://app.example", "localhost:8080", False, False),
        ("https://app.example:8443", "localhost:8080", False, False),
        ("https://app.example.evil.example", "localhost:8080", False, False),
        ("https://evil.example", "localhost:8080", False, False),
        ("https://evil.example/https://app.example", "localhost:8080", False, False),
        ("https://app.example@evil.example", "localhost:8080", False, False),
        ("null", "localhost:8080", False, False),
        ("", "localhost:8080", False, False),
        ("app.example", "localhost:8080", False, False),
        ("https://app.example https://evil.example", "localhost:8080", False, False),
        ("https://app.example", None, False, True),
        ("http://localhost", None, False, False),
    ],
)
def test_pages_in_browsers(origin: str, host: str | None, secure: bool, allowed: bool) -> None:
    guard = guard_of(Security(origins=("https://app.example", "chrome-extension://abcdef")))
    shown = request(host=host, secure=secure, origin=origin)
    assert guard.is_origin_allowed(shown) == allowed
    assert who(guard.admit(shown, 0.0)) == (None if allowed else 403)


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [("https://weather.example", True), ("http://weather.example", True), ("https://other.example", False)],
)
def test_pages_that_come_by_a_proxy_are_our_own(origin: str, allowed: bool) -> None:
    guard = guard_of(
        Security(), hosts=("weather.example",), public_url="wss://weather.example/agents-of-ours"
    )
    shown = request(host="weather.example", secure=False, origin=origin)
    assert who(guard.admit(shown, 0.0)) == (None if allowed else 403)
    assert guard.cors(shown) == ()


def test_without_origins_only_own_pages_are_allowed_and_cors_is_off() -> None:
    guard = guard_of(Security())
    shown = request(origin="https://app.example", access_control_request_method="PUT")
    assert who(guard.admit(shown, 0.0)) == 403
    assert guard.cors(shown) == ()
    assert guard.preflight(shown) == ()


def test_two_origins_are_none() -> None:
    guard = guard_of(Security(origins=("https://a.example",)))
    both = tuple((b"origin", each) for each in (b"https://a.example", b"https://a.example"))
    assert who(guard.admit(RequestContext.of(both, "p", secure=False), 0.0)) == 403
    assert b"access-control-allow-origin" not in dict(guard.cors(RequestContext.of(both, "p", secure=False)))


def test_cors_headers_of_an_allowed_page() -> None:
    guard = guard_of(Security(origins=("https://app.example",)))
    shown = request(origin="https://App.example")
    assert dict(guard.cors(shown)) == {
        b"access-control-allow-origin": b"https://App.example",
        b"access-control-expose-headers": (
            b"ETag, Link, Location, Mcp-Session-Id, Retry-After, WWW-Authenticate"
        ),
        b"vary": b"Origin",
    }
    assert dict(guard.cors(request())) == {b"vary": b"Origin"}  # caches must know
    assert dict(guard.cors(request(origin="https://evil.example"))) == {b"vary": b"Origin"}
    assert guard.preflight(shown) is None  # an OPTIONS that is no preflight
    told = guard.preflight(request(origin="https://app.example", access_control_request_method="PUT"))
    assert told is not None
    assert {b"PUT", b"DELETE"} <= set(dict(told)[b"access-control-allow-methods"].split(b", "))
    for each in (b"Authorization", b"If-Match", b"LMOS-Remaining", b"Last-Event-ID", b"Prefer"):
        assert each in dict(told)[b"access-control-allow-headers"].split(b", ")
    assert b"access-control-allow-private-network" not in dict(told)
    assert b"access-control-allow-credentials" not in dict(told)  # nothing that a browser adds by itself
    inside = guard.preflight(
        request(
            origin="https://app.example",
            access_control_request_method="PUT",
            access_control_request_private_network="true",
        )
    )
    assert inside is not None
    assert dict(inside)[b"access-control-allow-private-network"] == b"true"
    stranger = request(origin="https://evil.example", access_control_request_method="PUT")
    assert dict(guard.preflight(stranger) or ()) == {b"vary": b"Origin"}


@pytest.mark.parametrize(
    "wrong", ["*", "null", "app.example", "https://", "https://a/b", "https://a b", 7, ""]
)
def test_what_is_no_origin(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is not an origin"):
        Security(origins=(wrong,))


@given(st.text(max_size=60) | st.from_regex(r"[a-z]{1,5}://[a-z0-9.:@/\[\]-]{0,20}", fullmatch=True))
def test_reading_an_origin_never_raises_and_reads_its_own_writing(text: str) -> None:
    found = origin_of(text)
    assert found is None or origin_of(found) == found


# ---- how often


def test_addresses_that_are_wrong_too_often_are_heard_no_more() -> None:
    guard = guard_of(Security(schemes=(BEARER,), failures=Rate(0.5, 3)))
    for _ in range(3):
        assert refused(guard, "Bearer x").status == 401
    found = refused(guard, "Bearer x")
    assert (found.status, found.retry_in) == (429, 2.0)
    assert found.headers == ((b"retry-after", b"2"),)
    assert refused(guard, f"Bearer {TOKEN}").status == 429  # else a guess that is right would be told apart
    assert refused(guard).status == 401  # without credentials nothing is guessed
    assert refused(guard, "Bearer x", peer="192.0.2.2:1").status == 401
    assert refused(guard, f"Bearer {TOKEN}", now=1.9, peer="192.0.2.1:9").status == 429
    assert admitted(guard, f"Bearer {TOKEN}", now=2.0).principal == Principal("alice", "bearer")
    assert refused(guard, "Bearer x", now=2.0).status == 401
    assert refused(guard, "Bearer x", now=2.0).status == 429


def test_good_credentials_cost_nothing() -> None:
    guard = guard_of(Security(schemes=(BEARER,), failures=Rate(0.5, 1)))
    for _ in range(50):
        admitted(guard, f"Bearer {TOKEN}")
    assert refused(guard, "Bearer x").status == 401


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("192.0.2.1:80", "192.0.2.1"),
        ("[2001:db8::1]:80", "2001:db8::/64"),
        ("[2001:db8::ffff:1]:80", "2001:db8::/64"),
        ("[2001:db8:0:1::1]:80", "2001:db8:0:1::/64"),
        ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ("[fe80::1%eth0]:80", "fe80::/64"),
        ("memory", "memory"),
        ("somewhere:1", "somewhere"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_a_rate_for_each_principal() -> None:
    security = Security(schemes=(BEARER, BASIC), access={"open": Access(read=ANYONE)}, rate=Rate(1.0, 2))
    guard = guard_of(security)
    alice, again = (admitted(guard, f"Bearer {TOKEN}", peer=peer) for peer in ("a:1", "b:2"))
    bob, nobody = admitted(guard, basic("bob", PASSWORD)), admitted(guard)
    alice.check("desk", "read", 0.0)
    again.check("desk", "read", 0.0)  # one account over all connections
    with pytest.raises(RateLimited) as caught:
        alice.check("desk", "read", 0.0)
    assert caught.value.retry_in == 1.0
    with pytest.raises(RateLimited):
        again.check("desk", "read", 0.5)
    bob.check("desk", "read", 0.5)
    nobody.check("open", "read", 0.5)
    alice.check("desk", "read", 1.0)


def test_whoever_is_called_like_an_address_has_an_account_of_their_own(monkeypatch) -> None:
    monkeypatch.setenv("S1_ODD", "odd-token")
    schemes = (NoSec(), Bearer({"192.0.2.1": "env:S1_ODD"}))
    guard = guard_of(Security(schemes=schemes, access={"*": Access(read=ANYONE)}, rate=Rate(1.0, 1)))
    admitted(guard).check("desk", "read", 0.0)
    admitted(guard, "Bearer odd-token").check("desk", "read", 0.0)
    with pytest.raises(RateLimited):
        admitted(guard).check("desk", "read", 0.0)


def test_what_is_not_allowed_costs_as_well() -> None:
    guard = guard_of(Security(schemes=(BEARER,), access={"*": Access(write=("carol",))}, rate=Rate(1.0, 1)))
    alice = admitted(guard, f"Bearer {TOKEN}")
    assert not alice.allows("desk", "write")  # free
    with pytest.raises(Forbidden, match="alice may not write here"):
        alice.check("desk", "write", 0.0)
    with pytest.raises(RateLimited):
        alice.check("desk", "read", 0.0)


def test_rates_are_kept_for_so_many_names_only() -> None:
    buckets = Buckets(Rate(1.0, 1), 100)
    assert buckets.take("first", 0.0) == 0.0
    assert buckets.take("first", 0.0) == 1.0
    for n in range(1000):
        buckets.take(f"n{n}", 0.0)
    assert len(buckets) == 100
    assert buckets.take("first", 0.0) == 0.0  # forgotten
    assert buckets.take("n999", 0.0) == 1.0
    for n in range(2000, 2300):
        buckets.take(f"n{n}", 0.0)
        buckets.take("n999", 0.0)  # heard of all the time, so never forgotten
    assert buckets.take("n999", 0.0) == 1.0


@given(st.floats(0.01, 1000), st.integers(1, 20), st.lists(st.floats(0, 10), max_size=60))
def test_no_more_than_burst_and_rate_are_let_through(
    per_second: float, burst: int, gaps: list[float]
) -> None:
    buckets = Buckets(Rate(per_second, burst))
    now, through = 5.0, 0
    for gap in gaps:
        now += gap
        wait = buckets.take("x", now)
        if wait:
            assert buckets.wait("x", now) == wait
            assert buckets.wait("x", now + wait) == 0.0
        else:
            through += 1
    assert through <= burst + (now - 5.0) * per_second + 1e-3


@pytest.mark.parametrize("wrong", [(0, 1), (-1, 1), (float("nan"), 1), (float("inf"), 1), (1, 0)])
def test_rates_that_are_none(wrong: tuple[float, int]) -> None:
    with pytest.raises(ConfigError):
        Rate(*wrong)


def test_who_was_away_for_long_has_no_more_than_a_burst() -> None:
    buckets = Buckets(Rate(1.0, 3))
    assert [buckets.take("x", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
    assert [buckets.take("x", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    buckets = Buckets(Rate(1.0, 1))
    assert buckets.take("x", 100.0) == 0.0
    assert buckets.take("x", 0.0) == 1.0
    assert buckets.take("x", 100.5) == 0.5


# ---- schemes together


def test_nosec_beside_other_schemes_opens_open_lists_only() -> None:
    guard = guard_of(Security(schemes=(NoSec(), BEARER), access={"open": Access(invoke=ANYONE)}))
    nobody = admitted(guard)
    nobody.check("open", "invoke", 0.0)
    with pytest.raises(Unauthorized):
        nobody.check("desk", "invoke", 0.0)
    admitted(guard, f"Bearer {TOKEN}").check("desk", "invoke", 0.0)


@each_row(
    ("make", "why"),
    [
        (lambda: Security(schemes=(BEARER, BEARER)), "two schemes of the kind bearer"),
        (lambda: Security(schemes=("bearer",)), "a scheme is needed"),
        (lambda: Security(access={"a": AUTHENTICATED}), "access maps"),
        (lambda: Security(access=[("a", Access())]), "access maps"),
        (lambda: Security(origins="https://a.example"), r"did you mean \('https://a.example',\)"),
        (lambda: Bearer({"anyone": "env:S1_ALICE"}), "'anyone'"),
        (lambda: Bearer({"scope:x": "env:S1_ALICE"}), "'scope:x'"),
        (lambda: Bearer({"": "env:S1_ALICE"}), "printable text"),
        (lambda: Bearer({"a\nb": "env:S1_ALICE"}), "printable text"),
        (lambda: Bearer({7: "env:S1_ALICE"}), "printable text"),
        (lambda: Bearer({"alice": ()}), "needs a secret"),
        (lambda: Bearer("env:S1_ALICE"), "mapping of names"),
        (lambda: Basic({"a:b": "env:S1_BOB"}), "colon"),
        (lambda: ClientCertificates({"alice": "alice.example"}), "write a certificate as sha256: and 64"),
        (lambda: ClientCertificates({"alice": "sha256:xx"}), "write a certificate as sha256: and 64"),
        (lambda: ClientCertificates({"alice": 7}), "write a certificate as sha256: and 64"),
        (lambda: ClientCertificates(7), "mapping of names"),
        (lambda: Access(read="alice"), r"did you mean \('alice',\)"),
        (lambda: Access(read=("anyone",)), "give the word alone"),
        (lambda: Access(read=7), "is needed"),
        (lambda: Access(read=(7,)), "is needed"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


def test_principals_with_the_same_secret_are_reported() -> None:
    with pytest.raises(ConfigError, match="alice and eve have the same secret") as caught:
        guard_of(Security(schemes=(Bearer({"alice": "env:S1_ALICE", "eve": "env:S1_ALICE"}),)))
    assert TOKEN not in str(caught.value)
    guard_of(
        Security(schemes=(Basic({"bob": "env:S1_BOB", "eve": "env:S1_BOB"}),))
    )  # of passwords nobody knows


def test_principals_with_the_same_certificate_are_reported() -> None:
    with pytest.raises(ConfigError, match="alice and eve have the same certificate: it counts for alice"):
        guard_of(Security(schemes=(ClientCertificates({"alice": "name:x", "eve": "name:X"}),)))


def test_a_token_that_can_never_be_presented_is_reported() -> None:
    with pytest.raises(ConfigError, match="env:S1_BOB: holds characters that no bearer token can have"):
        guard_of(Security(schemes=(Bearer({"bob": "env:S1_BOB"}),)))


HEADER_NAMES = st.sampled_from(
    [b"host", b"origin", b"authorization", b"cookie", b"access-control-request-method", b"x"]
)
HEADER_VALUES = st.binary(max_size=40) | st.sampled_from(
    [
        b"localhost",
        b"https://a.example",
        f"Bearer {TOKEN}".encode(),
        basic("bob", PASSWORD).encode(),
        b"Bearer",
    ]
)


@given(st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=5), st.text(max_size=30), st.booleans())
def test_nothing_that_is_sent_breaks_the_guard(
    headers: list[tuple[bytes, bytes]], peer: str, public: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("S1_ALICE", TOKEN)
        patched.setenv("S1_BOB", PASSWORD)
        schemes = (Bearer({"alice": "env:S1_ALICE"}), BASIC)
        guard = guard_of(Security(schemes=schemes, origins=("https://a.example",)))
    brought = RequestContext.of(tuple(headers), peer, secure=True)
    found = guard.admit(brought, 0.0, public=public)
    values = [value for name, value in headers if name == b"authorization"]
    good = {f"Bearer {TOKEN}".encode(): "alice", basic("bob", PASSWORD).encode(): "bob"}
    if isinstance(found, Admission):
        expected = None if not values else good[values[0].strip()]
        assert who(found) == expected
        assert (public and not values) or len(values) == 1
    else:
        assert found.status in (400, 401, 403)
    assert isinstance(guard.cors(brought), tuple)
    assert guard.preflight(brought) is None or b"access-control-request-method" in dict(headers)
