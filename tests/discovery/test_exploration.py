"""From an address to the agents that are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import About, Agent, ConfigError, action, open_node
from lmos_actors.errors import ConnectFailed, ForbiddenCall
from tests.discovery.fake import FakeDirectory, directory_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Weather(Agent, about=About(capabilities=("weather",))):
    """Answers questions about the weather."""

    @action
    def where(self) -> str:
        return "here"


class Clock(Agent):
    """Tells the time."""


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


def test_every_kind_of_address() -> None:
    async def main() -> None:
        async with (
            open_node(listen="ws://hub:80", directory=True),
            open_node(listen="ws://rome:80", register="http://hub") as rome,
            open_node() as node,
        ):
            await rome.start(Weather)
            await trio.sleep(1)
            for source in ("rome", "http://rome", "rome:80", "http://rome/agents/weather"):
                found = await node.discover(source)
                assert [each.name for each in found.things] == ["weather"]
                assert found.left_out == ()
                assert found.things[0].url == (
                    "http://rome/agents/weather" if "agents" in source else "http://rome/.well-known/wot"
                )
            await rome.start(Clock)
            await trio.sleep(1)
            found = await node.discover("rome")
            assert [each.name for each in found.things] == ["weather", "clock"]
            ref = found.things[0].ref(Weather)
            await ref.ready()
            assert await ref.invoke(Weather.where) == "here"
            found = await node.discover("hub", capability="weather")
            assert [each.name for each in found.things] == ["weather"]
            assert found.directories == ("http://hub",)
            assert (await node.discover("rome", title="Tea")).things == ()

    run(main)


@pytest.mark.parametrize("source", ["ws://rome", "ftp://rome", "http://", "http://u:p@rome", "ro me"])
def test_what_is_no_address(source: str) -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(ConfigError):
                await node.discover(source)

    run(main)


@pytest.mark.parametrize("raw", [b"7", b'"x"', b"null", b"[", b"{", b"\xff"])
def test_what_is_no_description(raw: bytes) -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.raw = raw
        async with directory_at("http://rome:80", fake), open_node() as node:
            with pytest.raises(ConnectFailed):
                await node.discover("rome")

    run(main)


def test_a_wellknown_answer_is_checked_and_no_other_server_is_asked() -> None:
    async def main() -> None:
        thing = {
            "@context": "https://www.w3.org/2022/wot/td/v1.1",
            "title": "node",
            "id": "urn:x:1",
            "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
            "security": "nosec_sc",
            "links": [
                {"rel": "item", "href": "http://elsewhere/things"},
                {"rel": "item", "href": "http://169.254.169.254/"},
                {"rel": "item", "href": "file:///etc/passwd"},
                {"rel": "item", "href": 7},
                7,
            ],
        }
        fake = FakeDirectory()
        fake.raw = json.dumps(thing).encode()
        async with (
            directory_at("http://rome:80", fake),
            directory_at("http://elsewhere:80") as elsewhere,
            open_node() as node,
        ):
            found = await node.discover("rome")
            assert found.things == ()
            assert [each.rpartition(": ")[2] for each in found.left_out] == ["it is at another server"] * 3
            assert elsewhere.asked == []
            fake.raw = json.dumps([{**thing, "links": []}, {"title": 3}, 4]).encode()
            found = await node.discover("rome")
            assert [each.title for each in found.things] == ["node"]
            assert len(found.left_out) == 2

    run(main)


def test_this_network_is_not_there_on_virtual_time() -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(ForbiddenCall, match="virtual time"):
                await node.discover("mdns")
        with pytest.raises(ForbiddenCall, match="virtual time"):
            async with open_node(listen="ws://here:80", announce=True):
                pass
        with pytest.raises(ConfigError, match="listen"):
            async with open_node(announce=True):
                pass

    run(main)
