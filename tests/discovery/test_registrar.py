"""A node that registers its agents: what is there, for how long, and what a broken directory does to it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import (
    About,
    Agent,
    ChildSpec,
    ConfigError,
    Pool,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.discovery import Registration
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import MemoryNetwork
from tests.discovery.fake import FakeDirectory, directory_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

URN = "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10"
URL = "http://directory:81"


class Weather(Agent, about=About(capabilities=("weather",))):
    """Answers questions about the weather."""

    @action
    def forecast(self, city: str) -> str:
        return f"{city}: sunny"


class Clock(Agent):
    """Tells the time."""


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


def test_what_comes_is_registered_and_what_goes_is_taken_away() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            tree = SupervisorSpec("root", [ChildSpec("weather", Weather, id=URN)])
            async with open_node(tree, listen="ws://here:80", register=URL) as node:
                await trio.sleep(0.1)
                assert list(directory.entries) == [URN]
                assert directory.entries[URN]["registration"] == {"ttl": 300.0}
                assert directory.entries[URN]["lmosx:capabilities"] == ["weather"]
                await node.start(Clock)
                await trio.sleep(0.1)
                assert directory.titles == ["Clock", "Weather"]
                await node.root.terminate_child("clock")
                await trio.sleep(0.1)
                assert directory.titles == ["Clock", "Weather"]  # stopped, but still there
                await node.root.delete_child("clock")
                await trio.sleep(0.1)
                assert directory.titles == ["Weather"]
                assert [(each.agents, each.failure) for each in node.registrations] == [(1, None)]
            assert directory.titles == []

    run(main)


class Patient(Agent):
    """Takes eight seconds to start."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await trio.sleep(8)
        yield


def test_an_agent_is_registered_once_it_has_started() -> None:
    """Alone, below a supervisor, in a pool, optional, and one of many that are started over a time."""

    async def main() -> None:
        desk = SupervisorSpec("desk", [ChildSpec("clock", Clock), ChildSpec("late", Patient)])
        crowd = BulkSpec("crowd", member=ChildSpec("each", Clock), count=3, over=6.0)
        tree = SupervisorSpec("root", [crowd, ChildSpec("extra", Patient, optional=True)])
        there: set[str] = set()
        async with (
            directory_at(URL) as directory,
            open_node(tree, listen="ws://here:80", register=URL) as node,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.start, Patient)
                nursery.start_soon(node.start_pool, Pool(Patient, 1, name="pool"))
                nursery.start_soon(node.start_supervisor, desk)
                for _ in range(40):
                    await trio.sleep(1.01)
                    there = {name.rpartition("/")[2] for name in directory.entries}
                    paths = {each.path for each in node.agents() if each.statistics().incarnation > 0}
                    assert there == {path.replace("pool/pool-1", "pool").replace("/", ".") for path in paths}
            assert len(there) == 8

    run(main)


def test_nothing_is_asked_twice_and_a_restart_is_no_change() -> None:
    async def main() -> None:
        class Brittle(Agent):
            @action
            def fall(self) -> None:
                raise RuntimeError("broken")

        async with directory_at(URL) as directory, open_node(listen="ws://here:80", register=URL) as node:
            brittle = await node.start(Brittle)
            await trio.sleep(1)
            with pytest.raises(Exception, match="died"):
                await brittle.invoke(Brittle.fall)
            await trio.sleep(1)
            assert directory.count("PUT") == 1
            assert directory.count("DELETE") == 0
            assert directory.connections == 1

    run(main)


def test_entries_are_renewed_before_they_expire() -> None:
    async def main() -> None:
        async with (
            directory_at(URL) as directory,
            open_node(listen="ws://here:80", register=Registration(URL, ttl=60)) as node,
        ):
            await node.start(Weather)
            for _ in range(20):
                await trio.sleep(30)
                assert directory.titles == ["Weather"]
            assert directory.count("PUT") == 1
            assert 30 <= directory.count("PATCH") <= 38  # every third of the time, or a little sooner

    run(main)


def test_a_directory_that_forgets_gets_the_agents_again() -> None:
    async def main() -> None:
        async with (
            directory_at(URL) as directory,
            open_node(listen="ws://here:80", register=Registration(URL, ttl=60)) as node,
        ):
            await node.start(Weather)
            await trio.sleep(1)
            directory.forget()
            await trio.sleep(21)
            assert directory.titles == ["Weather"]

    run(main)


def test_pools_are_registered_and_their_members_are_not() -> None:
    async def main() -> None:
        tree = SupervisorSpec(
            "root", [SupervisorSpec("desk", [ChildSpec("clock", Clock)]), Pool(Weather, 3, name="pool")]
        )
        async with directory_at(URL) as directory, open_node(tree, listen="ws://here:80", register=URL):
            await trio.sleep(1)
            assert sorted(directory.entries) == ["http://here/agents/desk.clock", "http://here/agents/pool"]

    run(main)


