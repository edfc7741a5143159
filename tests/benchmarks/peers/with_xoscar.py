"""xoscar: actors in a pool of processes; near ones live in the main process of the pool."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import xoscar

from tests.benchmarks.peers.programs import MANY, resident

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class Echo(xoscar.Actor):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def same(self, value: int) -> int:
        self.count += 1
        return value

    def told(self) -> int:
        return self.count


class Hop(xoscar.Actor):
    def meet(self, following: Any, end: Any) -> None:
        self.following, self.end = following, end

    async def token(self, hops: int) -> None:
        if hops:
            await self.following.token.tell(hops - 1)
        else:
            await self.end.finish.tell()


class End(xoscar.StatelessActor):
    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    def finish(self) -> None:
        self.over.set()

    async def wait(self) -> None:
        await self.over.wait()


@asynccontextmanager
async def _pool(processes: int = 0) -> AsyncIterator[Any]:
    pool = await xoscar.create_actor_pool("127.0.0.1", n_process=processes)
    async with pool:
        yield pool


async def _echo(pool: Any, processes: int = 0) -> Any:
    where = {"allocate_strategy": xoscar.allocate_strategy.ProcessIndex(processes)} if processes else {}
    return await xoscar.create_actor(Echo, address=pool.external_address, **where)


async def _tell(n: int, processes: int = 0) -> float:
    async with _pool(processes) as pool:
        ref = await _echo(pool, processes)
        began = clock()
        for i in range(n):
            await ref.same.tell(i)
        while await ref.told() < n:  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0.001)
        return clock() - began


async def _ask(n: int, processes: int = 0) -> float:
    async with _pool(processes) as pool:
        ref = await _echo(pool, processes)
        await ref.same(0)
        began = clock()
        for i in range(n):
            await ref.same(i)
        return clock() - began


async def _fan(n: int) -> float:
    async with _pool() as pool:
        refs = [await _echo(pool) for _ in range(MANY)]
        began = clock()
        for i in range(n // MANY):
            assert len(await asyncio.gather(*[ref.same(i) for ref in refs])) == MANY
        return clock() - began


async def _ring(n: int) -> float:
    async with _pool() as pool:
        end = await xoscar.create_actor(End, address=pool.external_address)
        refs = [await xoscar.create_actor(Hop, address=pool.external_address) for _ in range(MANY)]
        for ref, following in zip(refs, [*refs[1:], refs[0]], strict=True):
            await ref.meet(following, end)
        began = clock()
        await refs[0].token.tell(n)
        await end.wait()
        return clock() - began


async def _spawn(n: int) -> float:
    async with _pool() as pool:
        began = clock()
        for _ in range(n):
            ref = await _echo(pool)
        await ref.same(1)
        return clock() - began


async def _memory(n: int) -> float:
    async with _pool() as pool:
        await _echo(pool)
        before = resident()
        refs = [await _echo(pool) for _ in range(n)]
        await refs[-1].same(1)
        return (resident() - before) / n


def _run(program: Callable[..., Awaitable[float]], *arguments: int) -> float:
    async def main() -> float:
        return await program(*arguments)

    return asyncio.run(main())


def tell(n: int) -> float:
    return _run(_tell, n)


def ask(n: int) -> float:
    return _run(_ask, n)


def fan(n: int) -> float:
    return _run(_fan, n)


def ring(n: int) -> float:
    return _run(_ring, n)


def spawn(n: int) -> float:
    return _run(_spawn, n)


def memory(n: int) -> float:
    return _run(_memory, n)


def far_ask(n: int) -> float:
    return _run(_ask, n, 1)


def far_tell(n: int) -> float:
    return _run(_tell, n, 1)
