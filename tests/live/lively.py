"""A node that has something to show in every view: for the page in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import trio

from lmos_actors import (
    Agent,
    AgentError,
    ChildSpec,
    Event,
    Property,
    Secret,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.actors import hold, release
from lmos_actors.deployment.processes import GroupStatus, LauncherStatus, LogFiles, ReplicaStatus
from lmos_actors.facades import ChatAgent, ChatTurn, open_chat, open_relay, register_on_relay
from lmos_actors.supervision import BulkSpec
from tests.facades.relays import Shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node

FIXED = 13
"""Agents of that node besides those of the one large supervisor."""


class Launcher:
    """Says how the processes of a deployment are."""

    def __init__(self) -> None:
        self.logs = LogFiles(Path("none"))
        self.logs.recent.add("web/1", [f"line {n}" for n in range(25)])

    def status(self) -> LauncherStatus:
        """Return the state of one process."""
        since = "2026-11-28T03:34:13.479+00:00"
        replica = ReplicaStatus(
            number=1, state="ready", pid=4711, generation=1, urls=(), restarts=0, since=since
        )
        web = GroupStatus(name="web", wanted=1, replicas=(replica,))
        return LauncherStatus(
            name="shop", file="shop.yaml", launcher_pid=4710, since=since, doing="", groups=(web,)
        )


class LauncherAgent(Agent):
    """Stands where the launcher of a deployment stands."""

    launcher: Any


class Sensor(Agent):
    """Measures."""

    @action
    def measure(self, scale: float = 1.0) -> float:
        """Return what it measures."""
        return 21.5 * scale

    @action
    def fail(self) -> None:
        """Fail, as asked."""
        raise RuntimeError("the wire is broken")


class Weather(Agent):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius")
    asked: Property[int] = prop(default=0, read_only=True)
    changed: Event[str] = event()
    key: Secret[str] = "not to be seen"

    @action
    def forecast(
        self, city: str, days: int = 3, kind: Literal["short", "long"] = "short"
    ) -> dict[str, str | int]:
        """Forecast the weather of a city."""
        self.asked += 1
        self.changed.emit(city)
        return {"city": city, "days": days, "kind": kind}

    @action
    async def climb(self, seconds: float) -> None:
        """Take so long."""
        await trio.sleep(seconds)


class Till(Weather):
    """Takes money."""


class Clerk(Agent):
    """Asks a person before it pays."""

    @action(concurrency=9)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        await self.approve(f"Refund 120 € for order {order}", {"order": order}, key=order, expires=3600)
        return "done"


class Loop(Agent):
    """Asks another, which asks it."""

    @action
    async def ask(self, other: str) -> None:
        """Ask the other, without end."""
        with trio.CancelScope():  # that might end the circle: it is no certain one
            await self.find(Loop, other).invoke(Loop.ask, "loops/a" if other == "loops/b" else "loops/b")


class Parrot(ChatAgent):
    """Repeats what it hears."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        """Say it again."""
        yield f"You say: {turn.text}"


def tree(agents: int) -> SupervisorSpec:
    """Return a tree of so many agents, or of FIXED and one where that is more."""
    back = SupervisorSpec("back-office", [ChildSpec("books", Till), ChildSpec("mail", Sensor)])
    shop = SupervisorSpec("shop", [ChildSpec("till", Till), ChildSpec("store-room", Weather), back])
    loops = SupervisorSpec("loops", [ChildSpec("a", Loop), ChildSpec("b", Loop)])
    launcher = ChildSpec("launcher", partial(LauncherAgent, launcher=Launcher()))
    many = BulkSpec(
        "sensors", member=ChildSpec("s", Sensor), count=max(1, agents - FIXED), max_restarts=10**9
    )
    single = [ChildSpec("weather", Weather), ChildSpec("clerk", Clerk), ChildSpec("parrot", Parrot)]
    return SupervisorSpec("root", [*single, shop, loops, SupervisorSpec("control", [launcher]), many])


@asynccontextmanager
async def lively(agents: int = 10, *, busy: bool = True) -> AsyncGenerator[Node]:
    """Have a node for a block. `busy`: a few messages go on, of 20 ms each, and a crash a second."""
    async with (
        open_node(
            tree(agents),
            listen="ws://127.0.0.1:0",
            allow_operations=True,
            relay=True,
            omnia=True,
            directory=True,
            register=agents <= 1_000,  # describing 100,000 agents takes a minute
        ) as node,
        open_node() as other,
        client_of_relay(f"{node.urls[0]}/arc"),
        open_chat(f"{node.urls[0]}/?agent=parrot") as chat,
        trio.open_nursery() as nursery,
    ):
        place = node.urls[0]
        await chat.say("hello")
        far = await other.consume(Weather, f"{place}/agents/weather")
        await far.invoke(Weather.forecast, "Bonn")
        for order in ("A-17", "B-4"):
            nursery.start_soon(node.find(Clerk, "clerk").invoke, Clerk.refund, order)
        nursery.start_soon(node.find(Loop, "loops/a").invoke, Loop.ask, "loops/b")
        mail = node.find(Sensor, "shop/back-office/mail")
        hold(mail)
        await mail.tell(Sensor.fail)
        await mail.tell(Sensor.measure)  # a dead letter
        release(mail)
        for _ in range(12):
            await node.find(Weather, "shop/store-room").tell(Weather.climb, 1e9)
        await crash(node)
        if busy:
            nursery.start_soon(work, node)
        yield node
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client_of_relay(url: str) -> AsyncGenerator[None]:
    """Have a client of a relay for a block."""
    token: Any = Shown((await register_on_relay(url, "weather-bot")).token)
    async with open_relay(url, credentials=token):
        yield


async def crash(node: Node) -> None:
    """Let an agent crash."""
    with suppress(AgentError):
        await node.find(Sensor, "sensors/0").invoke(Sensor.fail)


async def work(node: Node) -> None:
    """Keep a node busy, a little."""
    weather, till = node.find(Weather, "weather"), node.find(Till, "shop/till")
    turn = 0
    while True:
        await weather.invoke(Weather.forecast, "Bonn")
        await till.tell(Till.forecast, "Köln", 2)
        if turn % 50 == 49:
            await crash(node)
        turn += 1
        await trio.sleep(0.02)
