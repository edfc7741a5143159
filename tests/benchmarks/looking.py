"""`python -m tests.benchmarks.looking [PART...]`: what it costs a node that somebody looks at it.

The viewer, and the client of requests over a wire, are in a process of their own, which does as it reads on
its standard input; what is measured is the processor time of the node's process. Nobody looking and somebody
looking take turns, in an order that rotates, and the medians are printed with their ratio.

    near      `tell` and `ask` of a near agent, and its requests over a wire, with the view `tree` open
    share     which part of a processor it takes while nothing else happens
    flow      the same near calls while others are tapped, and of an agent that is
    first     how long the first view takes, and how much a viewer gets, of 100,000 agents
    storm     a minute of agents that crash as fast as they are restarted
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, redirect_stderr, suppress
from io import StringIO
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors import Agent, AgentDied, ChildSpec, Node, Ref, SupervisorSpec, action, open_node
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import Connection, connect, default_network

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST: Final = "127.0.0.1"
ROUNDS: Final = 7
SECONDS: Final = 60.0
"""Of a storm."""

AT_ONCE: Final = 1_000
"""Near calls between two steps of the run loop: a caller that never waits lets nobody else run."""

Measure = tuple[str, Callable[[], Awaitable[float]]]


class Counter(Agent):
    """Counts."""

    count: int = 0

    @action
    def add(self, value: int) -> int:
        """Add a number."""
        self.count += value
        return self.count


class Crasher(Agent):
    """Crashes."""

    @action
    def crash(self) -> None:
        """Crash."""
        raise ValueError("a crash that was asked for")


# ---- the other process


async def serve_commands(url: str) -> None:
    """Look, look away and ask, as the lines of standard input say; answer each with a line."""
    async with open_node() as node, trio.open_nursery() as nursery:
        ref = await node.consume(Counter, f"{url}agents/counter")
        scope, left, viewer = trio.CancelScope(), trio.Event(), None
        print("ready", flush=True)
        async for line in trio.wrap_file(sys.stdin):
            word, _, rest = line.strip().partition(" ")
            answer: object = word
            if word == "look":
                scope, left = trio.CancelScope(), trio.Event()
                place = f"ws{url.removeprefix('http')}"
                answer, viewer = await nursery.start(look, place, json.loads(rest), scope, left)
            elif word == "away" and viewer is not None:
                scope.cancel()
                await left.wait()
                answer = [viewer.bytes, viewer.messages, viewer.longest_gap]
            else:
                for _ in range(int(rest)):
                    await ref.invoke(Counter.add, 1)
            print(json.dumps(answer), flush=True)
        nursery.cancel_scope.cancel()


class Viewer:
    """A viewer that takes note of all changes, and counts them."""

    def __init__(self, connection: Connection, first: dict[str, Any]) -> None:
        self._connection = connection
        self._out: list[bytes] = []
        self.bytes = self.messages = 0
        self.longest_gap = 0.0
        self._last = perf_counter()
        self.there = trio.Event()
        """Set once the first changes have come."""
        self._send({"type": "look", "id": "it", **first})

    def _send(self, message: dict[str, Any]) -> None:
        self._out.append(json.dumps(message).encode())
        self._connection.wake()

    def text(self, text: str) -> None:
        """Take a message."""
        message = json.loads(text)
        if message["type"] == "error":
            raise RuntimeError(message["message"])
        if message["type"] == "changes":
            self.bytes += len(text)
            self.messages += 1
            now = perf_counter()
            if self.there.is_set():
                self.longest_gap = max(self.longest_gap, now - self._last)
            self._last = now
            self.there.set()
            self._send({"type": "taken", "number": message["number"]})

    def binary(self, data: bytes) -> None:
        """Pass over it: there are none."""

    def frames(self, room: int) -> list[bytes]:
        """Return what waits to be sent."""
        found, self._out = self._out, []
        return found


async def look(
    url: str,
    first: dict[str, Any],
    scope: trio.CancelScope,
    left: trio.Event,
    *,
    task_status: trio.TaskStatus[tuple[float, Viewer]],
) -> None:
    """Have a view open until the scope is cancelled; start with the seconds until it was there."""
    began = perf_counter()
    connection = await connect(default_network(), f"{url}live", subprotocols=["lmos-actors-live"])
    viewer = Viewer(connection, first)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run, viewer)
        await viewer.there.wait()
        task_status.started((perf_counter() - began, viewer))
        with scope:
            await trio.sleep_forever()
        connection.close()
        nursery.cancel_scope.deadline = trio.current_time() + 2
    left.set()


class Other:
    """The other process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def does(self, line: str) -> Any:
        """Send a line, and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return json.loads(await trio.to_thread.run_sync(self._process.stdout.readline))


@contextmanager
def other(url: str) -> Iterator[subprocess.Popen[str]]:
    """Start the other process, and end it after the block."""
    words = [sys.executable, "-m", "tests.benchmarks.looking", "--at", url]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# ---- what is measured


async def tell(ref: Ref[Counter], n: int = 200_000) -> float:
    """Return the microseconds of processor time of a tell, its turn included."""
    began = process_time()
    for _ in range(n // AT_ONCE):
        for _ in range(AT_ONCE):
            await ref.tell(Counter.add, 1)
        await ref.invoke(Counter.add, 1)
        await trio.lowlevel.checkpoint()
    return 1e6 * (process_time() - began) / n


async def ask(ref: Ref[Counter], n: int = 200_000) -> float:
    """Return the microseconds of processor time of an ask."""
    began = process_time()
    for _ in range(n // AT_ONCE):
        for _ in range(AT_ONCE):
            await ref.invoke(Counter.add, 1)
        await trio.lowlevel.checkpoint()
    return 1e6 * (process_time() - began) / n


async def wire_ask(helper: Other, n: int = 2_000) -> float:
    """Return the microseconds of processor time at the node of a request over a wire."""
    began = process_time()
    await helper.does(f"ask {n}")
    return 1e6 * (process_time() - began) / n


async def compared(
    helper: Other, view: dict[str, Any], measures: list[Measure], rounds: int, rest: float = 0.5
) -> dict[str, tuple[float, float]]:
    """Measure without a viewer and with one, in turns; return the medians of both."""
    found: dict[tuple[str, bool], list[float]] = {}
    for turn in range(rounds + 1):
        for looks in (False, True) if turn % 2 else (True, False):
            if looks:
                await helper.does(f"look {json.dumps(view)}")
            await trio.sleep(SETTLED if looks else rest)
            for name, measure in measures:
                value = await measure()
                found.setdefault((name, looks), []).extend([value] if turn else [])
            if looks:
                await helper.does("away")
    return {name: (median(found[name, False]), median(found[name, True])) for name, _ in measures}


SETTLED: Final = 4.0
"""Seconds after which a viewer has the first sums of 100,000 agents: from then on it costs less."""

KEPT: Final = 7.5
"""Seconds after which nothing is left of a viewer, its taps included."""


def show(**figures: object) -> None:
    """Print figures as a line of JSON."""
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}), flush=True)


async def started(helper: subprocess.Popen[str]) -> Other:
    """Wait until the other process has come up."""
    assert helper.stdout is not None
    assert await trio.to_thread.run_sync(helper.stdout.readline) == "ready\n"
    return Other(helper)


def tree(agents: int) -> SupervisorSpec:
    """Return a tree of so many agents, and one that is asked."""
    many = BulkSpec("many", member=ChildSpec("one", Counter), count=agents)
    return SupervisorSpec("root", [ChildSpec("counter", Counter), ChildSpec("tapped", Counter), many])


async def near(rounds: int = ROUNDS, sizes: tuple[int, ...] = (1_000, 100_000), n: int = 200_000) -> None:
    """Near calls and requests, with a viewer of the tree and without."""
    for agents in sizes:
        async with open_node(tree(agents), listen=f"ws://{HOST}:0") as node:
            ref = node.find(Counter, "counter")
            with other(http(node)) as process:
                helper = await started(process)
                measures: list[Measure] = [
                    ("tell", lambda ref=ref: tell(ref, n)),
                    ("ask", lambda ref=ref: ask(ref, n)),
                    ("wire-ask", lambda helper=helper: wire_ask(helper, n // 30)),
                ]
                view = {"view": "tree", "arguments": {"open": ["many"], "rows": 100}}
                for name, (free, seen) in (await compared(helper, view, measures, rounds)).items():
                    show(agents=agents, case=name, nobody_us=free, viewer_us=seen, ratio=free / seen)


async def share(seconds: float = 10.0, rounds: int = 3, sizes: tuple[int, ...] = (1_000, 100_000)) -> None:
    """The part of a processor that a node at rest takes, without a viewer and with one."""
    view = {"view": "tree", "arguments": {"open": ["many"], "rows": 100}}
    for agents in sizes:
        async with open_node(tree(agents), listen=f"ws://{HOST}:0") as node:
            with other(http(node)) as process:
                helper = await started(process)

                async def part(seconds: float = seconds) -> float:
                    began, cpu = perf_counter(), process_time()
                    await trio.sleep(seconds)
                    return (process_time() - cpu) / (perf_counter() - began)

                found = await compared(helper, view, [("share", part)], rounds)
                nobody, viewer = found["share"]
                show(agents=agents, case="share of a processor", nobody=nobody, viewer=viewer)


async def flow(rounds: int = ROUNDS, n: int = 200_000) -> None:
    """Near calls of agents that are tapped, and of others meanwhile."""
    async with open_node(tree(10), listen=f"ws://{HOST}:0", allow_operations=True) as node:
        free, tapped = node.find(Counter, "counter"), node.find(Counter, "tapped")
        with other(http(node)) as process:
            helper = await started(process)
            measures: list[Measure] = [
                ("tell, untapped", lambda: tell(free, n)),
                ("ask, untapped", lambda: ask(free, n)),
                ("tell, tapped", lambda: tell(tapped, n // 10)),
                ("ask, tapped", lambda: ask(tapped, n // 10)),
            ]
            view = {"view": "flow", "arguments": {"paths": ["tapped"]}}
            for name, (nobody, seen) in (await compared(helper, view, measures, rounds, KEPT)).items():
                show(case=name, nobody_us=nobody, viewer_us=seen, ratio=nobody / seen)


async def first(rounds: int = ROUNDS, agents: int = 100_000) -> None:
    """The first view of many agents, from the connection on."""
    view = {"view": "tree", "arguments": {"open": ["many"], "rows": 100}}
    async with open_node(tree(agents), listen=f"ws://{HOST}:0") as node:
        with other(http(node)) as process:
            helper = await started(process)
            found: list[float] = []
            for _ in range(rounds):
                began = process_time()
                there = await helper.does(f"look {json.dumps(view)}")
                found.append(there)
                show(agents=agents, first_view_ms=1e3 * there, node_cpu_ms=1e3 * (process_time() - began))
                await helper.does("away")
            show(agents=agents, first_view_ms=1e3 * median(found), slowest_ms=1e3 * max(found))


async def storm(seconds: float = SECONDS, agents: int = 100_000, crashers: int = 1_000) -> None:
    """Agents that crash again and again, with a viewer of them; what the viewer gets, and how late."""
    async with open_node(tree(agents), listen=f"ws://{HOST}:0") as node:
        group = await node.start_supervisor(SupervisorSpec("storm", max_restarts=10**9))
        refs = await group.start_many(ChildSpec("crasher", Crasher), crashers)
        with other(http(node)) as process:
            helper = await started(process)
            view = {"view": "tree", "arguments": {"open": ["storm"], "rows": 300}}
            await helper.does(f"look {json.dumps(view)}")
            began, cpu = perf_counter(), process_time()
            with redirect_stderr(StringIO()):
                while perf_counter() - began < seconds:
                    for ref in refs:
                        with suppress(AgentDied):
                            await ref.invoke(Crasher.crash)
                    for ref in refs:
                        await ref.ready()
            took, used = perf_counter() - began, process_time() - cpu
            got, messages, gap = await helper.does("away")
            restarts = group.statistics().restarts
            assert await node.find(Counter, "counter").invoke(Counter.add, 1) == 1
            show(
                agents=agents,
                seconds=took,
                restarts_a_second=restarts / took,
                restarts_a_cpu_second=restarts / used,
                bytes_a_second=got / took,
                messages_a_second=messages / took,
                longest_gap_s=gap,
            )


def http(node: Node) -> str:
    """Return the address of a node over HTTP, with a slash at the end."""
    return node.urls[0].replace("ws://", "http://", 1).rstrip("/") + "/"


PARTS: Final[dict[str, Callable[[], Awaitable[None]]]] = {
    "near": near,
    "share": share,
    "flow": flow,
    "first": first,
    "storm": storm,
}


def main(arguments: list[str]) -> None:
    """Measure the parts that are named, or all."""
    if arguments[:1] == ["--at"]:
        trio.run(serve_commands, arguments[1])
        return
    for name in arguments or PARTS:
        trio.run(PARTS[name])


if __name__ == "__main__":
    main(sys.argv[1:])
