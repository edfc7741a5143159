"""DNS-SD: what is announced is heard, and what others announce is checked."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest
import trio

from lmos_actors import ConfigError, ForbiddenCall
from lmos_actors.discovery import Announced, Announcement, Announcer, addresses_of, browse
from lmos_actors.discovery._mdns import SERVICE, announced_by

HERE = ["127.0.0.1"]

zeroconf = pytest.importorskip("zeroconf")


def multicasts() -> bool:
    """Whether a datagram to a group comes back here."""
    group = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("", 0))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            sock.settimeout(1)
            sock.sendto(b"x", ("224.0.0.251", sock.getsockname()[1]))
            return sock.recv(9) == b"x"
    except OSError:
        return False


@pytest.mark.skipif(not multicasts(), reason="no multicast at the loopback interface of this machine")
def test_what_is_announced_is_heard() -> None:
    async def main() -> None:
        announcer = Announcer(interfaces=HERE)
        thing = Announcement("weather 8080", 8080, ("127.0.0.1",))
        hosted = Announcement("registry", 8081, ("127.0.0.1",), path="/td", is_directory=True)
        with trio.fail_after(60):
            try:
                await announcer.open([thing, hosted])
                heard = await browse(3.0, interfaces=HERE)
            finally:
                await announcer.close()
        assert Announced("weather 8080", "http://127.0.0.1:8080/.well-known/wot") in heard
        assert Announced("registry", "http://127.0.0.1:8081/td", is_directory=True) in heard

    trio.run(main)


def said(**changes: Any) -> Any:
    told: dict[str, Any] = {
        "port": 80,
        "parsed_addresses": ["10.0.0.7"],
        "properties": {"td": "/td"},
        "server": "rome.local.",
        **changes,
    }
    return zeroconf.ServiceInfo(SERVICE, f"weather.{SERVICE}", **told)


@pytest.mark.parametrize(
    ("info", "url"),
    [
        (said(), "http://10.0.0.7:80/td"),
        (said(properties={}), "http://10.0.0.7:80/.well-known/wot"),
        (said(properties={"scheme": "https", "td": "/a?b"}), "https://rome.local:80/a?b"),
        (said(parsed_addresses=["fd00::1", "10.0.0.7"]), "http://10.0.0.7:80/td"),
        (said(parsed_addresses=["fd00::1"]), "http://[fd00::1]:80/td"),
        (said(parsed_addresses=["127.0.0.1", "10.0.0.7"]), "http://10.0.0.7:80/td"),
        (said(parsed_addresses=["127.0.0.1"]), None),
        (said(parsed_addresses=["169.254.169.254"]), None),
        (said(parsed_addresses=[]), None),
        (said(port=0), None),
        (said(properties={"scheme": "coap+tcp"}), None),
        (said(properties={"scheme": "file"}), None),
        (said(properties={"td": "//evil/x"}), None),
        (said(properties={"td": "@evil/x"}), None),
        (said(properties={"td": "/a b"}), None),
        (said(properties={"td": "/\r\nHost: evil"}), None),
        (said(properties={"td": "/" + "x" * 200, b"\xff": b"\xff"}), "http://10.0.0.7:80/" + "x" * 200),
        (said(properties={"scheme": "https"}, server="localhost."), "https://10.0.0.7:80/.well-known/wot"),
    ],
)
def test_what_others_announce_is_checked(info: Any, url: str | None) -> None:
    found = announced_by(info, is_directory=False)
    assert (None if found is None else found.url) == url


def test_a_directory_says_so() -> None:
    assert announced_by(said(properties={"type": "Directory"}), is_directory=False) == Announced(
        "weather", "http://10.0.0.7:80/.well-known/wot", is_directory=True
    )


def test_a_name_does_not_move_the_cursor() -> None:
    info = said()
    info.name = f"\x1b[2J{'x' * 99}.{SERVICE}"
    found = announced_by(info, is_directory=True)
    assert found is not None
    assert found.name == "?[2J" + "x" * 59


def test_what_listens_at_loopback_is_not_for_others() -> None:
    with pytest.raises(ConfigError, match="cannot be reached by others"):
        addresses_of(["127.0.0.1", "localhost"])
    assert addresses_of(["10.0.0.7"]) == ("10.0.0.7",)


def test_neither_is_possible_on_virtual_time() -> None:
    with pytest.raises(ForbiddenCall):
        Announcer(real=False)
    with pytest.raises(ForbiddenCall):
        trio.run(lambda: browse(real=False))


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zeroconf", "ifaddr"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'lmos-actors\[mdns\]'"):
        addresses_of(["0.0.0.0"])
    with pytest.raises(ConfigError, match=r"pip install 'lmos-actors\[mdns\]'"):
        trio.run(browse)
