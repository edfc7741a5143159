"""A directory with many entries: a page of the list, a search, registrations and renewals."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import h11
import trio

from lmos_actors import open_node
from lmos_actors.directory import DirectoryOptions, ThingDirectory
from lmos_actors.transport import endpoint_of
from tests.networks import default_network

if TYPE_CHECKING:
    from lmos_actors import Node, Ref

PAGE = 100
TOGETHER = 64
TINY = 3

Verb = "Callable[[Node, Ref[ThingDirectory], int, int], Awaitable[float]]"


def entry(number: int) -> dict[str, Any]:
    """Give a description of about 2 kB."""
    base = f"http://127.0.0.1:8080/agents/agent-{number}"
    return {
        "@context": ["https://www.w3.org/2022/wot/td/v1.1", {"lmos": "https://eclipse.dev/lmos/protocol/v1"}],
        "@type": "lmos:Agent",
        "id": f"urn:agent:{number:06}",
        "title": f"Agent {number}",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        "registration": {"ttl": 3600},
        "actions": {
            f"action{each}": {
                "description": "Does something that takes some words to tell.",
                "input": {"type": "object", "properties": {"city": {"type": "string"}}},
                "output": {"type": "string"},
                "forms": [{"href": f"{base}/actions/action{each}", "op": "invokeaction"}],
            }
            for each in range(8)
        },
    }


def on_directory(work: Any, entries: int, n: int) -> float:
    """Run a measurement on a directory on disk that has so many entries."""

    async def main() -> float:
        with TemporaryDirectory() as folder:
            options = DirectoryOptions(path=f"{folder}/directory.db")
            async with open_node(listen="ws://127.0.0.1:0", directory=options) as node:
                ref = node.find(ThingDirectory)
                await together(ref, entries)
                found: float = await work(node, ref, entries, n)
                return found

    return trio.run(main)


async def together(ref: Ref[ThingDirectory], n: int, start: int = 0) -> None:
    """Register, so many at a time."""
    numbers = iter(range(start, start + n))

    async def register() -> None:
        for number in numbers:
            td = entry(number)
            await ref.invoke(ThingDirectory.put_thing, td["id"], td)

    async with trio.open_nursery() as nursery:
        for _ in range(TOGETHER):
            nursery.start_soon(register)


async def registrations(node: Node, ref: Ref[ThingDirectory], entries: int, n: int) -> float:
    """Registrations a second, 64 at a time, each answered when it is committed."""
    began = clock()
    await together(ref, n, entries)
    return n / (clock() - began)


async def renewals(node: Node, ref: Ref[ThingDirectory], entries: int, n: int) -> float:
    """Renewals a second, 64 at a time."""
    numbers = iter(range(n))

    async def renew() -> None:
        for number in numbers:
            await ref.invoke(ThingDirectory.partially_update_thing, f"urn:agent:{number % entries:06}", {})

    began = clock()
    async with trio.open_nursery() as nursery:
        for _ in range(TOGETHER):
            nursery.start_soon(renew)
    return n / (clock() - began)


async def searches(node: Node, ref: Ref[ThingDirectory], entries: int, n: int) -> float:
    """Milliseconds of a search by title."""
    query = f"$[?@.title == 'Agent {entries // 2}'].id"
    began = clock()
    for _ in range(n):
        assert len(await ref.invoke(ThingDirectory.search_jsonpath, query)) == 1
    return (clock() - began) / n * 1_000


async def pages(node: Node, ref: Ref[ThingDirectory], entries: int, n: int) -> float:
    """Pages of 100 descriptions a second over HTTP, on one connection."""
    stream = await default_network().connect(endpoint_of(node.urls[0]), None)
    async with stream:
        http = h11.Connection(h11.CLIENT)
        began = clock()
        for number in range(n):
            offset = number * PAGE % max(1, entries - PAGE)
            target = f"/things?offset={offset}&limit={PAGE}"
            request = h11.Request(method="GET", target=target, headers=[("Host", "127.0.0.1")])
            await stream.send_all(http.send(request) + http.send(h11.EndOfMessage()))
            await _read(http, stream)
            http.start_next_cycle()
        return n / (clock() - began)


async def _read(http: h11.Connection, stream: trio.abc.Stream) -> None:
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(1 << 18)))
        elif isinstance(event, h11.Response):
            assert event.status_code == 200
        elif isinstance(event, h11.EndOfMessage):
            return


def sized(work: Any, many: int, few: int, n: int) -> float:
    """Run a measurement on many entries; where it is only to be seen that it runs, on few."""
    return on_directory(work, few if n <= TINY else many, n)
