"""A question to a person holds up whoever waits for it, near or far; nobody is believed further."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio

from lmos_actors import Agent, DeadlineExceeded, Progress, Ref, action, open_node
from lmos_actors.approvals import Clock, standing_still
from lmos_actors.bindings import fetch
from lmos_actors.errors import ConfigError
from lmos_actors.facades import RelayBridge, RelayMessage, join_relay, open_relay
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.security import ANYONE, Access, Security
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import answer_approval
from lmos_actors.transport import MemoryNetwork
from tests.bindings.client_connections import OFFERS, THING, URL, Wire, scripted
from tests.bindings.http_client.test_link import web_only
from tests.facades.relays import URL as URL_OF_HUB, hub_with

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from lmos_actors import Node

T = TypeVar("T")

LIMIT = 30.0
"""Seconds that a clerk's clock gives the pager."""


class Pager(Agent):
    """Pages people, if a person agrees."""

    @action(concurrency=99)
    async def page(self, person: str, seconds: float = 0.0) -> str:
        agreed = await self.approve(f"Page {person}?", key=person)
        await trio.sleep(seconds)
        return "paged" if agreed else "refused"

    @action(concurrency=99)
    async def page_two(self, person: str) -> str:
        """Ask two people at once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(self.approve, "Both?", key=f"{person}-first"))
            agreed = await self.approve("Both?", key=f"{person}-second")
        return "paged" if agreed else "refused"

    @action(concurrency=99)
    async def watch(self, progress: Progress[int], person: str) -> str:
        """Report each second while somebody is asked."""
        async with trio.open_nursery() as nursery:

            async def report() -> None:
                for number in range(10_000):
                    progress.report(number)
                    await trio.sleep(1)

            nursery.start_soon(report)
            said = await self.page(person)
            nursery.cancel_scope.cancel()
        return said

    @action(concurrency=200)
    async def work(self, seconds: float, size: int = 0) -> str:
        """Ask nobody."""
        await trio.sleep(seconds)
        return "x" * size

    @action(concurrency=99)
    async def pages(self, person: str) -> AsyncIterator[str]:
        yield "asking"
        yield await self.page(person)
        await trio.sleep_forever()


class Switchboard(Agent):
    """Passes on to the pager."""

    pager: Ref[Pager]

    @action(concurrency=99)
    async def page(self, person: str, seconds: float = 0.0) -> str:
        return await self.pager.invoke(Pager.page, person, seconds)

    @action(concurrency=99)
    async def page_two(self, person: str) -> str:
        return await self.pager.invoke(Pager.page_two, person)


class Clerk(Agent):
    """Has people paged, under a clock, as tools are called."""

    pager: Ref[Pager] | Ref[Switchboard] | None = None

    @action(concurrency=99)
    async def ask(self, person: str, seconds: float = 0.0, within: float | None = None) -> str:
        clock, pager = Clock(), self.pager or self.find(Pager)
        pager = pager if within is None else pager.within(within)
        with standing_still(clock), clock.scope(trio.current_time() + LIMIT):
            try:
                return await pager.invoke(Pager.page, person, seconds)
            except DeadlineExceeded as late:
                return str(late)
        return f"late: {clock.asked}"

    @action(concurrency=99)
    async def use(self, verb: str, *, limit: float = LIMIT, arguments: dict[str, Any] | None = None) -> Any:
        """Use the pager under a clock."""
        clock, pager = Clock(), self.pager or self.find(Pager)
        with standing_still(clock), clock.scope(trio.current_time() + limit):
            if verb != "watch":
                return await pager.invoke(getattr(Pager, verb), **(arguments or {"person": "ada"}))
            async with pager.begin(Pager.watch, "ada") as call:
                return await call.result()
        return f"late: {clock.asked}"

    @action(concurrency=99)
    async def rest(self) -> str:
        """Take time under a clock, and wait for nobody."""
        clock = Clock()
        with standing_still(clock), clock.scope(trio.current_time() + LIMIT):
            await trio.sleep(1000)
        return "late"

    @action(concurrency=99)
    async def take(self, person: str) -> list[str]:
        clock, items, pager = Clock(), list[str](), self.pager or self.find(Pager)
        with standing_still(clock), clock.scope(trio.current_time() + LIMIT):
            async with pager.stream(Pager.pages, person) as pages:
                async for item in pages:
                    items.append(item)
        return items


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Return what a function returns, on virtual time."""
    return trio.run(main, clock=VirtualClock())


