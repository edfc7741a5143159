"""mango-agents: agents with inboxes on asyncio; far ones in another container, over TCP with JSON."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import mango

from tests.benchmarks.peers.programs import MANY, free_port, resident
from tests.benchmarks.servers import served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Echo(mango.Agent):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def handle_message(self, content: Any, meta: dict[str, Any]) -> None:
        if content == "count":
            self.schedule_instant_message(self.count, mango.sender_addr(meta))
        elif isinstance(content, list):
            self.schedule_instant_message(content[0], mango.sender_addr(meta))
        else:
            self.count += 1


class Hop(mango.Agent):
    following: Any = None
    done: Any = None

    def handle_message(self, content: Any, meta: dict[str, Any]) -> None:
        if content:
            self.schedule_instant_message(content - 1, self.following)
        else:
            self.done.set()


class Client(mango.Agent):
    """Waits for answers."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def handle_message(self, content: Any, meta: dict[str, Any]) -> None:
        self.left -= 1
        if self.left <= 0:
            self.answer.set_result(content)

    async def ask(self, content: Any, *whom: Any) -> Any:
        self.left, self.answer = len(whom), asyncio.get_running_loop().create_future()
        for each in whom:
            await self.send_message(content, receiver_addr=each)
        return await self.answer


@asynccontextmanager
async def _container() -> AsyncIterator[Any]:
    container = mango.create_tcp_container(addr=("127.0.0.1", free_port()))
    async with mango.activate(container):
        yield container


async def _tell(client: Client, address: Any, n: int) -> float:
    began = clock()
    for i in range(n):
        await client.send_message(i, receiver_addr=address)
    while await client.ask("count", address) < n:  # noqa: ASYNC110 -- nothing tells
        await asyncio.sleep(0.001)
    return clock() - began


async def _ask(client: Client, address: Any, n: int) -> float:
    await client.ask([0], address)
    began = clock()
    for i in range(n):
        await client.ask([i], address)
    return clock() - began


async def _near(program: Any, n: int) -> float:
    async with _container() as container:
        client, echo = container.register(Client()), container.register(Echo())
        value: float = await program(client, echo.addr, n)
        return value


async def _far(program: Any, n: int) -> float:
    with served(__name__) as line:
        port, name = line.split()
        async with _container() as container:
            client = container.register(Client())
            value: float = await program(client, mango.addr(("127.0.0.1", int(port)), name), n)
            return value


async def _fan(n: int) -> float:
    async with _container() as container:
        client = container.register(Client())
        addresses = [container.register(Echo()).addr for _ in range(MANY)]
        began = clock()
        for i in range(n // MANY):
            await client.ask([i], *addresses)
        return clock() - began


async def _ring(n: int) -> float:
    async with _container() as container:
        client = container.register(Client())
        hops = [container.register(Hop()) for _ in range(MANY)]
        done = asyncio.Event()
        for hop, following in zip(hops, [*hops[1:], hops[0]], strict=True):
            hop.following, hop.done = following.addr, done
        began = clock()
        await client.send_message(n, receiver_addr=hops[0].addr)
        await done.wait()
        return clock() - began


async def _spawn(n: int) -> float:
    async with _container() as container:
        client = container.register(Client())
        began = clock()
        for _ in range(n):
            echo = container.register(Echo())
        await client.ask([1], echo.addr)
        return clock() - began


async def _memory(n: int) -> float:
    async with _container() as container:
        client = container.register(Client())
        before = resident()
        for _ in range(n):
            echo = container.register(Echo())
        await client.ask([1], echo.addr)
        return (resident() - before) / n


def tell(n: int) -> float:
    return asyncio.run(_near(_tell, n))


def ask(n: int) -> float:
    return asyncio.run(_near(_ask, n))


def fan(n: int) -> float:
    return asyncio.run(_fan(n))


def ring(n: int) -> float:
    return asyncio.run(_ring(n))


def spawn(n: int) -> float:
    return asyncio.run(_spawn(n))


def memory(n: int) -> float:
    return asyncio.run(_memory(n))


def far_ask(n: int) -> float:
    return asyncio.run(_far(_ask, n))


def far_tell(n: int) -> float:
    return asyncio.run(_far(_tell, n))


async def _serve() -> None:
    async with _container() as container:
        echo = container.register(Echo())
        print(container.addr[1], echo.aid, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(_serve())
