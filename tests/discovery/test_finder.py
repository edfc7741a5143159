"""Lists of what is there, in the node, in directories, and in a directory that the node hosts itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import About, Agent, ChildSpec, Pool, SupervisorSpec, action, open_node
from lmos_actors.discovery import Registration
from lmos_actors.errors import ConnectFailed
from tests.discovery.fake import FakeDirectory, directory_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

URL = "http://directory:81"
URN = "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10"


class Weather(Agent, about=About(capabilities=("weather",))):
    """Answers questions about the weather."""

    place: str = "?"

    @action(idempotent=True)
    def where(self) -> str:
        return self.place


class Clock(Agent):
    """Tells the time."""


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


def test_near_ones_first_in_start_order_and_pools_as_one() -> None:
    async def main() -> None:
        tree = SupervisorSpec("root", [Pool(Weather, 2, name="pool"), ChildSpec("clock", Clock)])
        async with open_node(tree) as node:
            await node.start(Weather, place="here")
            found = await node.search()
            assert [each.name for each in found] == ["pool", "clock", "weather"]
            assert all(each.is_near for each in found)
            assert [each.url for each in found] == [None] * 3
            found = await node.search(capability="weather")
            assert [each.name for each in found] == ["pool", "weather"]
            assert found[1].description.capabilities == ("weather",)
            ref = found[1].ref(Weather)
            assert ref == node.find(Weather, "weather")
            assert await ref.invoke(Weather.where) == "here"
            assert await node.search(Clock, near=False) == []
            with pytest.raises(TypeError, match="needs an agent class"):
                found[0].ref(str)  # type: ignore[type-var]

    run(main)


def test_those_of_directories_come_after_and_none_comes_twice() -> None:
    async def main() -> None:
        async with (
            directory_at(URL),
            directory_at("http://other:81") as other,
            open_node(listen="ws://rome:80", register=[URL, "http://other:81"]) as rome,
            open_node(listen="ws://here:80", register=URL, lookup="http://other:81") as node,
        ):
            await rome.start_child(ChildSpec("weather", Weather, id=URN))
            await node.start(Weather)
            await trio.sleep(1)
            found = await node.search(Weather)
            assert [(each.id, each.is_near) for each in found] == [
                ("http://here/agents/weather", True),
                (URN, False),
            ]
            far = found[1]
            assert (far.name, far.title, far.directory) == ("weather", "Weather", URL)
            ref = far.ref(Weather)
            await ref.ready()
            assert await ref.invoke(Weather.where) == "?"
            [only] = await node.search(Weather, near=False, directory="http://other:81")
            assert only.directory == "http://other:81"
            other.broken = 500
            assert len(await node.search(Weather)) == 2
            with pytest.raises(Exception, match="answered 500: out of order"):
                await node.search(near=False, directory="http://other:81")
            with pytest.raises(ConnectFailed):
                await node.search(Clock, directory="http://nowhere:1")

    run(main)


def test_a_long_list_is_read_page_by_page() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.searches = False
        async with (
            directory_at(URL, fake),
            open_node(listen="ws://rome:80", register=URL) as rome,
            open_node(lookup=URL) as node,
        ):
            await rome.root.start_many(ChildSpec("clock", Clock), 30)
            await trio.sleep(1)
            pages = fake.answer

            def answer(method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
                return pages(method, target.replace("limit=100", "limit=7"), headers, body)

            fake.answer = answer  # type: ignore[method-assign]
            assert len(await node.search(Clock)) <= 30
            assert [target for method, target in fake.asked if method == "GET"][-1].startswith("/things?")

    run(main)


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        ({}, "$[*]"),
        ({"cls": Weather}, "$[?@.title=='Weather']"),
        ({"cls": Weather, "capability": "x"}, "$[?@['lmosx:capabilities'][?@=='x']]"),
        ({"title": "It's a \\ \n"}, "$[?@.title=='It\\'s a \\\\ \\u000a']"),
        (
            {"type": "t", "affordance": "a"},
            "$[?(@['@type']=='t' || @['@type'][?@=='t']) && "
            "(@.properties['a'] || @.actions['a'] || @.events['a'])]",
        ),
    ],
)
def test_what_a_directory_is_asked(criteria: dict[str, Any], text: str) -> None:
    async def main() -> None:
        async with directory_at(URL) as fake, open_node(lookup=URL) as node:
            await node.search(**criteria)
            [target] = [target for method, target in fake.asked if method == "GET"]
            assert urlsplit(target).path == "/search/jsonpath"
            assert parse_qs(urlsplit(target).query)["query"] == [text]

    run(main)


def test_a_node_hosts_a_directory_and_is_in_it() -> None:
    async def main() -> None:
        async with (
            open_node(listen="ws://hub:80", directory=True, register=True) as hub,
            open_node(listen="ws://rome:80", register=Registration("http://hub", ttl=30)) as rome,
            open_node(lookup="http://hub/") as node,
        ):
            await hub.start(Weather, place="hub")
            await rome.start(Weather, place="rome")
            await trio.sleep(100)
            for each in (hub, node):
                ref = each.find(Weather, capability="weather", spread="round_robin")
                await ref.ready()
                assert {await ref.invoke(Weather.where) for _ in range(4)} == {"hub", "rome"}
            assert [each.agents for each in (*hub.registrations, *rome.registrations)] == [1, 1]
            names = [each.name for each in await node.search()]
            assert names == ["weather", "weather"]
            [thing] = [each for each in await node.search() if each.id == "http://rome/agents/weather"]
            assert thing.url is not None
            consumed = await node.consume_thing(thing.url)
            assert await consumed.invoke("where") == "rome"

    run(main)


def test_the_own_directory_keeps_nothing_of_a_node_that_has_ended_in_order(tmp_path: Any) -> None:
    async def main() -> None:
        path = tmp_path / "directory.db"
        async with open_node(listen="ws://hub:80", directory=path, register=True) as hub:
            await hub.start(Weather)
            await trio.sleep(1)
        async with open_node(directory=path) as again:
            assert await again.search(Weather) == []

    run(main)
