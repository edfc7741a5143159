"""The server of the soak: `python -m tests.long.soak_server PUBLIC_URL [full]`.

Obeys its standard input.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import trio

from lmos_actors import ChildSpec, SupervisorSpec, open_node
from tests.long.soak_agents import Boss, Ledger, Worker, look, obey, tell

if TYPE_CHECKING:
    from lmos_actors import Node

KEPT = 1_024  # descriptions that a node keeps

WORKERS = ("alpha", "beta", "gamma")
OFTEN = 10**9  # restarts that are no reason to give up

TREE = SupervisorSpec(
    "root",
    (
        SupervisorSpec(
            "crew",
            tuple(ChildSpec(name, Worker) for name in WORKERS),
            strategy="one_for_one",
            max_restarts=OFTEN,
        ),
        ChildSpec("ledger", Ledger),
        ChildSpec("boss", Boss),
    ),
)


async def fill(node: Node) -> None:
    """Fill what is bounded: the last crash reports and dead letters, so that their growth is no trend."""
    worker = node.root.supervisor("crew").child("alpha")
    for _ in range(150):
        worker.tell_nowait(Worker.crash)
        for _ in range(8):
            worker.tell_nowait(Worker.add, 1, 1)
        await trio.sleep(0.001)
        await worker.ready()


async def fill_descriptions(node: Node, count: int) -> None:
    """Have descriptions asked for, of agents that come and go: a server keeps some."""
    boss = node.root.child("boss")
    async with httpx2.AsyncClient(base_url=node.urls[0].replace("ws:", "http:")) as web:
        for _ in range(count):
            name = await boss.invoke(Boss.hire)
            answer = await web.get(f"/agents/boss.{name}")
            answer.raise_for_status()
            await boss.invoke(Boss.fire, name)


async def serve(public_url: str | None, full: bool) -> None:
    """Serve until told to end; `full`: with all that is bounded at its bound."""
    async with open_node(TREE, listen="ws://127.0.0.1:0", public_url=public_url) as node:
        if full:
            await fill(node)
        await fill_descriptions(node, KEPT + 10 if full else 1)
        tell(node.urls[0])

        async def sample() -> Any:
            return look(node)

        await obey({"sample": sample, "end": sample})


if __name__ == "__main__":
    logging.getLogger("lmos_actors").setLevel(logging.CRITICAL)  # agents crash all the time here
    trio.run(serve, sys.argv[1] or None, sys.argv[2:] == ["full"])
