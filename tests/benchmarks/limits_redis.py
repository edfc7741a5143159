"""Bare coredis: the values of a node's store, by pipelines, without agents, leases and scripts."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import coredis
import trio

from tests.benchmarks.limits_sqlite import row
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def with_server(program: Callable[..., Awaitable[float]], *args: Any) -> Callable[[int], float]:
    """Run a program with a new server, whose port comes before the number of repetitions."""

    def measured(n: int) -> float:
        with TemporaryDirectory() as folder:
            server = RedisServer(Path(folder))
            try:
                return trio.run(program, *args, server.url(), n)
            finally:
                server.kill()

    return measured


async def values_written(agents: int, url: str, n: int) -> float:
    """Values a second: `n` of them, one for each of `agents` in each pipeline."""
    names = [f"account-{number}" for number in range(min(agents, n))]
    port = int(url.split(":")[2].split("/")[0])
    client = coredis.Redis("127.0.0.1", port)
    async with client:
        began = clock()
        for balance in range(n // len(names)):
            async with client.pipeline(transaction=True) as pipeline:
                for name in names:
                    space, key, value, _ = row(name, balance)
                    pipeline.hset(space, {key: value})
        return n // len(names) * len(names) / (clock() - began)
