"""`python -m tests.benchmarks.on_ray [ready] [call] [worker] [raylet]`: groups of a deployment on Ray.

Each figure is of `up --on ray` on a cluster of its own on this machine, in turns with the same by `up`. What
fails over is asked by a client in this process, which finds it in the directory. The
registry takes all of the first machine, so that it is never what is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import AgentUnavailable, NotFound, OutcomeUnknown, open_node
from tests.benchmarks.grouped import Clerk
from tests.benchmarks.groups import (
    ANEW,
    ASKS,
    FORKED,
    ROUNDS,
    Running,
    call,
    deployment,
    ready,
    running,
    show,
)
from tests.processes import parent_of
from tests.ray_cluster import add_machine, cluster

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lmos_actors import Ref

GROUPS = 10
TURNS = 5
"""How often each kind of call is measured."""
WORKERS = 50
"""How many workers are killed."""
RAYLETS = 6
ON_RAY = ("--on", "ray")
PAUSE = 0.001
"""Seconds between two attempts of a client that was not answered."""
LISTEN = {"listen": "ws://0.0.0.0:0", "insecure": True}


def bare(address: str) -> list[float]:
    """Return the rates at which one Ray actor asks another, one question after another."""
    import ray

    @ray.remote(num_cpus=0)
    class BareClerk:
        def echo(self, text: str) -> str:
            return text

    @ray.remote(num_cpus=0)
    class BareDesk:
        def rate(self, clerk: Any, count: int) -> float:
            began = clock()
            for _ in range(count):
                ray.get(clerk.echo.remote("Will it be warm enough to sit outside?"))
            return count / (clock() - began)

    ray.init(address=address, log_to_driver=False, configure_logging=False)
    try:
        clerk, desk = BareClerk.remote(), BareDesk.remote()
        return [ray.get(desk.rate.remote(clerk, ASKS)) for _ in range(ROUNDS + 1)][1:]
    finally:
        ray.shutdown()


async def failover(machines: Any, replicas: int, times: int, *, raylet: bool) -> list[float]:
    """Return the seconds from `kill -9` of a worker, or of its raylet, to the next answer, for each time."""
    usual = {**LISTEN, "register": "registry", "needs": {"registry": "ready"}}
    groups: dict[str, dict[str, Any]] = {
        "registry": {**LISTEN, "directory": True, "limits": {"processors": 2}},
        "clerk": {**usual, "agents": ["clerk"], "replicas": replicas, "limits": {"processors": 1}},
    }
    taken: list[float] = []
    async with running(deployment(groups, {}), *ON_RAY) as found:
        await found.is_ready.wait()
        lookup = found.members["registry/1"]["urls"][0].replace("ws", "http", 1)
        async with open_node(lookup=lookup) as node:
            clerk = node.find(Clerk)
            await clerk.ready()
            for _ in range(times):
                worker, lives = await answered(clerk), lives_of(found)
                os.kill(parent_of(worker) if raylet else worker, signal.SIGKILL)
                began = clock()
                while await answered(clerk) == worker:  # noqa: ASYNC110 -- its raylet alone is gone
                    await trio.sleep(PAUSE)
                taken.append(clock() - began)
                if raylet:
                    add_machine(machines, 1)
                await found.wait_until(partial(is_back, found, lives))
    return sorted(taken)


async def answered(clerk: Ref[Clerk]) -> int:
    """Ask until there is an answer: the number of the process."""
    while True:
        try:
            return await clerk.invoke(Clerk.pid)
        except (AgentUnavailable, NotFound, OutcomeUnknown):
            await trio.sleep(PAUSE)


def lives_of(found: Running) -> int:
    """Return how many processes of the clerk there have been."""
    return sum(each["generation"] for name, each in found.members.items() if name.startswith("clerk/"))


def is_back(found: Running, before: int) -> bool:
    """Return whether there have been more since, and all are ready."""
    return lives_of(found) > before and all(each["state"] == "ready" for each in found.members.values())


def main(wanted: Sequence[str]) -> None:
    """Measure what is wanted, all if nothing is named."""
    if not wanted or "call" in wanted:
        with on(2) as machines:
            rounds = [(trio.run(call, *ON_RAY), trio.run(call), bare(machines.address)) for _ in range(TURNS)]
        ray, up, actor = (
            median(each for rates in kind for each in rates) for kind in zip(*rounds, strict=True)
        )
        show(call="across groups", on_ray=ray, up=up, ray_actor=actor, to_up=ray / up, to_actor=ray / actor)
    if not wanted or "ready" in wanted:
        with on(2):
            times = [
                (trio.run(ready, GROUPS, FORKED, *ON_RAY)[0], trio.run(ready, GROUPS, ANEW)[0])
                for _ in range(ROUNDS)
            ]
        ray, up = map(median, zip(*times, strict=True))
        show(groups=GROUPS, on_ray=ray, anew=up, ratio=ray / up)
    for name, replicas, times in (("worker", 1, WORKERS), ("worker", 2, WORKERS), ("raylet", 1, RAYLETS)):
        if not wanted or name in wanted:
            with on(2, 1, 1, 1) as machines:
                taken = trio.run(partial(failover, machines, replicas, times, raylet=name == "raylet"))
            p99 = taken[-1 - times // 100]
            show(killed=name, replicas=replicas, p50=median(taken), p99=p99, longest=taken[-1], times=times)


@contextmanager
def on(*processors: int) -> Generator[Any]:
    """Run a cluster for the block, which `up --on ray` finds."""
    with cluster(*processors) as machines:
        os.environ["RAY_ADDRESS"] = machines.address
        try:
            yield machines
        finally:
            del os.environ["RAY_ADDRESS"]


if __name__ == "__main__":
    main(sys.argv[1:])
