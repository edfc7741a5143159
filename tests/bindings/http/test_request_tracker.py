"""Many clients over HTTP that ask and leave at any moment: each answer fits, and nothing is lost."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import h11
import pytest
import trio

from lmos_actors import ChildSpec, SupervisorSpec
from tests.bindings.web import Weather, World, served
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from tests.bindings.web import Web

REQUESTS: list[tuple[str, str, bytes, dict[str, str], tuple[int, ...]]] = [
    ("GET", "properties/units", b"", {}, (200,)),
    ("PUT", "properties/units", b'"kelvin"', {}, (204,)),
    ("PUT", "properties/units", b"5", {}, (400,)),
    ("PUT", "properties/units", b'"x"', {"if_match": '"none"'}, (412,)),
    ("POST", "actions/tell", b'{"city": "x"}', {}, (200,)),
    ("POST", "actions/forecast", b'{"city": "x"}', {}, (200,)),
    ("POST", "actions/forecast", b'{"city": "x"}', {"lmos_remaining": "0.7"}, (200, 503)),
    ("POST", "actions/forecast", b'{"city": "x"}', {"prefer": "respond-async"}, (201,)),
    ("POST", "actions/print_out", b"", {}, (204,)),
    ("POST", "actions/crash", b"", {}, (500,)),
    ("POST", "actions/pour", b'{"count": 40, "seconds": 0.01}', {}, (200,)),
    ("GET", "actions/forecast", b"", {}, (200, 404)),
    ("DELETE", "actions/forecast", b"", {}, (204, 404)),
    ("GET", "events/asked", b"", {"prefer": "wait=1"}, (200, 204)),
    ("GET", "properties/units/observable", b"", {"prefer": "wait=1"}, (200, 204)),
    ("GET", "events", b"", {"accept": "text/event-stream"}, (200,)),
    ("GET", "properties", b"", {"accept": "text/event-stream"}, (200,)),
]
STURDY = SupervisorSpec("root", [ChildSpec("weather", Weather)], max_restarts=10_000)
ANYTIME = (500, 503)  # the agent died, its mailbox is full, it is between two lives


async def a_client(there: World, random: Random, answered: list[int]) -> None:
    for _ in range(6):
        web = await there.client()
        try:
            with trio.move_on_after(random.choice((0.0, 0.05, 0.3, 1.0, 20.0))):
                await some_requests(web, random, answered)
        finally:
            await web.leave()
        await trio.sleep(random.random())


async def some_requests(web: Web, random: Random, answered: list[int]) -> None:
    for _ in range(random.randrange(1, 4)):
        method, path, body, headers, statuses = random.choice(REQUESTS)
        await web.send(method, path, body, **headers)
        head = await web.head()
        assert head.status in (*statuses, *ANYTIME), (method, path, head)
        answered.append(head.status)
        if head.headers.get("content-type") == "text/event-stream" and method == "GET":
            return
        while not isinstance(await web._next(), h11.EndOfMessage):  # pyright: ignore[reportPrivateUsage]
            pass


@pytest.mark.parametrize("seed", few_or_all(range(2), range(4)))
def test_nothing_is_lost_whatever_clients_do(seed: int) -> None:
    answered: list[int] = []

    async def main(there: World) -> None:
        random = Random(seed)
        async with trio.open_nursery() as nursery:
            for _ in range(12):
                nursery.start_soon(a_client, there, Random(random.random()), answered)
        await trio.sleep(30)
        counts = there.ref.statistics()
        assert (counts.waiting, counts.running) == (0, 0)
        assert counts.accepted == counts.handled + counts.cancelled + counts.dead_lettered + counts.dropped
        assert (await there.ask("GET", "properties/units")).status in (200, 503)

    served(main, spec=STURDY)
    assert len(answered) > 30
    assert len(set(answered)) > 4
