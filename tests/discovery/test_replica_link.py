"""Refs that find their agents: near first, then by a directory; and refs that lead to several."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import (
    About,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Event,
    InvalidInput,
    Node,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    Pool,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
)
from tests.discovery.fake import FakeDirectory, directory_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

URL = "http://directory:81"


class Weather(Agent, about=About(capabilities=("weather", "forecast"), types=("saref:Sensor",))):
    """Answers questions about the weather."""

    place: str = "?"
    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()

    @action
    def where(self, city: str = "") -> str:
        self.asked.emit(city)
        return self.place

    @action(concurrency=99, idempotent=True)
    async def slow(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return self.place

    @action
    def fall(self) -> None:
        raise RuntimeError("broken")

    @action
    async def many(self, count: int) -> int:
        return count


class Storm(Weather):
    """Another of the kind."""


class Clock(Agent):
    """Tells the time."""


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


@asynccontextmanager
async def place(name: str, **options: Any) -> AsyncGenerator[Node]:
    """A node elsewhere with a weather agent that says its name."""
    tree = SupervisorSpec("root", [ChildSpec("weather", partial(Weather, place=name))])
    async with open_node(tree, listen=f"ws://{name}:80", register=URL, **options) as node:
        yield node


# ---- near


def test_criteria_choose_among_near_agents_in_start_order() -> None:
    async def main() -> None:
        async with open_node() as node:
            await node.start(Clock)
            first, second = await node.start(Weather), await node.start(Storm)
            assert node.find(Weather, capability="forecast") == first
            assert node.find(Weather, title="Storm") == second
            assert node.find(Agent, affordance="many") == first
            assert node.find(Agent, type="saref:Sensor", title="Storm") == second
            assert node.find(Agent, type="lmos:Agent").path == "clock"
            missing = node.find(Agent, capability="tea")
            with pytest.raises(NotFound, match=r"no agent 'Agent' \(capability 'tea'\) on this node$"):
                await missing.read_all()
            missing = node.find(Clock, "clock", capability="weather")
            why = r"no agent 'clock' \(class Clock, capability 'weather'\) on this node$"
            with pytest.raises(NotFound, match=why) as caught:
                await missing.read_all()
            assert caught.value.name == "clock"

    run(main)


def test_an_agent_finds_by_criteria_too() -> None:
    async def main() -> None:
        class Asker(Agent):
            @action
            async def ask(self) -> str:
                return await self.find(Weather, capability="weather").invoke(Weather.where)

        async with open_node() as node:
            asker = await node.start(Asker)
            await node.start(Weather, place="here")
            assert await asker.invoke(Asker.ask) == "here"

    run(main)


@pytest.mark.parametrize(
    "options",
    [
        {"spread": "often"},
        {"key": "city"},
        {"spread": "round_robin", "key": "city"},
        {"title": 1},
        {"type": 2},
    ],
)
def test_what_cannot_be_looked_for(options: Any) -> None:
    async def main() -> None:
        async with open_node() as node:
            anything: Any = node
            with pytest.raises(TypeError):
                anything.find(Weather, **options)
            with pytest.raises(TypeError, match="agent class"):
                anything.find("weather")

    run(main)


# ---- elsewhere


def test_near_comes_first_then_the_directory() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory, place("rome"), open_node(lookup=URL) as node:
            await trio.sleep(1)
            far = node.find(Weather)
            assert await far.invoke(Weather.where) == "rome"
            assert far.path == "weather"
            await far.write(Weather.units, "kelvin")
            assert await far.read(Weather.units) == "kelvin"
            asked = directory.count("GET")
            assert await far.invoke(Weather.where) == "rome"
            assert await node.find(Weather).invoke(Weather.where) == "rome"
            assert directory.count("GET") == asked  # what was found is kept, for others too
            await node.start(Weather, place="here")
            assert await node.find(Weather).invoke(Weather.where) == "here"
            assert await far.invoke(Weather.where) == "rome"  # a ref leads to what it has found

    run(main)


@pytest.mark.parametrize("searches", [True, False])
@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"title": "Weather"},
        {"type": "saref:Sensor"},
        {"type": "lmos:Agent", "affordance": "asked"},
        {"capability": "forecast"},
        {"affordance": "where"},
        {"name": "weather"},
        {"name": "Weather"},
    ],
)
def test_a_directory_is_asked_for_what_is_sought(criteria: Any, searches: bool) -> None:
    async def main() -> None:
        async with directory_at(URL) as directory, place("rome") as rome, open_node(lookup=URL) as node:
            directory.searches = searches
            await rome.start(Clock)
            await trio.sleep(1)
            assert await node.find(Weather, **criteria).invoke(Weather.where) == "rome"
            with pytest.raises(NotFound):
                await node.find(Weather, capability="tea").invoke(Weather.where)
            with pytest.raises(NotFound, match="not what Clock"):
                await node.find(_Other, type="lmos:Agent", affordance="where").invoke(_Other.where, 1, 2)

    class _Other(Agent):
        @action
        def where(self, city: int, zone: int) -> int:
            return 0

    _Other.__contract__.title = "Clock"
    _Other.__name__ = "Clock"
    run(main)


def test_what_was_found_is_looked_for_again_when_it_is_gone() -> None:
    async def main() -> None:
        async with directory_at(URL) as directory, open_node(lookup=URL) as node:
            far = node.find(Weather)
            with pytest.raises(NotFound, match="directories"):
                await far.invoke(Weather.where)
            async with place("rome"):
                await trio.sleep(2)
                assert await far.invoke(Weather.where) == "rome"
            with pytest.raises((NotFound, AgentUnavailable)):
                await far.invoke(Weather.where)
            async with place("oslo"):
                await trio.sleep(2)
                assert await far.invoke(Weather.where) == "oslo"
            assert directory.titles == []

    run(main)


def test_ready_waits_for_one_to_appear_here_or_there() -> None:
    async def main() -> None:
        async with directory_at(URL), open_node(lookup=URL) as node, trio.open_nursery() as nursery:
            here, there = node.find(Clock), node.find(Weather)

            async def later() -> None:
                await trio.sleep(30)
                await node.start(Clock)
                async with place("rome"):
                    await trio.sleep(60)

            nursery.start_soon(later)
            await here.ready()
            assert trio.current_time() == 30
            await there.ready()
            assert trio.current_time() < 37
            assert await there.invoke(Weather.where) == "rome"

    run(main)


def test_a_directory_that_is_away_is_no_missing_agent() -> None:
    async def main() -> None:
        async with open_node(lookup=URL) as node:
            ref = node.find(Weather)
            with pytest.raises(AgentUnavailable, match="cannot connect to http://directory:81"):
                await ref.invoke(Weather.where)
            async with directory_at(URL) as directory:
                directory.hangs = True
                await trio.sleep(1.1)
                begin = trio.current_time()
                with pytest.raises(DeadlineExceeded):
                    await ref.within(3).invoke(Weather.where)
                assert trio.current_time() == begin + 3
            async with directory_at(URL), place("rome"):
                await trio.sleep(15)
                assert await ref.retrying().invoke(Weather.slow, 1) == "rome"

    run(main)


def test_events_of_one_that_was_found_and_following_it() -> None:
    async def main() -> None:
        class Listener(Agent):
            heard: list[str]

            def started(self) -> None:
                self.follow(self.find(Weather), Weather.asked, self.on_asked)

            def on_asked(self, city: str) -> None:
                self.heard.append(city)

        heard: list[str] = []
        async with directory_at(URL), place("rome"), open_node(lookup=URL) as node:
            await trio.sleep(1)
            await node.start(Listener, heard=heard)
            await trio.sleep(1)
            far = node.find(Weather)
            async with far.subscribe(Weather.asked) as cities, far.observe(Weather.units) as units:
                await far.invoke(Weather.where, "Bonn")
                assert await anext(aiter(cities)) == "Bonn"
                assert await anext(aiter(units)) == "celsius"
            assert heard == ["Bonn"]
            async with far.monitor() as downs, far.begin(Weather.slow, 1.0) as call:
                assert await call.result() == "rome"
                with pytest.raises(AgentDied):
                    await far.invoke(Weather.fall)
                assert (await anext(aiter(downs))).agent == "weather"

    run(main)


def test_messages_that_cannot_wait_for_a_look_up() -> None:
    async def main() -> None:
        class Sender(Agent):
            @action
            def go(self) -> None:
                self.send(self.find(Weather), Weather.where, "Bonn")

        async with directory_at(URL), place("rome") as rome, open_node(lookup=URL) as node:
            await trio.sleep(1)
            sender, far = await node.start(Sender), node.find(Weather)
            with pytest.raises(trio.WouldBlock):
                far.tell_nowait(Weather.where, "Rome")
            await sender.invoke(Sender.go)
            assert [letter.agent for letter in node.dead_letters] == ["Weather"]
            await far.ready()
            async with rome.find(Weather).subscribe(Weather.asked) as asked:
                far.tell_nowait(Weather.where, "1")
                await sender.invoke(Sender.go)
                await far.tell(Weather.where, "3")
                found = [await anext(aiter(asked)) for _ in range(3)]
            assert found == ["1", "Bonn", "3"]

    run(main)


# ---- several


def test_in_turn_over_near_and_far() -> None:
    async def main() -> None:
        async with (
            directory_at(URL),
            place("rome"),
            place("oslo"),
            open_node(lookup=URL) as node,
        ):
            await node.start(Weather, place="here")
            await trio.sleep(1)
            ref = node.find(Weather, spread="round_robin")
            assert await ref.invoke(Weather.where) == "here"
            await ref.ready()
            await trio.sleep(1)
            answers = [await ref.invoke(Weather.where) for _ in range(6)]
            assert Counter(answers) == {"here": 2, "rome": 2, "oslo": 2}
            again = node.find(Weather, spread="round_robin")
            assert again == ref
            assert hash(again) == hash(ref)
            assert Counter(
                [await node.find(Weather, spread="round_robin").invoke(Weather.where) for _ in "123"]
            ) == {
                "here": 1,
                "rome": 1,
                "oslo": 1,
            }

    run(main)


def test_one_that_is_down_is_passed_over_and_comes_back() -> None:
    async def main() -> None:
        async with directory_at(URL), place("rome"), open_node(lookup=URL) as node:
            ref = node.find(Weather, spread="round_robin")
            async with place("oslo"):
                await trio.sleep(1)
                assert {await ref.invoke(Weather.where) for _ in range(4)} == {"rome", "oslo"}
            assert [await ref.invoke(Weather.where) for _ in range(4)] == ["rome"] * 4
            async with place("oslo"):
                await trio.sleep(40)
                await ref.invoke(Weather.where)
                await trio.sleep(1)
                assert {await ref.invoke(Weather.where) for _ in range(4)} == {"rome", "oslo"}

    run(main)


def test_what_has_begun_is_not_begun_elsewhere() -> None:
    async def main() -> None:
        async with directory_at(URL), place("rome"), open_node(lookup=URL) as node:
            await node.start(Weather, place="here")
            ref = node.find(Weather, spread="round_robin")
            await ref.ready()
            await trio.sleep(1)
            died = 0
            for _ in range(4):
                with pytest.raises(AgentDied) as caught:
                    await ref.invoke(Weather.fall)
                died += caught.value.started
                await trio.sleep(1)
            assert died == 4

    run(main)


def test_a_connection_that_breaks_leaves_the_outcome_unknown() -> None:
    async def main() -> None:
        async with (
            directory_at(URL),
            place("rome") as rome,
            place("oslo") as oslo,
            open_node(lookup=URL) as node,
        ):
            await trio.sleep(1)
            ref = node.find(Weather, spread="round_robin")

            async def cut() -> None:
                await trio.sleep(5)
                everything: Any = node
                for peer in tuple(everything._connections.peers._peers.values()):
                    if peer.connection is not None:
                        peer.connection.close(1001, "cut")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cut)
                with pytest.raises(OutcomeUnknown):
                    await ref.invoke(Weather.slow, 60)
            asked = [each.find(Weather).statistics().accepted for each in (rome, oslo)]
            assert sum(asked) == 1
            assert await ref.retrying().invoke(Weather.slow, 1) in ("rome", "oslo")

    run(main)


def test_the_least_loaded_gets_the_next() -> None:
    async def main() -> None:
        async with directory_at(URL), place("rome"), open_node(lookup=URL) as node:
            await node.start_pool(Pool(Weather, 2, by="least_loaded"))
            ref = node.find(Weather, spread="least_loaded")
            await ref.ready()
            await trio.sleep(1)
            answers: list[str] = []

            async def ask(seconds: float) -> None:
                answers.append(await ref.invoke(Weather.slow, seconds))

            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(ask, 10)
                    await trio.sleep(0.1)
                assert await ref.invoke(Weather.slow, 1) in ("?", "rome")
            assert Counter(answers) == {"?": 2, "rome": 2}

    run(main)


def test_a_key_stays_with_one_and_few_move() -> None:
    async def main() -> None:
        keys = [f"city {number}" for number in range(60)]

        async def where(node: Node) -> dict[str, str]:
            ref = node.find(Weather, spread="key", key="city")
            await ref.ready()
            await trio.sleep(20)
            await ref.invoke(Weather.where, "any")
            await trio.sleep(1)
            return {key: await ref.invoke(Weather.where, city=key) for key in keys}

        async with directory_at(URL), place("rome"), place("oslo"), open_node(lookup=URL) as node:
            async with open_node(lookup=URL) as other:
                two = await where(node)
                assert await where(other) == two  # whoever asks, whatever else it knows
            assert min(Counter(two.values()).values()) > 15
            async with place("bonn"):
                three = await where(node)
                moved = [key for key in keys if two[key] != three[key]]
                assert 5 < len(moved) < 40
                assert {three[key] for key in moved} == {"bonn"}
            assert await where(node) == two

    run(main)


def test_what_several_cannot_do() -> None:
    async def main() -> None:
        async with open_node() as node:
            await node.start(Weather, place="here")
            ref = node.find(Weather, spread="key")
            assert await ref.invoke(Weather.where, "Bonn") == "here"
            for refused in (
                ref.read(Weather.units),
                ref.write(Weather.units, "kelvin"),
                ref.read_all(),
            ):
                with pytest.raises(NotAllowed, match="several agents"):
                    await refused
            with pytest.raises(NotAllowed, match="several agents"):
                async with ref.subscribe(Weather.asked):
                    pass
            with pytest.raises(NotAllowed):
                ref.statistics()
            with pytest.raises(NotAllowed):
                async with ref.link():
                    pass
            with pytest.raises(InvalidInput, match="to choose an agent by"):
                await ref.invoke(Weather.fall)
            with pytest.raises(InvalidInput):
                await ref.invoke(Weather.where, 3)  # type: ignore[arg-type]
            with pytest.raises(NotFound, match="Storm"):
                await node.find(Storm, spread="round_robin").invoke(Storm.where)

    run(main)


# ---- directories that are not to be trusted


def _told(**changes: Any) -> dict[str, Any]:
    return {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "@type": "lmos:Agent",
        "id": "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10",
        "title": "Clock",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        "properties": {
            "time": {
                "type": "string",
                "forms": [
                    {"href": "ws://elsewhere:80/ws", "op": "readproperty", "subprotocol": "lmosprotocol"}
                ],
            }
        },
        **changes,
    }


def _leading_to(href: str) -> dict[str, Any]:
    form = {"href": href, "op": "readproperty", "subprotocol": "lmosprotocol"}
    return _told(properties={"time": {"type": "string", "forms": [form]}})


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (_leading_to("ws://127.0.0.1:80/ws"), "another host"),
        (_leading_to("ws://localhost/ws"), "another host"),
        (_leading_to("ws://x.localhost./ws"), "another host"),
        (_leading_to("ws://127.1/ws"), "another host"),
        (_leading_to("ws://2130706433/ws"), "another host"),
        (_leading_to("ws://0x7f000001/ws"), "another host"),
        (_leading_to("ws://[::1]/ws"), "another host"),
        (_leading_to("ws://[::ffff:127.0.0.1]/ws"), "another host"),
        (_leading_to("http://169.254.169.254/latest"), "another host"),
        (_leading_to("ws://0.0.0.0/ws"), "another host"),
        (_leading_to("file:///etc/passwd"), "is not that of a server"),
        (_leading_to("ws://user:secret@elsewhere/ws"), "do not belong"),
        (_leading_to("ws://{host}/ws"), "no address|wrong"),
        (_leading_to("ws://here:80/ws"), "belonged to this node"),
        (_told(id=None), "no id"),
        (_told(id="urn:" + "x" * 3000), "no id"),
        (_told(securityDefinitions={}, security="nope"), "wrong"),
        (_told(properties=[1]), "wrong"),
        (_told(title="Weather"), "directories$"),
        ("Clock", "not a description"),
        (None, "not a description"),
        (7, "not a description"),
    ],
)
def test_answers_of_a_directory_are_checked(entry: Any, why: str) -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.searches = False
        fake.extra = [entry]
        async with directory_at(URL, fake), open_node(listen="ws://here:80", lookup=URL) as node:
            with pytest.raises(NotFound, match=why):
                await node.find(Clock).read_all()
            assert await node.search(Clock) == []

    run(main)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe",
        b"[1e999]",
        b"nul",
        b"[" + b"1," * 99,
    ],
)
def test_a_directory_that_answers_anything(raw: bytes) -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.raw = raw
        async with directory_at(URL, fake), open_node(lookup=URL) as node:
            with pytest.raises((NotFound, AgentUnavailable)):
                await node.find(Clock).read_all()

    run(main)


def test_an_answer_without_end_is_cut_short() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.raw = b"[" + b" " * (9 << 20) + b"]"
        async with directory_at(URL, fake), open_node(lookup=URL) as node:
            with pytest.raises(AgentUnavailable, match="longer than"):
                await node.find(Clock).read_all()

    run(main)


def test_a_redirect_is_not_followed() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.broken = 307
        async with (
            directory_at(URL, fake),
            directory_at("http://elsewhere:80") as elsewhere,
            open_node(lookup=URL) as node,
        ):
            with pytest.raises(AgentUnavailable, match="307"):
                await node.find(Clock).read_all()
            assert elsewhere.asked == []

    run(main)


# ---- kept


class Planner(Agent, durable=True):
    weather: Ref[Weather] | None = None
    turns: int = 0

    @action
    def take_turn(self) -> None:
        self.turns += 1


@pytest.mark.parametrize("spread", [None, "round_robin"])
def test_a_ref_that_a_directory_has_answered_cannot_be_kept(spread: Any) -> None:
    async def main() -> None:
        async with (
            directory_at(URL),
            place("bonn"),
            open_node(lookup=URL, store="memory:") as node,
        ):
            ref = node.find(Weather, spread=spread)
            assert await ref.invoke(Weather.where) == "bonn"
            planner = await node.start_child(ChildSpec("planner", partial(Planner, weather=ref)))
            with pytest.raises(
                AgentDied, match=r"Planner\.weather is <Ref .*>, which is found in directories"
            ):
                await planner.invoke(Planner.take_turn)

    run(main)
