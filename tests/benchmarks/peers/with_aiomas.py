"""aiomas: agents that are called by RPC on asyncio, over TCP with JSON; it has no one-way messages.

Its queues within a process and its `shutdown` name the loop where asyncio of Python 3.10 and later takes
none. So near agents are asked over TCP, too, and containers end with their process.
"""

from __future__ import annotations

import asyncio
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import aiomas

from tests.benchmarks.peers.programs import MANY, free_port, resident
from tests.benchmarks.servers import served

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Echo(aiomas.Agent):
    @aiomas.expose
    def same(self, value: int) -> int:
        return value


def _run(main: Callable[[], Coroutine[Any, Any, float]]) -> float:
    """Run on a loop that is current before it runs, as aiomas wants it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main())
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


async def _container() -> Any:
    return await aiomas.Container.create(("127.0.0.1", free_port()), as_coro=True)


async def _near(program: Callable[[Any, Any, int], Any], n: int) -> float:
    value: float = await program(await _container(), await _container(), n)
    return value


async def _ask(here: Any, there: Any, n: int) -> float:
    return await _asked(await here.connect(Echo(there).addr), n)


async def _asked(proxy: Any, n: int) -> float:
    await proxy.same(0)
    began = clock()
    for i in range(n):
        await proxy.same(i)
    return clock() - began


async def _fan(here: Any, there: Any, n: int) -> float:
    proxies = [await here.connect(Echo(there).addr) for _ in range(MANY)]
    began = clock()
    for i in range(n // MANY):
        assert len(await asyncio.gather(*[proxy.same(i) for proxy in proxies])) == MANY
    return clock() - began


async def _spawn(here: Any, there: Any, n: int) -> float:
    began = clock()
    for _ in range(n):
        echo = Echo(there)
    proxy = await here.connect(echo.addr)
    await proxy.same(1)
    return clock() - began


async def _memory(here: Any, there: Any, n: int) -> float:
    before = resident()
    kept = [Echo(there) for _ in range(n)]
    await (await here.connect(kept[-1].addr)).same(1)
    return (resident() - before) / n


def ask(n: int) -> float:
    return _run(lambda: _near(_ask, n))


def fan(n: int) -> float:
    return _run(lambda: _near(_fan, n))


def spawn(n: int) -> float:
    return _run(lambda: _near(_spawn, n))


def memory(n: int) -> float:
    return _run(lambda: _near(_memory, n))


def far_ask(n: int) -> float:
    async def main() -> float:
        with served(__name__) as url:
            return await _asked(await (await _container()).connect(url), n)

    return _run(main)


async def _serve() -> float:
    print(Echo(await _container()).addr, flush=True)
    await asyncio.get_running_loop().create_future()
    return 0.0


if __name__ == "__main__":
    _run(_serve)