async def decide(node: Node, seconds: float, approve: bool = True) -> None:
    """Decide what waits, after so many seconds."""
    await trio.sleep(seconds)
    await answer_approval(node, approve)


Pair = tuple[Ref[Clerk], "Node"]


@asynccontextmanager
async def on_relay(*extensions: str, **options: Any) -> AsyncGenerator[Pair]:
    """Open a clerk, and the node of the pager that it asks over a relay."""
    admitted = Security(access={"pager": Access(invoke=ANYONE)})
    async with hub_with("pager", "clerk", extensions=("receipts", *extensions)) as (network, tokens):
        bridge = RelayBridge(url=URL_OF_HUB, agent="pager", credentials=tokens["pager"])
        async with (
            open_node(listen="ws://back", network=network, bridges=[bridge], security=admitted) as back,
            open_node(network=network, **options) as front,
        ):
            await back.start(Pager)
            await join_relay(front, URL_OF_HUB, peers=True, credentials=tokens["clerk"])
            pager = front.find(Pager, "pager")
            await pager.ready()
            yield await front.start(Clerk, pager=pager), back


@asynccontextmanager
async def pair(way: str, path: Path, **options: Any) -> AsyncGenerator[Pair]:
    """Open a clerk, and the node of the pager that it asks."""
    network = MemoryNetwork()
    async with AsyncExitStack() as stack:
        if way == "relay":
            yield await stack.enter_async_context(on_relay("questions", **options))
            return
        back = await stack.enter_async_context(open_node(listen="ws://back", network=network))
        front = await stack.enter_async_context(open_node(network=network, **options))
        pager = await back.start(Pager)
        if way == "near":
            yield await back.start(Clerk, pager=pager), back
            return
        found: Ref[Any] = await front.consume(Pager, "http://back/agents/pager")
        if way == "two nodes":
            middle = await stack.enter_async_context(open_node(listen="ws://middle", network=network))
            second = await middle.consume(Pager, "http://back/agents/pager")
            await middle.start(Switchboard, pager=second)
            found = await front.consume(Switchboard, "http://middle/agents/switchboard")
        if way == "two agents":
            found = await back.start(Switchboard, pager=pager)
            found = await front.consume(Switchboard, "http://back/agents/switchboard")
        if way == "http":
            text, _ = await fetch(network, "http://back/agents/pager", None)
            await trio.Path(path / "pager.td.json").write_text(web_only(text))
            found = await front.consume(Pager, path / "pager.td.json")
        yield await front.start(Clerk, pager=found), back


WAYS = ["near", "lmos", "http", "two nodes", "two agents", "relay"]
each_way = pytest.mark.parametrize("way", WAYS)


async def results(way: str, path: Path, *steps: Any, **asked: Any) -> tuple[str, float]:
    """Return what the clerk says to one request, and after how many seconds; a step waits, or decides."""
    found: list[tuple[str, float]] = []
    async with pair(way, path) as (clerk, back), trio.open_nursery() as nursery:
        began = trio.current_time()

        async def ask() -> None:
            said = await clerk.invoke(Clerk.ask, "ada", **asked)
            found.append((said, trio.current_time() - began))

        nursery.start_soon(ask)
        for step in steps:
            if isinstance(step, bool):
                await answer_approval(back, step)
            else:
                await trio.sleep(step)
    return found[0]


