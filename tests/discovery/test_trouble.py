"""What goes wrong with a directory, and stays there."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import Agent, ChildSpec, NotFound, Ref, SupervisorSpec, action, open_node
from lmos_actors.actors import AgentQuery
from lmos_actors.directory import ThingDirectory
from lmos_actors.discovery import (
    DirectoryRefused,
    DiscoveredService,
    HttpDirectory,
    Registration,
    explore_all,
)
from lmos_actors.errors import ConnectFailed
from tests.discovery.fake import FakeDirectory, directory_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

URL = "http://directory:81"
OTHER = "http://other:81"


class Weather(Agent):
    """Answers questions about the weather."""

    place: str = "?"

    @action
    def where(self) -> str:
        return self.place


class Clock(Agent):
    """Tells the time."""


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


# ---- registering


def test_a_directory_that_is_full_keeps_what_it_has() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            directory.refused["Clock"] = 507
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Clock)
                await node.start(Weather)
                await trio.sleep(1)
                assert directory.titles == ["Weather"]
                assert node.registrations[0].agents == 1
                await trio.sleep(1_000)
                assert directory.titles == ["Weather"]

    run(main)


@pytest.mark.parametrize("status", [400, 403, 405, 501])
def test_where_nothing_can_be_renewed_it_is_registered_again(status: int) -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            directory.methods["PATCH"] = status
            async with open_node(listen="ws://here:80", register=Registration(URL, ttl=30)) as node:
                await node.start(Weather)
                for _ in range(20):
                    await trio.sleep(7)
                    assert directory.titles == ["Weather"]
                assert node.registrations[0].failure is None

    run(main)


def test_what_others_have_there_is_not_taken_away() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            directory.refused["Weather"] = 403
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Weather)
                await trio.sleep(1)
            assert directory.count("PUT") == 1
            assert directory.count("DELETE") == 0

    run(main)


def test_an_agent_that_left_is_not_reported_as_refused() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            directory.refused["Weather"] = 400
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Weather)
                await trio.sleep(1)
                assert list(node.registrations[0].refused) == ["weather"]
                await node.root.terminate_child("weather")
                await node.root.delete_child("weather")
                await trio.sleep(1)
                assert node.registrations[0].refused == {}

    run(main)


def test_more_agents_than_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.discovery._registrar.MAX_AGENTS", 1)

    async def main() -> None:
        async with directory_at(URL) as directory, open_node(listen="ws://here:80", register=URL) as node:
            await node.start(Weather)
            await node.start(Clock)
            await trio.sleep(1)
            assert directory.titles == ["Weather"]
            assert node.registrations[0].refused == {"clock": "a node registers 1 agents at most"}
            await node.root.terminate_child("clock")
            await node.root.delete_child("clock")
            await trio.sleep(1)
            assert node.registrations[0].refused == {}

    run(main)


# ---- looking


def test_all_pages_of_a_directory_are_read() -> None:
    async def main() -> None:
        async with open_node(listen="ws://hub:80", directory=True) as hub, open_node() as node:
            ref = hub.find(ThingDirectory)
            for number in range(230):
                await ref.invoke(ThingDirectory.put_thing, f"urn:x:{number:03}", _told(f"urn:x:{number:03}"))
            found = await node.discover("hub")
            assert len(found.things) == 230

    run(main)


def _told(id: str, href: str = "ws://elsewhere/ws") -> dict[str, Any]:
    form = {"href": href, "op": "readproperty", "subprotocol": "lmosprotocol"}
    return {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "id": id,
        "title": "Lamp",
        "security": "nosec_sc",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "properties": {"on": {"type": "boolean", "forms": [form]}},
    }


def test_agents_of_a_silent_directory_stay() -> None:
    async def main() -> None:
        async with directory_at(URL) as first, directory_at(OTHER), open_node(lookup=[URL, OTHER]) as node:
            tree = SupervisorSpec("root", [ChildSpec("weather", lambda: Weather(place="rome"))])
            other = SupervisorSpec("root", [ChildSpec("weather", lambda: Weather(place="oslo"))])
            async with (
                open_node(tree, listen="ws://rome:80", register=URL),
                open_node(other, listen="ws://oslo:80", register=OTHER),
            ):
                await trio.sleep(1)
                ref = node.find(Weather, spread="round_robin")
                assert {await ref.invoke(Weather.where) for _ in range(4)} == {"rome", "oslo"}
                first.broken = 503
                await trio.sleep(20)
                await ref.invoke(Weather.where)
                await trio.sleep(1)
                assert {await ref.invoke(Weather.where) for _ in range(4)} == {"rome", "oslo"}
                first.broken = None

    run(main)


def test_a_directory_that_hangs_does_not_keep_others_waiting() -> None:
    async def main() -> None:
        hung = FakeDirectory()
        hung.hangs = True
        async with (
            directory_at(URL, hung),
            directory_at(OTHER),
            open_node(listen="ws://rome:80", register=OTHER) as rome,
            open_node(lookup=[URL, OTHER]) as node,
        ):
            await rome.start(Weather)
            await trio.sleep(1)
            begin = trio.current_time()
            assert len(await node.search(Weather)) == 1
            assert trio.current_time() - begin < 11

    run(main)


def test_a_server_elsewhere_does_not_lead_here() -> None:
    async def main() -> None:
        thing: dict[str, Any] = {
            **_told("urn:x:directory"),
            "@type": "ThingDirectory",
            "base": "http://127.0.0.1:80/",
            "properties": {"things": {"forms": [{"href": "/things"}]}},
        }
        fake = FakeDirectory()
        fake.raw = json.dumps(thing).encode()
        async with (
            directory_at("http://rome:80", fake),
            directory_at("http://localhost:80", fake),
            directory_at("http://127.0.0.1:80") as here,
            open_node() as node,
        ):
            with pytest.raises(ConnectFailed, match=r"it leads to '127\.0\.0\.1'"):
                await node.discover("rome")
            assert here.asked == []
            found = await node.discover("localhost")  # that is this host itself
            assert (found.things, len(here.asked)) == ((), 1)

    run(main)


def test_a_redirect_to_here_is_of_no_use() -> None:
    async def main() -> None:
        fake, here = FakeDirectory(), FakeDirectory()
        fake.broken, fake.location = 307, "http://127.0.0.1:80/x"
        here.raw = json.dumps(_told("urn:x:1")).encode()
        async with (
            directory_at("http://rome:80", fake),
            directory_at("http://127.0.0.1:80", here),
            open_node() as node,
        ):
            with pytest.raises(ConnectFailed, match=r"it redirects to '127\.0\.0\.1'"):
                await node.discover("rome")
            assert here.asked == []
            assert len((await node.discover("127.0.0.1")).things) == 1

    run(main)


def test_announcements_are_explored_side_by_side_and_not_for_ever() -> None:
    hung, wrong, right = (FakeDirectory() for _ in range(3))
    hung.hangs = True
    right.raw = json.dumps(_told("urn:x:1")).encode()
    announced = [
        *(DiscoveredService(f"hung {number}", f"http://hung:80/{number}") for number in range(7)),
        DiscoveredService("wrong", "http://x y/"),
        DiscoveredService("right", "http://right:80/"),
        DiscoveredService("nobody", "http://nobody:80/"),
    ]

    async def main() -> None:
        async with (
            directory_at("http://hung:80", hung),
            directory_at("http://wrong:80", wrong),
            directory_at("http://right:80", right),
            open_node() as node,
        ):
            begin = trio.current_time()
            peers, refer = node._connections.peers, node._discovery._lookup.refer
            found = await explore_all(peers, announced, AgentQuery(), refer)
            assert [each.id for each in found.things] == ["urn:x:1"]
            assert len(found.left_out) == 9
            assert trio.current_time() - begin <= 30

    run(main)


def test_a_server_that_answers_slowly_is_not_asked_for_ever() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        links = [{"rel": "item", "href": f"/agents/{number}"} for number in range(50)]
        node_td = {**_told("urn:x:node"), "links": links}
        fake.raw = json.dumps(node_td).encode()
        fake.seconds = 1.0
        async with directory_at("http://rome:80", fake), open_node() as node:
            found = await node.discover("rome")
            assert any("21 more agents" in each for each in found.left_out)
            assert trio.current_time() < 35

    run(main)


@pytest.mark.parametrize("spread", [None, "round_robin"])
def test_a_closed_node_finds_no_agent(spread: Any) -> None:
    async def main() -> None:
        async def wait(ref: Ref[Any]) -> None:
            with pytest.raises(NotFound, match="ended"):
                await ref.ready()

        async with (
            directory_at(URL),
            open_node(listen="ws://rome:80", register=URL) as rome,
            trio.open_nursery() as nursery,
        ):
            async with open_node(lookup=URL) as node:
                refs = [node.find(Weather, title=title, spread=spread) for title in (None, "Tea", "Coffee")]
                with pytest.raises(NotFound):
                    await refs[0].invoke(Weather.where)
                await rome.start(Weather)
                nursery.start_soon(wait, refs[1])
                await trio.sleep(20)
            with trio.fail_after(60):
                for each in refs:
                    await wait(each)
                    with pytest.raises(NotFound):
                        await each.invoke(Weather.where)
                    with pytest.raises(NotFound):
                        each.tell_nowait(Weather.where)

    run(main)


# ---- answers that come early


class Hasty(trio.abc.Stream):
    """A connection whose peer answers, and closes, before it has read what is asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = [*answers, b""]
        self.closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError("sending failed: Broken pipe")

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return self.answers.pop(0) if self.answers else b""

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


