"""The agent of `test_hosts.py` and its callers, which run as processes on hosts, or simulated.

python host_agents.py add LOOKUP     add one again and again, each time until it is known to be done
python host_agents.py ask URL        for each line that is read, add one at the agent with this URL
"""

from __future__ import annotations

import json
import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

import trio

from lmos_actors import Agent, action, open_node
from lmos_actors.errors import LmosActorsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node, Ref

HOST: ContextVar[str] = ContextVar("HOST")
"""The host and the number of the process that runs an agent, such as 3/2, where no process is real."""

PATIENCE = 2.0
"""Seconds after which a client gives an attempt up, and asks whoever has the agent then."""

PAUSE = 0.05


class Counter(Agent, durable=True):
    """Counts, and says where it has done so."""

    total: int = 0

    @action
    def add(self) -> tuple[int, str]:
        self.total += 1
        return self.total, HOST.get(os.environ.get("TEST_HOST", ""))


async def add(node: Node, say: Callable[[object], object]) -> None:
    """Add one until the end, and say each answer: its number, the total and where it comes from."""
    counter, number = node.find(Counter, id="main"), 0
    await counter.ready()
    while True:
        number += 1
        answer = None
        while answer is None:
            with trio.move_on_after(PATIENCE):
                answer = await attempt(counter, number)
            await trio.sleep(PAUSE)
        say([number, *answer])


async def attempt(counter: Ref[Counter], number: int) -> tuple[int, str] | None:
    """Return the answer to one attempt, which counts once with those before it; None without an answer."""
    try:
        return await counter.retrying(attempts=1, key=f"add-{number:032}").invoke(Counter.add)
    except LmosActorsError:
        return None


async def ask(counter: Ref[Counter]) -> str:
    """Add one without a key, and return the error; nothing where it was answered."""
    try:
        await counter.invoke(Counter.add)
    except LmosActorsError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


async def add_from(lookup: str) -> None:
    async with open_node(lookup=lookup) as node:
        await add(node, say)


async def ask_at(url: str) -> None:
    async with open_node() as node:
        counter = await node.consume(Counter, url)
        say("found")
        while await trio.to_thread.run_sync(sys.stdin.readline):
            say(await ask(counter))


if __name__ == "__main__":
    trio.run({"add": add_from, "ask": ask_at}[sys.argv[1]], sys.argv[2])
