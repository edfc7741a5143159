"""Calls that one request makes inside the package: `python -m tests.benchmarks.walks [NAME...] [--files]`.

A walk is counted, not timed, as `counting.py` says: from the first line of the caller's verb to its answer,
at both ends, here in one thread. Each walk runs twice before it counts, so that what is made on first
need has been made; `scenario-cold` alone is the first run of a process.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from lmos_actors import Agent, AgentDied, ChildSpec, Property, SupervisorSpec, action, open_node, prop
from lmos_actors.cli import main as command
from lmos_actors.transport import endpoint_of
from tests.benchmarks.counting import Walk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lmos_actors import Ref

    Ask = Callable[[Ref["Walked"]], Awaitable[object]]

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
SCENARIO = "scenarios/weather.yaml"


class Walked(Agent):
    """The agent at the end of each walk."""

    level: Property[int] = prop(default=3)

    @action
    def near(self, value: int) -> int:
        """Return the value, in a turn."""
        return value

    @action
    async def slowly(self, value: int) -> int:
        """Return the value, in a run."""
        return value

    @action
    def crash(self) -> None:
        """Crash."""
        raise ValueError("a crash that was asked for")


NEAR, SLOWLY = Walked.near, Walked.slowly  # looked up once, as a caller in a loop would


# --- the walks


async def in_a_turn(ref: Ref[Walked]) -> int:
    """Invoke a `def`."""
    return await ref.invoke(NEAR, 1)


async def in_a_run(ref: Ref[Walked]) -> int:
    """Invoke an `async def`."""
    return await ref.invoke(SLOWLY, 1)


async def counted(once: Callable[[], Awaitable[object]]) -> Walk:
    """Walk three times; return the last."""
    for _ in range(2):
        await once()
    walk = Walk()
    with walk.counting():
        await once()
    return walk


async def near(ask: Ask) -> Walk:
    """Ask an idle agent of this node."""
    async with open_node() as node:
        ref = await node.start(Walked)
        return await counted(partial(ask, ref))


@asynccontextmanager
async def far_ref() -> AsyncIterator[Ref[Walked]]:
    """Open two nodes and a WebSocket between them."""
    async with open_node(listen=f"ws://{HOST}:0") as server, open_node() as client:
        await server.start(Walked)
        url = server.urls[0].replace("ws://", "http://", 1).rstrip("/")
        yield await client.consume(Walked, f"{url}/agents/walked")


async def far(ask: Ask) -> Walk:
    """Ask an agent of another node."""
    async with far_ref() as ref:
        return await counted(partial(ask, ref))


async def restart() -> Walk:
    """Crash, be restarted, and answer again."""
    async with open_node() as node:
        tree = SupervisorSpec("tree", [ChildSpec("walked", Walked)], max_restarts=100)
        await node.start_supervisor(tree)
        ref = node.find(Walked, "tree/walked")

        async def crash() -> None:
            try:
                await ref.invoke(Walked.crash)
            except AgentDied:
                await ref.ready()
                await ref.invoke(NEAR, 1)

        with redirect_stderr(StringIO()):
            return await counted(crash)


async def http(request: bytes) -> Walk:
    """Send a request over a bare connection; only the server is ours."""
    async with open_node(listen=f"ws://{HOST}:0") as node:
        await node.start(Walked)
        stream = await trio.open_tcp_stream(HOST, endpoint_of(node.urls[0]).port)

        async def exchange() -> None:
            await stream.send_all(request)
            answer = await stream.receive_some(65_536)
            assert answer.startswith(b"HTTP/1.1 200 "), answer

        async with stream:
            return await counted(exchange)


async def chat() -> Walk:
    """Say something to a chat agent over Omnia's protocol, and read its answer of one chunk."""
    from lmos_actors.facades import OmniaOptions, open_chat
    from tests.benchmarks.chat import Talker

    async with open_node(listen=f"ws://{HOST}:0", omnia=OmniaOptions()) as node:
        await node.start(Talker)
        async with open_chat(f"{node.urls[0].rstrip('/')}/?agent=talker") as session:

            async def turn() -> None:
                assert (await session.say("fast 1")).text

            return await counted(turn)


async def thinking() -> Walk:
    """Have a thinking agent answer near: two requests to a scripted model, and a call of a tool."""
    from tests.benchmarks.thinking import Gate, Scripted, Thinker, talk

    gate = Gate()
    gate.open.set()
    async with open_node() as node:
        await node.start(Scripted, gate=gate)
        agent = await node.start(Thinker)
        return await counted(partial(talk, agent, 2))


def scenario(*, cold: bool = False) -> Walk:
    """Run a scenario file as the command does; `cold`: for the first time in this process."""
    walk = Walk()
    for _ in range(1 if cold else 2):
        walk = Walk()
        with suppress(SystemExit), redirect_stdout(said := StringIO()), walk.counting():
            command(["run", SCENARIO])
        assert "passed" in said.getvalue(), said.getvalue()
    return walk


def scenario_cold() -> Walk:
    """Run a scenario file in a process of its own, as a user does."""
    code = "import pickle, sys; from tests.benchmarks.walks import scenario; walk = scenario(cold=True)"
    code += "; sys.stdout.buffer.write(pickle.dumps(walk))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    walk = pickle.loads(done.stdout)
    assert isinstance(walk, Walk)
    return walk


def request(line: str, body: bytes = b"") -> bytes:
    """Write an HTTP request."""
    head = f"{line} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


WALKS: dict[str, Callable[[], Walk]] = {
    "near-def": partial(trio.run, near, in_a_turn),
    "near-async": partial(trio.run, near, in_a_run),
    "far-def": partial(trio.run, far, in_a_turn),
    "far-async": partial(trio.run, far, in_a_run),
    "restart": partial(trio.run, restart),
    "http-get": partial(trio.run, http, request("GET /agents/walked/properties/level")),
    "http-post": partial(trio.run, http, request("POST /agents/walked/actions/near", b'{"value": 1}')),
    "chat": partial(trio.run, chat),
    "thinking": partial(trio.run, thinking),
    "scenario": scenario,
    "scenario-cold": scenario_cold,
}


def main(arguments: list[str]) -> None:
    """Print the walks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.walks", description=__doc__)
    parser.add_argument("walks", metavar="NAME", nargs="*", help=f"one of {', '.join(WALKS)}")
    parser.add_argument("--files", action="store_true", help="also the calls in each file")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.walks if name not in WALKS]
    if unknown:
        parser.error(f"no such walk: {', '.join(unknown)}")
    print(
        f"{'walk':<14}{'calls':>8}{'functions':>11}{'files':>7}{'file switches':>15}{'package switches':>18}"
    )
    for name in options.walks or WALKS:
        walk = WALKS[name]()
        print(
            f"{name:<14}{walk.calls:>8,}{len(walk.functions):>11,}{len(walk.files):>7}{walk.file_switches:>15,}"
            f"{walk.package_switches:>18,}"
        )
        if options.files:
            for path, calls in walk.files.most_common():
                print(f"    {calls:>6,} {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
