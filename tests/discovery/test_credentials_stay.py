"""Credentials are for the place that they were given for: they do not follow where a directory points."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import Agent, AgentUnavailable, LmosActorsError, action, open_node
from lmos_actors.security import BearerToken, Credentials
from tests.discovery.fake import FakeDirectory, directory_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DIRECTORY = "http://directory:81"
LMOS = "lmosprotocol"


class Clock(Agent):
    """Tells the time."""

    @action
    def tick(self) -> str:
        return ""


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "for-the-directory")
    monkeypatch.setenv("TWO", "for-the-agent")


def credentials(**more: str) -> Credentials:
    known = {
        DIRECTORY: BearerToken("env:ONE"),
        **{f"http://{at}": BearerToken(ref) for at, ref in more.items()},
    }
    return Credentials(known, allow_insecure=True)


def _told(href: str) -> dict[str, Any]:
    subprotocol = {"subprotocol": LMOS} if href.startswith("ws") else {}
    tick = {"output": {"type": "string"}, "forms": [{"href": href, "op": "invokeaction", **subprotocol}]}
    return {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "id": "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10",
        "title": "Clock",
        "securityDefinitions": {"bearer_sc": {"scheme": "bearer"}},
        "security": "bearer_sc",
        "actions": {"tick": tick},
    }


def shown(server: FakeDirectory) -> set[str | None]:
    """What was presented to it, request by request."""
    return {each.get("authorization") for each in server.headers}


@pytest.mark.parametrize("how", ["find", "spread", "search"])
@pytest.mark.parametrize(
    "href",
    [
        "ws://elsewhere:80/ws",
        "http://elsewhere:80/time",
        "ws://directory:80/ws",
        "http://directory:80/time",
        "http://directory.elsewhere:80/time",
    ],
)
def test_a_found_agent_does_not_get_the_directory_credentials(href: str, how: str) -> None:
    async def main() -> None:
        directory, there = FakeDirectory(), FakeDirectory()
        directory.searches, directory.extra = False, [_told(href)]
        there.broken = 401
        async with (
            directory_at(DIRECTORY, directory),
            directory_at(f"http://{href.split('/')[2]}", there),
            open_node(lookup=DIRECTORY, credentials=credentials()) as node,
        ):
            if how == "search":
                ref = (await node.search(Clock))[0].ref(Clock)
            else:
                ref = node.find(Clock, spread="round_robin" if how == "spread" else None)
            with pytest.raises(LmosActorsError):
                await ref.within(5).invoke(Clock.tick)
            await trio.sleep(1)  # it connects behind that
            assert shown(directory) == {"Bearer for-the-directory"}
            assert there.headers
            assert shown(there) == {None}

    run(main)


@pytest.mark.parametrize("way", ["ws://agent:80/ws", "http://agent:80/time"])
def test_an_agent_is_shown_what_is_for_it(way: str) -> None:
    async def main() -> None:
        directory, there = FakeDirectory(), FakeDirectory()
        directory.extra = [_told(way)]
        there.broken = 401
        given = credentials(agent="env:TWO")
        async with (
            directory_at(DIRECTORY, directory),
            directory_at("http://agent:80", there),
            open_node(lookup=DIRECTORY, credentials=given) as node,
        ):
            with pytest.raises(LmosActorsError):
                await node.find(Clock).within(5).invoke(Clock.tick)
            assert shown(directory) == {"Bearer for-the-directory"}
            assert shown(there) == {"Bearer for-the-agent"}

    run(main)


def test_a_directory_is_shown_its_own_at_every_request_and_no_redirect_has_it() -> None:
    async def main() -> None:
        directory = FakeDirectory()
        async with (
            directory_at(DIRECTORY, directory),
            directory_at("http://elsewhere:80") as elsewhere,
            open_node(listen="ws://here:80", register=DIRECTORY, credentials=credentials()) as node,
        ):
            await node.start(Clock)
            await trio.sleep(200)
            assert {"PUT", "PATCH"} <= {method for method, _ in directory.asked}
            directory.broken = 307
            with pytest.raises(AgentUnavailable, match="307"):
                await node.find(Agent, "nobody").read_all()
            await trio.sleep(200)
            assert shown(directory) == {"Bearer for-the-directory"}
            assert elsewhere.asked == []

    run(main)


def test_whoever_is_explored_leads_nobodys_credentials_away() -> None:
    async def main() -> None:
        rome, elsewhere = FakeDirectory(), FakeDirectory()
        given = Credentials({"http://rome": BearerToken("env:ONE")}, allow_insecure=True)
        thing = {
            **_told("ws://rome/ws"),
            "@type": "ThingDirectory",
            "properties": {"things": {"forms": [{"href": "http://elsewhere/things{?offset}"}]}},
        }
        rome.raw = json.dumps(thing).encode()
        async with (
            directory_at("http://rome:80", rome),
            directory_at("http://elsewhere:80", elsewhere),
            open_node(credentials=given) as node,
        ):
            assert (await node.discover("rome")).directories == ("http://elsewhere",)
            rome.raw, rome.broken, rome.location = None, 307, "http://elsewhere/things?offset=0&limit=1"
            await node.discover("http://rome/td")
            assert len(elsewhere.headers) == 2
            assert shown(elsewhere) == {None}
            assert shown(rome) == {"Bearer for-the-directory"}

    run(main)


def test_no_credentials_without_tls_unless_allowed() -> None:
    async def main() -> None:
        given = Credentials({"https://directory:81": BearerToken("env:ONE")})
        async with (
            directory_at(DIRECTORY) as directory,
            open_node(lookup=DIRECTORY, credentials=given) as node,
        ):
            assert await node.search(Clock) == []
            assert shown(directory) == {None}

    run(main)
