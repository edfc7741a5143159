"""What this side presents: to the place it is for, to no other, and not in the open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors import ConfigError
from lmos_actors.security import BasicAuth, BearerToken, Credentials, SecretBytes, is_loopback
from tests.security.sample_credentials import basic, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def secrets_of_the_test(monkeypatch) -> None:
    monkeypatch.setenv("S1_TOKEN", "the-token")
    monkeypatch.setenv("S1_PASSWORD", "pässword")


PLACE = "https://weather.example:8443"


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://weather.example:8443", True),
        ("https://weather.example:8443/agents/x?y=z#f", True),
        ("wss://weather.example:8443/ws", True),
        ("HTTPS://Weather.Example.:8443/", True),
        ("http://weather.example:8443/", False),
        ("ws://weather.example:8443/", False),
        ("https://weather.example/", False),
        ("https://weather.example:443/", False),
        ("https://weather.example:8444/", False),
        ("https://weather.example.evil.example:8443/", False),
        ("https://evil.example:8443/weather.example", False),
        ("https://evil.example:8443/?https://weather.example:8443", False),
        ("https://sub.weather.example:8443/", False),
        ("https://example:8443/", False),
        ("https://weather.example:08443/", True),
        ("https://[::1]:8443/", False),
    ],
)
def test_credentials_go_where_they_belong(url: str, sent: bool) -> None:
    kept = Credentials({PLACE: BearerToken("env:S1_TOKEN")})
    assert kept.headers_for(url, 0.0) == (((b"authorization", b"Bearer the-token"),) if sent else ())
    assert (kept.credential_for(url) is not None) == sent


@pytest.mark.parametrize(
    "url",
    ["https://weather.example@evil.example:8443/", "https://u:p@weather.example:8443/", "ftp://weather.example:8443",
     "weather.example:8443", "", "https://", "https://[::1", "https://weather.example:99999", "https://a:b",
     "file:///etc/passwd"],
)  # fmt: skip
def test_what_names_no_place_gets_none(url: str) -> None:
    kept = Credentials({PLACE: BearerToken("env:S1_TOKEN")})
    with pytest.raises(ConfigError) as caught:
        kept.headers_for(url, 0.0)
    assert ":p@" not in str(caught.value)


@given(
    st.text(max_size=40) | st.from_regex(r"(https|wss|http)://[a-z.:@\\/0-9\[\]#?%]{0,30}", fullmatch=True)
)
def test_no_url_but_its_own_gets_any(url: str) -> None:
    kept = Credentials({"https://a.b:1": BearerToken("env:S1_TOKEN")})
    try:
        found = kept.headers_for(url, 0.0)
    except ConfigError:
        return
    assert found == () or url.lower().replace("wss", "https").startswith(("https://a.b:1", "https://a.b.:1"))


def test_the_default_port_may_be_left_out() -> None:
    kept = Credentials({"https://a.example": BearerToken("env:S1_TOKEN")})
    assert kept.headers_for("wss://a.example:443/x", 0.0)
    assert kept.headers_for("https://a.example/", 0.0)
    assert not kept.headers_for("https://a.example:80/", 0.0)


def test_user_and_password() -> None:
    kept = Credentials({PLACE: BasicAuth("bob", "env:S1_PASSWORD")})
    assert kept.headers_for(PLACE, 0.0) == ((b"authorization", basic("bob", "pässword").encode()),)
    assert isinstance(kept.headers_for(PLACE, 0.0)[0][1], SecretBytes)


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("http://localhost:8080", True),
        ("ws://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:80", True),
        ("http://weather.example", False),
        ("ws://192.168.1.2:80", False),
        ("http://0.0.0.0:80", False),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
    ],
)
def test_nothing_travels_in_the_open_but_inside_this_machine(url: str, fine: bool) -> None:
    known: Any = {url: BearerToken("env:S1_TOKEN")}
    if fine:
        assert Credentials(known).headers_for(url, 0.0)
        return
    with pytest.raises(ConfigError, match="without TLS"):
        Credentials(known)
    assert Credentials(known, allow_insecure=True).headers_for(url, 0.0)


def test_addresses_of_this_machine_are_told_from_others() -> None:
    assert all(map(is_loopback, ["localhost", "LOCALHOST.", "127.0.0.1", "127.255.0.1", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["", "a", "0.0.0.0", "::", "localhost.a", "x.localhost", "128.0.0.1"]))


def test_a_token_that_changes_is_sent_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "token"
    kept = Credentials({PLACE: BearerToken(write(path, "one\n"))})
    assert told(kept, 0.0) == b"Bearer one"
    write(path, "two\nthree\n")
    assert told(kept, 0.5) == b"Bearer one"
    assert told(kept, 1.0) == b"Bearer two"
    path.unlink()
    assert told(kept, 1.5) == b"Bearer two"
    for now in (2.0, 2.1, 3.0):
        with pytest.raises(ConfigError, match="No such file"):
            told(kept, now)
    write(path, "four")
    assert told(kept, 4.0) == b"Bearer four"


def told(kept: Credentials, now: float) -> bytes:
    ((_, value),) = kept.headers_for(PLACE, now)
    return value


@pytest.mark.parametrize("text", ["two words", "line\x0bend", "ümlaut", 'quo"te'])
def test_an_invalid_token_is_reported_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="token: is not a token") as caught:
        Credentials({PLACE: BearerToken(write(tmp_path / "token", text))})
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Credentials({PLACE: BearerToken("env:S1_NONE")}), "env:S1_NONE: the variable is not set"),
        (lambda: Credentials({PLACE: BearerToken("the-token")}), "the secret itself does not belong here"),
        (lambda: Credentials({f"{PLACE}/agents": BearerToken("env:S1_TOKEN")}), "for a whole host"),
        (lambda: Credentials({f"{PLACE}?x": BearerToken("env:S1_TOKEN")}), "for a whole host"),
        (lambda: Credentials({"weather": BearerToken("env:S1_TOKEN")}), "need a http, https, ws or wss URL"),
        (
            lambda: Credentials(
                {"https://a": BearerToken("env:S1_TOKEN"), "wss://A.:443": BearerToken("env:S1_TOKEN")}
            ),
            "two credentials",
        ),
        (lambda: Credentials({PLACE: "env:S1_TOKEN"}), "BearerToken"),
        (lambda: BasicAuth("", "env:S1_TOKEN"), "the name of a user"),
        (lambda: BasicAuth("a:b", "env:S1_TOKEN"), "the name of a user"),
        (lambda: BasicAuth("a\nb", "env:S1_TOKEN"), "the name of a user"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


def test_none_at_all() -> None:
    assert Credentials().headers_for("https://a.example", 0.0) == ()
    assert repr(Credentials()) == "Credentials({})"