def test_a_directory_that_is_away_does_not_trouble_the_node() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        async with open_node(listen="ws://here:80", register=URL) as node:
            weather = await node.start(Weather)
            await trio.sleep(20)
            state = node.registrations[0]
            assert state.agents == 0
            assert "cannot connect" in (state.failure or "")
            assert await weather.invoke(Weather.forecast, "Bonn") == "Bonn: sunny"
            async with directory_at(URL, fake):
                await trio.sleep(61)
                assert fake.titles == ["Weather"]
                assert node.registrations[0].failure is None
            await node.start(Clock)
            await trio.sleep(300)
            async with directory_at(URL, fake):
                await trio.sleep(61)
                assert fake.titles == ["Clock", "Weather"]
            begin = trio.current_time()
        assert trio.current_time() - begin < 6  # nobody waits long for a directory that is away

    run(main)


def test_tries_become_rare() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            directory.broken = 503
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Weather)
                await trio.sleep(3600)
                assert 60 <= len(directory.asked) <= 140  # in an hour, one a minute at most
                assert node.registrations[0].failure == (
                    "the directory at http://directory:81 answered 503: out of order"
                )
                directory.broken = None
                await trio.sleep(61)
                assert directory.titles == ["Weather"]

    run(main)


def test_a_refused_registration_is_reported_and_the_others_go_on() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            directory.refused["Weather"] = 400
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Weather)
                await node.start(Clock)
                await trio.sleep(1)
                assert directory.titles == ["Clock"]
                state = node.registrations[0]
                assert state.refused == {
                    "weather": "the directory at http://directory:81 answered 400: not wanted here"
                }
                assert (state.agents, state.failure) == (1, None)
                directory.refused.clear()
                await trio.sleep(101)  # it is tried again when it would be renewed
                assert directory.titles == ["Clock", "Weather"]
                assert node.registrations[0].refused == {}

    run(main)


def test_a_running_node_reports_a_missing_directory(caplog: pytest.LogCaptureFixture) -> None:
    """The first time, and not for each agent: whoever mistypes the address has to see it."""

    async def main() -> None:
        network = MemoryNetwork()
        with trio.fail_after(20):
            async with (
                open_node(listen="ws://other:80", network=network),
                open_node(listen="ws://here:80", network=network, register="http://other") as node,
            ):
                await node.start(Weather)
                await node.start(Clock)
                while len(node.registrations[0].refused) < 2:
                    await trio.lowlevel.checkpoint()

    trio.run(main)
    assert [each.getMessage() for each in caplog.records] == [
        "registering weather at http://other: the directory at http://other answered 405: "
        "Method Not Allowed; is a directory there?"
    ]


@pytest.mark.parametrize("option", ["register", "lookup"])
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:8080", "such as http://127.0.0.1:8080"),
        ("ws://here:80", "an http or https URL"),
        ("http://here/?x=1", "ends with its path"),
    ],
)
def test_an_invalid_directory_url_is_refused_with_the_argument_name(option: str, url: str, why: str) -> None:
    async def main() -> None:
        options: dict[str, Any] = {option: url}
        with pytest.raises(ConfigError, match=why) as caught:
            async with open_node(listen="ws://here:80", **options):
                pass
        assert caught.value.path == f"open_node({option}=...)"

    run(main)


def test_a_directory_that_hangs_holds_the_end_up_for_five_seconds_at_most() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory:
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Weather)
                await trio.sleep(1)
                directory.hangs = True
                begin = trio.current_time()
            assert 4.9 < trio.current_time() - begin < 5.1
            assert directory.titles == ["Weather"]
            await trio.sleep(301)
            assert directory.titles == []

    run(main)


def test_several_directories_and_a_drain() -> None:
    async def main() -> None:
        other = "http://other:81/registry"
        async with directory_at(URL) as first, directory_at("http://other:81") as second:

            def answer(method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
                assert target.startswith("/registry/things/")
                return FakeDirectory.answer(second, method, target.removeprefix("/registry"), headers, body)

            second.answer = answer  # type: ignore[method-assign]
            async with open_node(listen="ws://here:80", register=[URL, other]) as node:
                await node.start(Weather)
                await trio.sleep(1)
                assert first.titles == second.titles == ["Weather"]
                await node.drain()
                await trio.sleep(1)
                assert first.titles == second.titles == []

    run(main)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"register": URL}, "listen"),
        ({"register": "directory:81", "listen": "ws://here:80"}, "such as http"),
        ({"register": "ws://directory:81", "listen": "ws://here:80"}, "http or https"),
        ({"register": True, "listen": "ws://here:80"}, "directory="),
        ({"lookup": "nowhere"}, "such as http"),
        ({"register": "http://u:p@directory", "listen": "ws://here:80"}, "do not belong in a URL"),
    ],
)
def test_impossible_options_are_refused_at_once(options: dict[str, Any], text: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=text):
            async with open_node(**options):
                pass

    run(main)


@pytest.mark.parametrize("ttl", [0, 2.9, float("inf"), float("nan")])
def test_a_time_to_live_has_bounds(ttl: float) -> None:
    with pytest.raises(ConfigError, match="ttl"):
        Registration(URL, ttl=ttl)
