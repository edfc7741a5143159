"""The program that `test_killed_far.py` kills: a desk, or the agent of another process that pays its orders.

Agents, customers and people are those of `test_far_lives.py`. What each side does is in its log at once.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from warnings import simplefilter

import attrs
import msgspec
import trio

from lmos_actors import ChildSpec, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.bindings import remote_ref
from lmos_actors.errors import RepeatedCallWarning
from lmos_actors.facades import RelayBridge, join_relay
from lmos_actors.persistence import Put
from lmos_actors.security import ANYONE, Access, Bearer, BearerToken, Credentials, NoSec, Security
from tests.approvals.test_far_lives import Book, Desk, Payments, World
from tests.bindings.client_connections import peers_of
from tests.lives import FatalStore, Outside

if TYPE_CHECKING:
    from lmos_actors.persistence import Write

PACE = 0.02
"""Seconds that what takes a second on virtual time takes here."""


@attrs.define(kw_only=True)
class Log(Book):
    """What was paid, in a file."""

    outside: Outside

    async def act(self, order: str) -> None:
        self.outside.append("log", "act", order, sync=True)
        await trio.sleep(PACE)


def name_of(write: Write) -> str:
    """Return how many payments are kept with this write, which the log is told."""
    if not isinstance(write, Put) or write.space != "state":
        return ""
    return str(len(paid_in(write.value)))


def paid_in(state: bytes) -> list[str]:
    """Return the orders that the state of the agent has as paid."""
    paid: list[str] = msgspec.json.decode(state)["fields"]["paid"]
    return paid


def credentials(folder: Path, place: str, name: str) -> Credentials:
    """Return those of a name at a node or a hub: a token in a file."""
    return Credentials({place: BearerToken(f"file:{folder / name}.token")}, allow_insecure=True)


def is_over(folder: Path) -> bool:
    """Return whether all have been answered, or there is no point in going on."""
    return (folder / "over").exists()


async def main(folder: str, name: str, places: dict[str, str], orders: int, seconds: float) -> None:
    """Run one side, which is killed after so many seconds, unless its work has come to its end."""
    outside = Outside(Path(folder) / name)
    outside.end_after(seconds)
    outside.log("life", name)
    simplefilter("ignore", RepeatedCallWarning)  # over the relay the desk asks again indeed
    if name == "payments":
        await _pay(outside, Path(folder), places)
    else:
        await _ask(outside, Path(folder), places, orders)


async def _pay(outside: Outside, folder: Path, places: dict[str, str]) -> None:
    """Pay until it is over and nothing waits; then write what is kept."""
    tokens = Bearer({who: f"file:{folder / who}.token" for who in ("desk", "person")})
    access = Access(invoke=ANYONE, approve=("person",))
    bridges = [
        RelayBridge(url=hub, agent="payments", credentials=credentials(folder, hub, "payments at hub"))
        for at, hub in places.items()
        if at == "hub"
    ]
    async with open_node(
        store=FatalStore(outside, name_of),
        listen=places["payments"],
        security=Security(schemes=(tokens, NoSec()), access={"payments": access}),
        bridges=bridges,
        approvals=True,
    ) as node:
        await node.start_child(ChildSpec("payments", partial(Payments, book=Log(outside=outside))))
        approvals = node.find(Approvals)
        while True:
            may_end = is_over(folder)
            kept = await approvals.invoke(Approvals.entries, "all", 10_000)
            if may_end and all(each.state != "waiting" for each in kept):
                break
            await trio.sleep(PACE)
    (outside.folder / "kept.json").write_bytes(msgspec.json.encode(kept))


async def _ask(outside: Outside, folder: Path, places: dict[str, str], orders: int) -> None:
    """Have all orders paid, each in a session of its own, until each has an answer."""
    far, hub = places["payments"], places.get("hub")
    store = f"sqlite:{outside.folder / 'kept.db'}"
    async with open_node(store=store, credentials=credentials(folder, far, "desk")) as node:
        if hub:
            await join_relay(node, hub, peers=True, credentials=credentials(folder, hub, "desk at hub"))
            payments: Any = node.find(Payments, "payments")
        else:
            thing = f"{far.replace('ws', 'http', 1)}/agents/payments"
            payments = remote_ref(peers_of(node), Payments, f"{far}/ws", thing)
        desk = partial(Desk, payments=payments, patience=100 * PACE if hub else 0.0, pause=PACE)
        await node.start_child(ChildSpec("desk", desk, shutdown="brutal"))
        world = World(Random(), kills=True, pace=PACE, orders=orders, nodes={"desk": node})
        async with trio.open_nursery() as customers:
            for number in range(orders):
                customers.start_soon(world.ask, f"o-{number}")
            while len(world.answers) < orders and not is_over(folder):  # noqa: ASYNC110
                await trio.sleep(PACE)
            customers.cancel_scope.cancel()
    (outside.folder / "answers.json").write_bytes(msgspec.json.encode(world.answers))