@each_way
@pytest.mark.parametrize("agreed", [True, False])
def test_clocks_stand_still_while_a_person_is_asked(way: str, agreed: bool, tmp_path: Path) -> None:
    said, seconds = run(partial(results, way, tmp_path, 900.3, agreed))
    assert said == ("paged" if agreed else "refused")
    assert seconds == pytest.approx(900, abs=5)


@each_way
def test_clocks_go_on_once_a_person_has_decided(way: str, tmp_path: Path) -> None:
    said, seconds = run(partial(results, way, tmp_path, 600.3, True, seconds=500.0))
    assert said == "late: "
    assert seconds == pytest.approx(600 + LIMIT, abs=5)  # over HTTP it is seen by the next query


@each_way
def test_a_deadline_of_the_caller_stands_and_says_what_is_waited_for(way: str, tmp_path: Path) -> None:
    said, seconds = run(partial(results, way, tmp_path, within=100.0))
    assert said.endswith("within 100 s: a person is being asked, under the key 'ada'")
    assert seconds == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize("way", ["near", "lmos", "http"])
def test_the_next_item_of_a_stream_ends_the_wait(way: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(way, tmp_path) as (clerk, back), trio.open_nursery() as nursery:

            async def decide() -> None:
                await trio.sleep(1000)
                await answer_approval(back, True)

            nursery.start_soon(decide)
            began = trio.current_time()
            assert await clerk.invoke(Clerk.take, "ada") == ["asking", "paged"]
            assert trio.current_time() == pytest.approx(began + 1000 + LIMIT, abs=1)

    run(main)


def test_a_relay_without_the_extension_says_nothing_of_people() -> None:
    async def main() -> None:
        async with on_relay() as (clerk, _):
            began = trio.current_time()
            assert await clerk.invoke(Clerk.ask, "ada") == "late: "
            assert trio.current_time() == pytest.approx(began + LIMIT, abs=1)

    run(main)


def test_many_questions_over_a_relay_leave_room_for_its_answers() -> None:
    async def main() -> None:
        async with on_relay("questions") as (clerk, back), trio.open_nursery() as nursery:
            said = list[str]()

            async def ask(person: str) -> None:
                said.append(await clerk.invoke(Clerk.ask, person))

            began = trio.current_time()
            for number in range(50):
                nursery.start_soon(ask, f"person {number}")
            await trio.sleep(5_400)  # a hub takes 10,000 messages an hour of one agent
            assert said == ["late: "] * 34
            for _ in range(16):
                nursery.start_soon(decide, back, 0)
                await trio.sleep(1)
            await trio.sleep(1)
            assert said.count("paged") == 16
            assert trio.current_time() - began < 5_420

    run(main)


@pytest.mark.parametrize(
    "said", [None, 1, [], {}, {"id": 1}, {"id": "q", "key": "k", "expires": 9e99}, "later"], ids=repr
)
def test_odd_words_of_waiting_on_a_relay_are_no_answer(said: Any) -> None:
    async def main() -> None:
        async with (
            hub_with("pager", "clerk", extensions=("receipts", "questions")) as (network, tokens),
            open_relay(URL_OF_HUB, network=network, credentials=tokens["pager"]) as pager,
            open_node(network=network) as front,
            trio.open_nursery() as nursery,
        ):

            async def answer() -> None:
                async for heard in pager:
                    if isinstance(heard, RelayMessage) and heard.type == "question":
                        await pager.answer(heard, said, type="waiting")
                        await pager.answer(heard, said, type="waiting")
                        await pager.answer(heard, "paged")

            nursery.start_soon(answer)
            await join_relay(front, URL_OF_HUB, peers=True, credentials=tokens["clerk"])
            await pager.say({"title": Pager.__contract__.title, "actions": {}}, type="discovery")
            ref = front.find(Pager, "pager")
            await ref.ready()
            clerk = await front.start(Clerk, pager=ref)
            assert await clerk.invoke(Clerk.ask, "ada") == "paged"
            nursery.cancel_scope.cancel()

    run(main)


def test_the_node_that_asks_is_believed_for_so_long(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair("lmos", tmp_path, approval_seconds=500) as (clerk, _):
            assert await clerk.invoke(Clerk.ask, "ada") == "late: "
            assert trio.current_time() == pytest.approx(500 + LIMIT, abs=1)

    run(main)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "a day"])