async def put_over(stream: Hasty) -> None:
    network: Any = SimpleNamespace(connect=lambda *_: _given(stream))
    with trio.fail_after(1):
        await HttpDirectory(network, URL).put("urn:x", b"{}", 60.0)


async def _given(stream: Hasty) -> Hasty:
    await trio.lowlevel.checkpoint()
    return stream


@pytest.mark.parametrize("in_parts", [False, True])
async def test_an_early_answer_of_a_directory_is_read(in_parts: bool) -> None:
    problem = b'{"detail": "the credentials are not accepted"}'
    head = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(problem)
    stream = Hasty(head[:20], head[20:], problem) if in_parts else Hasty(head + problem)
    with pytest.raises(DirectoryRefused, match="answered 401: the credentials are not accepted") as caught:
        await put_over(stream)
    assert caught.value.status == 401
    assert stream.closed


@pytest.mark.parametrize(("answers", "when"), [((), "before"), ((b"HTTP/1.1 401 Una",), "within")])
async def test_a_directory_that_breaks_off_without_an_answer_cannot_be_reached(
    answers: tuple[bytes, ...], when: str
) -> None:
    stream = Hasty(*answers)
    with pytest.raises(ConnectFailed, match=f"the connection ended {when} the answer"):
        await put_over(stream)
    assert stream.closed
