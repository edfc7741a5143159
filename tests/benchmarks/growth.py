"""python -m tests.benchmarks.growth [NAME...] [--most N] [--rounds N]: what one more costs as there are more.

Each figure is the median of runs in fresh processes: microseconds, or bytes, for each of so many. What is
linear keeps its figure; one that grows with the number of others is seen in the last column, the figure of
the most by that of the fewest. A factor of 2 to 3 in time is memory that no longer fits into the caches.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from lmos_actors import ChildSpec, Node
from lmos_actors.transport import raise_descriptor_limit
from tests.benchmarks import directory, ours, wire
from tests.benchmarks.__main__ import ROOT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SOME = 20_000  # messages to the agents of a crowd
NAMED = 500  # agents whose names are looked up
REGISTERED = 500  # registrations that are measured


async def told(node: Node, n: int) -> float:
    """Seconds of a tell to one of so many agents, drawn by lot."""
    refs = await node.root.start_many(ChildSpec("counter", ours.Counter), n)
    drawn = random.Random(1).choices(refs, k=SOME)
    began = clock()
    for ref in drawn:
        await ref.tell(ours.Counter.add, 1)
    return (clock() - began) / SOME


async def named(node: Node, n: int) -> float:
    """Seconds to find an agent by its name among so many that have one."""
    for number in range(n):
        await node.start_child(ChildSpec(f"echo{number}", ours.Echo))
    names = [f"echo{number}" for number in random.Random(1).choices(range(n), k=NAMED)]
    began = clock()
    for name in names:
        assert node.find(ours.Echo, name)
    return (clock() - began) / NAMED


async def topics(node: Node, n: int) -> float:
    """Seconds to make a topic, subscribe to it, publish and receive one value, with so many at once."""
    began = clock()
    contexts = []
    for number in range(n):
        topic = node.topic(f"topic{number}", int)
        contexts.append(topic.subscribe())
        feed = await contexts[-1].__aenter__()
        topic.publish(number)
        assert feed.receive_nowait() == number
    for context in reversed(contexts):
        await context.__aexit__(None, None, None)
    return (clock() - began) / n


async def subscribers(node: Node, n: int) -> float:
    """Seconds in which a topic hands one value to each of so many subscribers."""
    topic = node.topic("numbers", int)
    contexts = [topic.subscribe() for _ in range(n)]
    feeds = [await context.__aenter__() for context in contexts]
    began = clock()
    topic.publish(1)
    for feed in feeds:
        feed.receive_nowait()
    seconds = (clock() - began) / n
    for context in reversed(contexts):
        await context.__aexit__(None, None, None)
    return seconds


async def _stopped(node: Node, n: int) -> float:
    return 1 / await ours.stop_all(node, n)


async def _started(node: Node, n: int) -> float:
    return 1 / await ours.spawn(node, n)


def on_node(program: Callable[[Node, int], Awaitable[float]], n: int) -> float:
    """Run a program on a node; give microseconds."""
    return ours.on_node(program, n) * 1e6


def registered(n: int) -> float:
    """Microseconds of a registration, where so many are in the directory."""
    return 1e6 / directory.on_directory(directory.registrations, n, REGISTERED)


def connected(n: int) -> float:
    """Microseconds to open a connection and ask over it, with so many open in the end."""
    raise_descriptor_limit(20_000)
    return 1e6 / wire.connections(n)


@dataclass(frozen=True)
class Growth:
    """Something of which there are more and more."""

    what: str
    run: Callable[[int], float]
    sizes: tuple[int, ...]


AGENTS = (1_000, 10_000, 100_000, 1_000_000)
NAMES = (100, 1_000, 10_000, 100_000)
CONNECTIONS = (10, 100, 1_000, 5_000)

GROWTH = {
    "started": Growth("us to start an agent, of one spec", partial(on_node, _started), AGENTS),
    "memory": Growth("bytes of an idle agent", partial(ours.on_node, ours.memory), AGENTS),
    "told": Growth("us of a tell, its agent drawn by lot", partial(on_node, told), AGENTS),
    "stopped": Growth("us to stop an agent with its supervisor", partial(on_node, _stopped), AGENTS),
    "named": Growth("us to find an agent by its name", partial(on_node, named), NAMES),
    "topics": Growth("us of a topic with one subscriber and value", partial(on_node, topics), NAMES),
    "subscribers": Growth("us of a value for a subscriber", partial(on_node, subscribers), NAMES),
    "registered": Growth("us of a registration in a directory", registered, NAMES),
    "connected": Growth("us to open a connection and ask", connected, CONNECTIONS),
    "connection-memory": Growth("bytes of an idle connection", wire.idle_memory, CONNECTIONS),
}


def measured(name: str, n: int, rounds: int) -> float:
    """Measure in fresh processes; give the median."""
    command: list[Any] = [sys.executable, "-m", "tests.benchmarks.growth", "--one", name, str(n)]
    runs = (subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True) for _ in range(rounds))
    return median(float(run.stdout) for run in runs)


def main(arguments: list[str]) -> None:
    """Measure what is named, or all of it."""
    if arguments[:1] == ["--one"]:
        print(repr(GROWTH[arguments[1]].run(int(arguments[2]))))
        return
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"one of {', '.join(GROWTH)}")
    parser.add_argument("--most", metavar="N", type=int, default=1_000_000, help="no more than so many")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in GROWTH]:
        parser.error(f"no such thing: {', '.join(unknown)}")
    for name in options.names or GROWTH:
        growth = GROWTH[name]
        sizes = [size for size in growth.sizes if size <= options.most]
        figures = [measured(name, size, options.rounds) for size in sizes]
        row = "   ".join(f"{size:,}: {figure:,.2f}" for size, figure in zip(sizes, figures, strict=True))
        print(f"{growth.what:<46}{row}   ({figures[-1] / figures[0]:.2f})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