async def test_an_option_that_is_no_time(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="approval_seconds"):
        async with open_node(approval_seconds=seconds):
            pass


def test_a_node_that_was_found_in_a_directory_stops_no_clock() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with (
            open_node(listen="ws://front", network=network, directory=True) as front,
            open_node(listen="ws://back", network=network, register="http://front") as back,
        ):
            clerk, _ = await front.start(Clerk), await back.start(Pager)
            await trio.sleep(5)
            said = await clerk.invoke(Clerk.ask, "ada")
            assert said == "late: a person is being asked, under the key 'ada'"
            assert trio.current_time() == pytest.approx(5 + LIMIT, abs=1)

    run(main)


# ---- several at once


@pytest.mark.parametrize("way", ["near", "lmos", "two nodes"])
def test_two_people_are_asked_at_once(way: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(way, tmp_path) as (clerk, back), trio.open_nursery() as nursery:
            nursery.start_soon(decide, back, 101.0)
            nursery.start_soon(decide, back, 203.0)
            assert await clerk.invoke(Clerk.use, "page_two") == "paged"

    run(main)


@pytest.mark.parametrize("way", ["near", "lmos"])
def test_progress_that_is_reported_meanwhile_takes_nothing_back(way: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(way, tmp_path) as (clerk, back), trio.open_nursery() as nursery:
            nursery.start_soon(decide, back, 300.5)
            assert await clerk.invoke(Clerk.use, "watch") == "paged"

    run(main)


@each_way
def test_who_waits_for_nobody_is_not_held_up(way: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(way, tmp_path) as (clerk, _), trio.open_nursery() as nursery:
            nursery.start_soon(clerk.invoke, Clerk.ask, "ada")
            await trio.sleep(5)
            began = trio.current_time()
            assert await clerk.invoke(Clerk.rest) == "late"
            assert trio.current_time() == pytest.approx(began + LIMIT, abs=1)
            nursery.cancel_scope.cancel()

    run(main)


def test_over_http_nothing_else_is_other_than_without_a_clock(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair("http", tmp_path) as (clerk, back), trio.open_nursery() as nursery:
            found, began = list[Any](), trio.current_time()

            async def work(seconds: float, size: int) -> None:
                given = {"seconds": seconds, "size": size}
                found.append(len(await clerk.invoke(Clerk.use, "work", arguments=given)))

            async with trio.open_nursery() as many:
                for _ in range(90):
                    many.start_soon(work, 20.0, 3)
            assert (found, trio.current_time()) == ([3] * 90, pytest.approx(began + 20, abs=0.1))
            await work(5.0, 2 << 20)
            assert found[-1] == 2 << 20
            nursery.start_soon(decide, back, 60.0)
            assert await clerk.invoke(Clerk.use, "page", limit=0.5) == "paged"

    run(main)


def test_a_guarded_node_tells_no_names(tmp_path: Path) -> None:
    async def main() -> None:
        network, security = MemoryNetwork(), Security(crash_details=False)
        async with (
            open_node(listen="ws://back", network=network, security=security) as back,
            open_node(network=network) as front,
        ):
            await back.start(Pager)
            clerk = await front.start(Clerk, pager=await front.consume(Pager, "http://back/agents/pager"))
            said = await clerk.invoke(Clerk.ask, "ada", 0.0, 50.0)
            assert said.endswith("within 50 s: a person is being asked")

    run(main)


# ---- nodes that do not keep to it

QUESTION = {"id": "q1", "key": "ada", "expires": 4e9}


async def claimed(
    *claims: tuple[float, Any], offers: tuple[str, ...] = OFFERS, answers: bool = False, **options: Any
) -> tuple[str, float]:
    """Return what a clerk says whose pager claims, at these times, that it asks a person."""
    asked: list[dict[str, Any]] = []

    def answer(_: Wire, message: dict[str, Any]) -> None:
        if message["messageType"] == "invokeAction":
            asked.append(message)

    async with scripted(answer, offers=offers, **options) as (peers, node), trio.open_nursery() as nursery:
        from lmos_actors.bindings import remote_ref

        pager = remote_ref(peers, Pager, URL, THING)
        await pager.ready()
        clerk, began = await node.start(Clerk, pager=pager), trio.current_time()

        async def claim() -> None:
            for at, waits in claims:
                await trio.sleep_until(began + at)
                peers.wire.status(asked[0], "in progress", waits=waits)
            if answers:
                await trio.sleep(1)
                peers.wire.status(asked[0], "completed", output="paged")

        nursery.start_soon(claim)
        said = await clerk.invoke(Clerk.ask, "ada")
        found = said, trio.current_time() - began
        nursery.cancel_scope.cancel()
        return found


def every(seconds: float, until: float) -> list[tuple[float, Any]]:
    """Return a claim each so many seconds."""
    return [(1 + number * seconds, QUESTION) for number in range(int(until / seconds))]


def test_a_claim_that_is_renewed_is_believed() -> None:
    assert run(partial(claimed, *every(10, 3600), answers=True))[0] == "paged"


@pytest.mark.parametrize(
    ("claims", "late"),
    [
        ([(1, QUESTION)], 30 + LIMIT),  # not renewed
        ([(1, QUESTION), (50, QUESTION)], 60 + LIMIT),  # renewed too late
        ([(1, QUESTION), (11, ...)], 10 + LIMIT),  # taken back by the next frame
        ([(1, {**QUESTION, "expires": 12.0})], LIMIT),  # long ago
        ([(1, {})], LIMIT),
        ([(1, {**QUESTION, "expires": "soon"})], LIMIT),
        ([(1, {**QUESTION, "expires": True})], LIMIT),
        ([(1, {**QUESTION, "key": 5})], LIMIT),
        ([(1, {**QUESTION, "id": "x" * 2000})], LIMIT),
        ([(1, QUESTION), (2, {"id": 5})], 1 + LIMIT),
        ([(1, {**QUESTION, "expires": 10**400})], LIMIT),
    ],
)
def test_a_claim_that_does_not_count(claims: list[tuple[float, Any]], late: float) -> None:
    said, seconds = run(partial(claimed, *claims))
    assert (said, seconds) == ("late: ", pytest.approx(late, abs=0.5))


def test_who_claims_for_ever_is_believed_for_a_time() -> None:
    _, seconds = run(partial(claimed, *every(29, 4_000), approval_seconds=3_600))
    assert seconds == pytest.approx(3_600 + LIMIT, abs=1)


def test_what_is_taken_back_now_and_then_counts_all_the_same() -> None:
    taken_back = [(at, QUESTION if number % 2 else ...) for number, (at, _) in enumerate(every(29, 12_000))]
    _, seconds = run(partial(claimed, *taken_back, approval_seconds=3_600))
    assert seconds < 2 * 3_600 + 2 * LIMIT


def test_a_claim_of_a_node_that_does_not_offer_it() -> None:
    offers = tuple(word for word in OFFERS if word != "questions")
    assert run(partial(claimed, *every(10, 100), offers=offers)) == ("late: ", pytest.approx(LIMIT))


def test_a_node_that_does_not_offer_it_says_nothing() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        offers = tuple(word for word in SessionOptions().offers if word != "questions")
        async with (
            open_node(listen="ws://back", network=network, session=SessionOptions(offers=offers)) as back,
            open_node(network=network) as front,
        ):
            await back.start(Pager)
            clerk = await front.start(Clerk, pager=await front.consume(Pager, "http://back/agents/pager"))
            assert await clerk.invoke(Clerk.ask, "ada") == "late: "

    run(main)
