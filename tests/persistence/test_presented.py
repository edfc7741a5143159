"""What is presented as kept has been kept: all surfaces, over a store that fails, is full, hangs, or dies.

Each surface does something and tells what is presented as kept: answers, receipts, and what lists and
histories show. At a step of the event loop something happens to the disk, and later the process is killed.
Whatever was told is there in the next life of the node.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    Property,
    action,
    event,
    open_node,
    prop,
    simulate,
)
from lmos_actors.approvals import Approvals
from lmos_actors.directory import ThingDirectory
from lmos_actors.errors import LmosActorsError
from lmos_actors.facades import ChatAgent, ChatTurn, RelayOptions, open_relay, register_on_relay
from lmos_actors.facades.chat import TurnDone
from lmos_actors.persistence import SimulatedDisk, SimulatedStore
from lmos_actors.transport import MemoryNetwork
from tests.directory.web import td
from tests.facades.relays import Shown
from tests.matrix import few_or_all
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node, Ref

COMMIT = 0.2
"""Seconds of a commit."""

LOOK = 0.15
"""Seconds between two looks at what is shown."""

AFTER = 3.0
"""Seconds from what happens to the disk to the end of the process."""

HUB = "ws://hub:80"


@attrs.define
class Life:
    """One life of a node; `facts` is what was presented as kept, until the process has ended."""

    node: Node
    store: SimulatedStore
    nursery: trio.Nursery
    network: MemoryNetwork
    facts: set[tuple[str, Any]]
    has_ended: bool = False

    def told(self, kind: str, value: Any) -> None:
        if not self.has_ended:
            self.facts.add((kind, value))

    def at_once(self, call: Callable[[], Awaitable[object]]) -> None:
        """Do something beside the rest; what fails presents nothing."""

        async def do() -> None:
            with suppress(LmosActorsError):
                await call()

        self.nursery.start_soon(do)


@attrs.frozen
class Surface:
    """One way to present something as kept: `use` does things, `show` looks at what a node shows.

    `again` is what the next life does before it looks.
    """

    use: Callable[[Life], Awaitable[None]]
    show: Callable[[Life], Awaitable[None]]
    again: Callable[[Life], Awaitable[None]]
    has_store: bool = True
    options: dict[str, Any] = attrs.field(factory=dict[str, Any])


# ---- a durable agent: answers, also to repeats, events and properties


class Counter(Agent, durable=True):
    """Gives out numbers."""

    last: Property[int] = prop(default=0)
    counted: Event[int] = event()

    @action
    def count(self) -> int:
        self.last += 1
        self.counted.emit(self.last)
        return self.last


async def start_counter(life: Life) -> Ref[Counter]:
    return await life.node.start_child(ChildSpec("counter", Counter))


async def use_counter(life: Life) -> None:
    counter = await start_counter(life)

    async def hear() -> None:
        async with counter.subscribe(Counter.counted) as events:
            async for number in events:
                life.told("number", number)

    life.at_once(hear)
    await count(life, counter)


async def count(life: Life, counter: Ref[Counter]) -> None:
    for key in ("a", "b", "c"):
        life.told(f"answer to {key}", await counter.retrying(attempts=1, key=key).invoke(Counter.count))


async def show_counter(life: Life) -> None:
    last = await life.node.find(Counter, "counter").read(Counter.last)
    for number in range(1, last + 1):
        life.told("number", number)


async def count_again(life: Life) -> None:
    await count(life, await start_counter(life))


# ---- chats: ends of turns, histories, lists of sessions, memories


class Waiter(ChatAgent):
    """Remembers what it hears."""

    async def reply(self, turn: ChatTurn) -> str:
        return await turn.memories.remember(turn.text)


async def use_chats(life: Life) -> None:
    waiter = await life.node.start_child(ChildSpec("waiter", Waiter))
    for number in range(3):
        said = f"{number}"
        async with waiter.stream(ChatAgent.chat, said, session=f"s{number}", new=True) as items:
            async for item in items:
                if isinstance(item, TurnDone):
                    life.told("turn", said)


async def show_chats(life: Life) -> None:
    waiter = life.node.find(Waiter, "waiter")
    for session in await waiter.invoke(ChatAgent.sessions):
        life.told("session", session.id)
        for said in await waiter.invoke(ChatAgent.history, session.id):
            life.told("turn" if said.role == "user" else "answer", said.text)


async def start_waiter(life: Life) -> None:
    await life.node.start_child(ChildSpec("waiter", Waiter))


# ---- approvals: questions, and decisions


class Desk(Agent):
    """Pays money back, once a person agrees."""

    @action(concurrency=9)
    async def refund(self, order: str) -> bool:
        return await self.approve("Refund?", key=order, expires=3600.0)


async def use_approvals(life: Life) -> None:
    desk, approvals = await life.node.start_child(ChildSpec("desk", Desk)), life.node.find(Approvals)

    async def refund(order: str) -> None:
        if await desk.invoke(Desk.refund, order):
            life.told("approved", order)

    for number in range(3):
        life.at_once(partial(refund, f"o-{number}"))
    left = 3
    while left:
        await trio.sleep(LOOK)
        for question in await approvals.invoke(Approvals.entries):
            found = await approvals.invoke(Approvals.accept, question.id)
            life.told("approved", found.key)
            left -= 1


async def show_approvals(life: Life) -> None:
    for each in await life.node.find(Approvals).invoke(Approvals.entries, "all"):
        life.told("question", each.id)
        if each.state == "approved":
            life.told("approved", each.key)


# ---- a directory: entries, and what it says of them


async def start_again(life: Life) -> None:
    await start_directory(life)


async def start_directory(life: Life) -> Ref[ThingDirectory]:
    return await life.node.start_child(ChildSpec("directory", partial(ThingDirectory, store=life.store)))


async def use_directory(life: Life) -> None:
    directory = await start_directory(life)

    async def hear() -> None:
        async with directory.subscribe(ThingDirectory.thing_created) as events:
            async for notice in events:
                life.told("thing", notice.id)

    life.at_once(hear)
    for number in range(3):
        await directory.invoke(ThingDirectory.put_thing, f"urn:{number}", td(f"urn:{number}"))
        life.told("thing", f"urn:{number}")


async def show_directory(life: Life) -> None:
    found = await life.node.find(ThingDirectory, "directory").invoke(
        ThingDirectory.search_jsonpath, "$[*].id"
    )
    for id in found:
        life.told("thing", id)


# ---- a hub: identities, receipts, its history


async def use_hub(life: Life) -> None:
    ann = await register_on_relay(f"{HUB}/arc", "ann", network=life.network)
    life.told("identity", "ann")
    shown: Any = Shown(ann.token)
    async with open_relay(f"{HUB}/arc", network=life.network, credentials=shown) as relay:
        life.at_once(partial(look_at_history, life, relay))
        for number in range(3):
            if await relay.say(f"m{number}") is not None:
                life.told("message", f"m{number}")
        await trio.sleep(1)


async def look_at_history(life: Life, relay: Any, looks: int = 10_000) -> None:
    for _ in range(looks):
        answer = await relay.command("command", {"command": "history"})
        for message in answer.payload["messages"]:
            life.told("message", message["payload"])
        await trio.sleep(LOOK)


async def show_hub(life: Life) -> None:
    pass  # it is looked at by those who are there


async def come_back_to_the_hub(life: Life) -> None:
    try:
        await register_on_relay(f"{HUB}/arc", "ann", network=life.network)
    except ActionFailed:  # it is taken
        life.told("identity", "ann")
    bob = await register_on_relay(f"{HUB}/arc", "bob", network=life.network)
    shown: Any = Shown(bob.token)
    async with open_relay(f"{HUB}/arc", network=life.network, credentials=shown) as relay:
        await look_at_history(life, relay, 1)


async def nothing(_: Life) -> None:
    pass


RELAY = RelayOptions(extensions=("receipts", "history"))
SURFACES = {
    "durable agent": Surface(use_counter, show_counter, count_again),
    "chats": Surface(use_chats, show_chats, start_waiter),
    "approvals": Surface(use_approvals, show_approvals, nothing, options={"approvals": True}),
    "directory": Surface(use_directory, show_directory, start_again, has_store=False),
    "hub": Surface(use_hub, show_hub, come_back_to_the_hub, options={"listen": HUB, "relay": RELAY}),
}


def fails(disk: SimulatedDisk) -> None:
    for user in disk.users:
        user.is_cut_off = True


def fills_up(disk: SimulatedDisk) -> None:
    disk.full = True


def hangs(disk: SimulatedDisk) -> None:
    disk.factor = 1e9


def dies(disk: SimulatedDisk) -> None:
    disk.crash()


class AtStep(trio.abc.Instrument):
    """Calls a function after a number of steps of the event loop."""

    def __init__(self, steps: int, call: Callable[[], None]) -> None:
        self.left = steps
        self.call = call

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.call()


async def first_life(surface: Surface, disk: SimulatedDisk, what: Any, steps: int) -> tuple[set[Any], int]:
    """Use a node until its end; return what it told, and how many steps it took."""
    store, network, facts = SimulatedStore(disk), MemoryNetwork(), set[Any]()
    clock = AtStep(steps, lambda: None)
    with suppress(LmosActorsError):  # of a node that is closed without its store
        async with opened(surface, store, network) as node, trio.open_nursery() as nursery:
            life = Life(node, store, nursery, network, facts)

            def happen() -> None:
                what(disk)
                life.has_ended = what is dies
                nursery.cancel_scope.deadline = trio.current_time() + AFTER * (what is not dies)

            async def show() -> None:
                while True:
                    with suppress(LmosActorsError):
                        await surface.show(life)
                    await trio.sleep(LOOK)

            clock.call = happen
            trio.lowlevel.add_instrument(clock)
            try:
                nursery.start_soon(show)
                with suppress(LmosActorsError):
                    await surface.use(life)
                await trio.sleep(2 * LOOK if clock.left > 0 else inf)
            finally:
                trio.lowlevel.remove_instrument(clock)
                life.has_ended = True
                disk.crash()
                nursery.cancel_scope.cancel()
    return facts, steps - clock.left


async def next_life(surface: Surface, disk: SimulatedDisk) -> set[Any]:
    """Return what a node shows that begins with what the disk has."""
    disk.full, disk.factor = False, 1.0
    store, network, facts = SimulatedStore(disk), MemoryNetwork(), set[Any]()
    async with opened(surface, store, network) as node, trio.open_nursery() as nursery:
        life = Life(node, store, nursery, network, facts)
        await surface.again(life)
        await surface.show(life)
        nursery.cancel_scope.cancel()
    return facts


def opened(surface: Surface, store: SimulatedStore, network: MemoryNetwork) -> Any:
    options = dict(surface.options)
    if surface.has_store:
        options["store"] = store
    if "listen" in options:
        options["network"] = network
    return open_node(**options)


def lived(name: str, what: Any = fails, steps: int = 1_000_000) -> tuple[set[Any], set[Any], int]:
    """Return what a first life told, what the next one shows, and the steps of the first."""
    found: list[Any] = []

    async def main() -> None:
        disk = simulated_disk(steps, lambda: COMMIT)
        told, taken = await first_life(SURFACES[name], disk, what, steps)
        found.extend((told, await next_life(SURFACES[name], disk), taken))

    simulate(main)
    told, shown, taken = found
    return told, shown, taken


@cache
def steps_of(name: str) -> int:
    return lived(name)[2]


@pytest.mark.parametrize("name", SURFACES)
def test_what_is_told_is_whole_where_nothing_happens(name: str) -> None:
    told, shown, _ = lived(name)
    assert told == shown
    assert len(told) >= 3


@pytest.mark.parametrize("what", [fails, fills_up, hangs, dies])
@pytest.mark.parametrize("name", SURFACES)
def test_what_is_told_is_there_in_the_next_life(name: str, what: Any) -> None:
    steps, parts = steps_of(name), few_or_all(4, 64)
    for at in sorted({1 + steps * part // (parts + 1) for part in range(1, parts + 1)}):
        told, shown, _ = lived(name, what, at)
        assert told <= shown, (at, told - shown)
