"""DNS-SD: what is announced is heard, and what others announce is checked."""

from __future__ import annotations

import socket
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import ConfigError
from lmos_actors.discovery import (
    Announcement,
    Announcer,
    DiscoveredService,
    addresses_of,
    browse,
    name_of,
)
from lmos_actors.errors import ForbiddenCall

HERE = ["127.0.0.1"]
SERVICE = "_wot._tcp.local."

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


@pytest.mark.slow
@pytest.mark.skipif(not multicasts(), reason="no multicast at the loopback interface of this machine")
def test_what_is_announced_is_heard() -> None:
    async def main() -> None:
        announcer = Announcer(interfaces=HERE)
        thing = Announcement("weather 8080", 8080, ("127.0.0.1",))
        hosted = Announcement("registry", 8081, ("127.0.0.1",), path="/td", is_directory=True)
        awaited = {
            DiscoveredService("weather 8080", "http://127.0.0.1:8080/.well-known/wot"),
            DiscoveredService("registry", "http://127.0.0.1:8081/td", is_directory=True),
        }
        with trio.fail_after(40):
            try:
                await announcer.open([thing, hosted])
                while not awaited <= set(await browse(1.5, interfaces=HERE)):
                    pass
            finally:
                await announcer.close()

    trio.run(main)


class FakeNetwork:
    """What stands for the library: everybody in `names` announces something."""

    Error = zeroconf.Error
    NonUniqueNameException = zeroconf.NonUniqueNameException
    ServiceInfo = zeroconf.ServiceInfo

    def __init__(self, *names: str, kind: int = 0) -> None:
        self.names = names
        self.kind = kind
        self.asked = 0
        self.closed = threading.Event()
        self.taken: list[str] = []

    def Zeroconf(self, **_: Any) -> Any:
        return self

    def ServiceBrowser(self, _: Any, kinds: list[str], listener: Any) -> Any:
        for name in self.names:
            listener.add_service(self, kinds[self.kind], name)
        return SimpleNamespace(cancel=lambda: None)

    def register_service(self, info: Any, **_: Any) -> None:
        if info.name in self.taken:
            raise zeroconf.NonUniqueNameException
        self.taken.append(info.name)

    def close(self) -> None:
        self.closed.set()


class Info(zeroconf.ServiceInfo):  # type: ignore[name-defined,misc]
    """An announcement that has been received."""

    def load_from_cache(self, *_: Any) -> bool:
        return True


def found_of(monkeypatch: pytest.MonkeyPatch, info: Any, *, kind: int = 0) -> list[DiscoveredService]:
    """Return what browsing makes of an announcement, of a thing, or as a directory."""
    fake = FakeNetwork(info.name, kind=kind)
    fake.ServiceInfo = lambda _, name: {info.name: info}[name]
    monkeypatch.setitem(sys.modules, "zeroconf", fake)  # type: ignore[arg-type]
    found: list[DiscoveredService] = trio.run(browse, 0.0)
    return found


def said(**changes: Any) -> Any:
    told: dict[str, Any] = {
        "port": 80,
        "parsed_addresses": ["10.0.0.7"],
        "properties": {"td": "/td"},
        "server": "rome.local.",
        **changes,
    }
    return Info(SERVICE, f"weather.{SERVICE}", **told)


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
def test_what_others_announce_is_checked(monkeypatch: pytest.MonkeyPatch, info: Any, url: str | None) -> None:
    expected = [] if url is None else [DiscoveredService("weather", url)]
    assert found_of(monkeypatch, info) == expected


@pytest.mark.parametrize(("properties", "kind"), [({"type": "Directory"}, 0), ({}, 1)])
def test_a_directory_says_so(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], kind: int) -> None:
    assert found_of(monkeypatch, said(properties=properties), kind=kind) == [
        DiscoveredService("weather", "http://10.0.0.7:80/.well-known/wot", is_directory=True)
    ]


def test_a_name_does_not_move_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    info = said()
    info.name = f"\x1b[2J{'x' * 99}.{SERVICE}"
    (found,) = found_of(monkeypatch, info, kind=1)
    assert found.name == "?[2J" + "x" * 59


def test_what_listens_at_loopback_is_not_for_others() -> None:
    with pytest.raises(ConfigError, match="cannot be reached from the network"):
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


def test_whoever_gives_up_browsing_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNetwork()
    monkeypatch.setitem(sys.modules, "zeroconf", fake)  # type: ignore[arg-type]

    async def main() -> None:
        with trio.move_on_after(0.01) as scope:
            await browse(3600.0)
        assert scope.cancelled_caught
        assert await trio.to_thread.run_sync(fake.closed.wait, 30)

    trio.run(main)


def test_a_network_full_of_names_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNetwork(*(f"weather {number}.{SERVICE}" for number in range(300)))
    asked: list[str] = []

    class Unknown(zeroconf.ServiceInfo):  # type: ignore[name-defined,misc]
        def load_from_cache(self, *_: Any) -> bool:
            return False

        def request(self, *_: Any) -> bool:
            asked.append(self.name)
            monkeypatch.setattr(time, "monotonic", lambda: 1e9)
            return False

    fake.ServiceInfo = Unknown
    monkeypatch.setitem(sys.modules, "zeroconf", fake)  # type: ignore[arg-type]
    assert trio.run(browse, 0.0) == []
    assert len(asked) == 1


def test_names_that_are_taken_get_numbers_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNetwork()
    monkeypatch.setitem(sys.modules, "zeroconf", fake)  # type: ignore[arg-type]

    async def main() -> None:
        announcer = Announcer()
        hosted = Announcement("weather", 8080, ("10.0.0.7",), is_directory=True)
        await announcer.open([hosted] * 9)
        names = ["weather", *(f"weather ({number})" for number in range(2, 10))]
        assert fake.taken == [f"{name}.{SERVICE}" for name in names]
        with pytest.raises(ConfigError, match="NonUniqueName"):
            await announcer.open([hosted])
        await announcer.close()
        assert fake.closed.is_set()

    trio.run(main)


@given(st.text())
def test_any_text_makes_a_name(text: str) -> None:
    name = name_of(text)
    zeroconf.ServiceInfo(SERVICE, f"{name} directory (12).{SERVICE}", port=1, server="a.local.")
    assert name == name_of(name)
    assert name.isprintable()


def test_a_name_that_fits_stays() -> None:
    assert name_of("Café 8080") == "Café 8080"
    assert name_of("é" * 50) == "é" * 22
    assert name_of("\x1b\n") == "agents"
