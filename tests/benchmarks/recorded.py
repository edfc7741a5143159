"""`python -m tests.benchmarks.recorded`: requests to an agent through the proxy of `record`, and without it.

Server, proxy and client are processes of their own. Both ways take turns; each round asks as many requests
over one WebSocket, some of them at once, and the medians are printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import trio

from lmos_actors import Agent, Node, Ref, action, open_node

ROUNDS = 5
REQUESTS = 1_500


class Echo(Agent):
    """Answers with what it is asked."""

    @action
    def echo(self, text: str) -> str:
        """Return a text."""
        return text


async def _ask(ref: Ref[Echo], count: int) -> None:
    for _ in range(count):
        await ref.invoke(Echo.echo, "Will it be warm enough to sit outside?")


async def _rate(node: Node, url: str, callers: int) -> float:
    """Return requests per second over one connection."""
    ref = await node.consume(Echo, url)
    await _ask(ref, 50)
    began = perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(_ask, ref, REQUESTS // callers)
    return REQUESTS / (perf_counter() - began)


async def _measure(direct: str, recorded: str) -> None:
    async with open_node() as node:
        for callers in (1, 50):
            rates: dict[str, list[float]] = {direct: [], recorded: []}
            for turn in range(ROUNDS + 1):
                for url in (direct, recorded) if turn % 2 else (recorded, direct):
                    rate = await _rate(node, url, callers)
                    rates[url] += [rate] if turn else []
            one, other = (median(rates[url]) for url in (direct, recorded))
            found = {"at once": callers, "direct": one, "recorded": other, "ratio": other / one}
            print(json.dumps({name: round(value, 2) for name, value in found.items()}), flush=True)


def _started(*words: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command, and return it with the first line that it prints."""
    command = [sys.executable, "-m", "lmos_actors", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    while "127.0.0.1:" not in line:
        assert line, words
        line = process.stdout.readline()
    return process, line


def main() -> None:
    """Measure, and print a line for each number of requests at once."""
    with tempfile.TemporaryDirectory() as folder:
        served = f"echo={Path(__file__).resolve()}:Echo"
        server, line = _started("serve", served, "--listen", "ws://127.0.0.1:0")
        place = line.partition("127.0.0.1:")[2].split("/")[0].split()[0].rstrip(",;")
        direct = f"http://127.0.0.1:{place}/agents/echo"
        proxy, line = _started("record", "--to", direct, "--out", f"{folder}/log.jsonl")
        recorded = line.partition("connect to ")[2].partition(";")[0]
        try:
            trio.run(_measure, direct, recorded)
        finally:
            for process in (proxy, server):
                process.terminate()
                process.communicate()


if __name__ == "__main__":
    main()
