"""Clients judged: ours solves every riddle without a fault, each broken one is caught by its case alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import LmosActorsError, open_node
from lmos_actors.conformance import Card, Level, Verdict
from lmos_actors.conformance._client_cases import CLIENT_CASES
from lmos_actors.conformance._judging import judge_clients
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.conformance.broken_clients import ALL, BrokenClient
from tests.conformance.clients import Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.bindings import ConsumedThing

HERE = endpoint_of("ws://judge.example")


async def judged(client: Callable[[MemoryNetwork], Awaitable[object]], *, level: Level = Level.SPEC) -> Card:
    """Let a client be judged, and give its card once it has left."""
    network = MemoryNetwork()
    cards: list[Card] = []

    async def judge(task_status: trio.TaskStatus[str]) -> None:
        cards.append(await judge_clients(network, HERE, level=level, once=True, announce=task_status.started))

    async with trio.open_nursery() as nursery:
        await nursery.start(judge)
        await client(network)
    return cards[0]


def ids(card: Card, verdict: Verdict) -> list[str]:
    return [result.id for result in card.results if result.verdict is verdict]


def told(card: Card) -> str:
    return "\n".join(f"{each.verdict.value:10} {each.id}: {each.seen}" for each in card.results)


# --- our own client


async def solve(thing: ConsumedThing, beside: ConsumedThing) -> None:
    """Solve every riddle."""

    async def prove(riddle: str, token: str, **more: bool) -> None:
        assert (await thing.invoke("prove", {"riddle": riddle, "token": token, **more})) == {"right": True}

    async def invoked(riddle: str) -> None:
        output = await thing.invoke(f"riddle_{riddle.replace('-', '_')}")
        await prove(riddle, output["token"])

    await prove("read", await thing.read("riddle_read"))
    await prove("zoned-time", await thing.read("riddle_time"))
    await prove("other-thing", await beside.read("riddle_read"))
    await thing.write("riddle_slate", "chalk")
    await prove("write", await thing.read("riddle_slate"))
    for riddle in ("output", "pending", "progress", "unknown-members", "unknown-type", "stray-event",
                   "stray-answer", "stray-pong", "fragments", "long", "letters"):  # fmt: skip
        await invoked(riddle)
    for riddle in ("failure", "error", "numeric-status"):
        with pytest.raises(LmosActorsError) as failed:
            await thing.invoke(f"riddle_{riddle.replace('-', '_')}")
        await prove(riddle, str(failed.value), failed=True)
    async with thing.observe("riddle_changing") as values:
        heard = aiter(values)
        assert await anext(heard) == "not yet"
        await prove("observe", await anext(heard))
    async with thing.subscribe("riddled") as events:
        await thing.invoke("riddle_event")
        await prove("event", (await anext(aiter(events)))["token"])
    tokens: dict[int, str] = {}

    async def one(which: int) -> None:
        tokens[which] = (await thing.invoke("riddle_reversed", {"which": which}))["token"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, 1)
        nursery.start_soon(one, 2)
    await prove("reversed", f"{tokens[1]} {tokens[2]}")
    output = await thing.invoke("riddle_restart")
    await trio.sleep(0.1)
    await thing.ready()
    await prove("reconnects", output["token"])


async def ours(network: MemoryNetwork, **how: Any) -> None:
    async with open_node(network=network) as node:
        thing = await node.consume_thing("http://judge.example/agents/conformance", **how)
        await solve(thing, await node.consume_thing("http://judge.example/agents/conformance-b", **how))


async def test_our_client_solves_every_riddle(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(ours)
    assert ids(card, Verdict.PASSED) == [case.id for case in CLIENT_CASES], told(card)
    assert card.role == "client"


async def test_with_the_habits_of_kotlin_wot_nothing_fails(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(ours, habits="kotlin-wot"), level=Level.KOTLIN_WOT)
    assert ids(card, Verdict.FAILED) == [], told(card)


# --- clients by hand


async def by_hand(network: MemoryNetwork, client: type[Client]) -> None:
    await client(network).run()


async def test_a_right_client_passes_everything(autojump_clock: trio.abc.Clock) -> None:
    card = await judged(partial(by_hand, client=Client))
    assert ids(card, Verdict.PASSED) == [case.id for case in CLIENT_CASES], told(card)


@pytest.mark.parametrize("broken", ALL, ids=lambda broken: broken.what.__name__)
async def test_a_broken_client_is_caught_by_its_case_and_no_other(
    broken: BrokenClient, autojump_clock: trio.abc.Clock
) -> None:
    card = await judged(partial(by_hand, client=broken.what))
    assert set(ids(card, Verdict.FAILED)) == {broken.caught_by, *broken.also}, told(card)


def test_every_case_has_a_client_that_it_catches() -> None:
    assert {broken.caught_by for broken in ALL} == {case.id for case in CLIENT_CASES}
