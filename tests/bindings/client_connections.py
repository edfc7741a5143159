"""Clients without a server: connections that a test answers by hand; and two nodes on one network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    Progress,
    Property,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.bindings import Peers, remote_ref
from lmos_actors.protocol import lmos
from lmos_actors.transport import Budget, ConnectFailed, ConnectionOptions, Ended, MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors import Node, Ref
    from lmos_actors.transport import Handler

URL = "ws://server/ws"
THING = "http://server/agents/weather"
OFFERS = (*lmos.OFFERS, "exited")


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    limit: Property[int] = prop(default=3, write_only=True)
    station: Property[str] = prop(default="Bonn", read_only=True)
    asked: Event[str] = event()
    told: int = 0

    @action(safe=True)
    def turn(self, city: str, days: int = 1) -> str:
        self.told += 1
        self.asked.emit(city)
        return f"{city} {days}"

    @action
    async def forecast(self, progress: Progress[float], city: str, seconds: float = 0.1) -> str:
        for tenth in range(1, 4):
            await trio.sleep(seconds)
            progress.report(tenth / 10)
        return f"sunny in {city}"

    @action
    async def hours(self, number: int) -> AsyncIterator[int]:
        for hour in range(number):
            yield hour

    @action
    def fail(self) -> None:
        raise ActionFailed({"why": "no clouds"})

    @action
    def crash(self) -> None:
        raise KeyError("boom")

    @action(idempotent=True)
    async def sleep(self) -> None:
        await trio.sleep_forever()


class Wire:
    """A connection as its client sees it, answered by the test: `sent` is what the client has said."""

    def __init__(
        self,
        answer: Callable[[Wire, dict[str, Any]], None] | None,
        headers: Any,
        kotlin: bool,
        options: ConnectionOptions,
    ) -> None:
        self.headers = headers
        self.options = options
        self.account = Budget(1 << 30).open(bool)
        self.subprotocol = None if kotlin else "lmosprotocol"
        self.sent: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.stuck = False
        self.hangs = False
        """It answers no pings."""
        self.pings: list[float] = []
        self.bytes_in = 0
        self._answer = answer
        self._kotlin = kotlin
        self._handler: Handler | None = None
        self._woken = trio.Event()
        self._ended: Ended | None = None
        self._ids = count(1)

    # ---- as the client sees it

    async def run(self, handler: Handler) -> Ended:
        self._handler = handler
        while self._ended is None:
            while not self.stuck and (frames := handler.frames(65_536)):
                for frame in frames:
                    self._take(json.loads(frame))
            if self._ended is None:
                await self._woken.wait()
                self._woken = trio.Event()
        return self._ended

    is_direct = False
    """So that each message waits until a test takes it."""

    def wake(self) -> None:
        self._woken.set()

    def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed = (code, reason)
        self.end(Ended(code, reason, "us", True))

    def ping(self) -> None:
        self.pings.append(trio.current_time())
        self.bytes_in += not self.hangs

    def break_off(self, why: str = "") -> None:
        self.end(Ended(None, why, "broken", False))

    def _take(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if self._answer is not None:
            self._answer(self, message)

    # ---- as the test does

    @property
    def handler(self) -> Handler:
        assert self._handler is not None
        return self._handler

    def end(self, ended: Ended) -> None:
        self._ended = ended
        self.wake()

    def drain(self) -> None:
        self.end(Ended(1012, "restart", "peer", True))

    def go_on(self) -> None:
        self.stuck = False
        self.wake()

    def text(self, text: str) -> None:
        self.bytes_in += len(text)
        self.handler.text(text)

    def say(self, kind: str, to: dict[str, Any] | None = None, **members: Any) -> None:
        """Say something, as the answer to a message if one is given."""
        suffix = "Id" if self._kotlin else "ID"
        said = {"messageType": kind, f"thing{suffix}": THING, f"message{suffix}": f"s{next(self._ids)}"}
        if to is not None:
            said[f"correlation{suffix}"] = to.get("messageID") or to["messageId"]
        said.update(members)
        self.text(json.dumps({name: value for name, value in said.items() if value is not ...}))  # pyright: ignore[reportUnnecessaryComparison]

    def status(self, to: dict[str, Any], status: str, **members: Any) -> None:
        self.say("actionStatus", to, action=to["action"], status=status, **members)

    def reading(self, to: dict[str, Any] | None, name: str, value: Any, **members: Any) -> None:
        now = "2026-01-01T00:00:00Z"
        if self._kotlin:
            self.say("propertyReading", to, property=name, data=value, timestamp=now, **members)
        else:
            self.say("propertyReading", to, name=name, value=value, timestamp=now, **members)

    def event(self, to: dict[str, Any], name: str, data: Any, **members: Any) -> None:
        self.say("event", to, event=name, data=data, timestamp="2026-01-01T00:00:00Z", **members)

    def error(self, to: dict[str, Any], kind: str, status: int, detail: str = "no", **members: Any) -> None:
        said = {"type": kind, "title": members.pop("title", "Error"), "status": str(status), "detail": detail}
        self.say("error", to, instance="urn:x", **said, **members)

    def acknowledge(self, to: dict[str, Any]) -> None:
        self.say("acknowledgement", to, message=to["messageType"])

    def last(self, kind: str) -> dict[str, Any]:
        """Give the last message of a type that the client has sent."""
        return next(message for message in reversed(self.sent) if message["messageType"] == kind)

    def kinds(self) -> list[str]:
        return [message["messageType"] for message in self.sent]


class Scripted(Peers):
    """Peers whose connections a test answers; `up` says whether there is anybody to connect to."""

    def script(
        self,
        answer: Callable[[Wire, dict[str, Any]], None] | None,
        offers: tuple[str, ...] | None,
        *,
        kotlin: bool,
    ) -> None:
        self.up = True
        self.tries: list[float] = []
        self.wires: list[Wire] = []
        self.failures: list[BaseException] = []
        self._script = answer, offers, kotlin

    async def connect(self, url: str, headers: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.tries.append(trio.current_time())
        if not self.up:
            raise ConnectFailed(url, "refused")
        answer, offers, kotlin = self._script
        told = () if offers is None else ((b"LMOS-Extensions", ", ".join(offers).encode()),)
        wire = Wire(answer, told, kotlin, self._connection)
        self.wires.append(wire)
        return wire

    @property
    def wire(self) -> Wire:
        """The last connection."""
        return self.wires[-1]


@asynccontextmanager
async def scripted(
    answer: Callable[[Wire, dict[str, Any]], None] | None = None,
    *,
    offers: tuple[str, ...] | None = OFFERS,
    kotlin: bool = False,
    session: lmos.SessionOptions | None = None,
    connection: ConnectionOptions | None = None,
    failures: bool = False,
    up: bool = True,
    network: MemoryNetwork | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Scripted, Node]]:
    """Give peers whose connections are answered by hand, and their node; no task is left behind."""
    async with open_node(**options) as node, trio.open_nursery() as nursery:
        rt: Any = node._rt  # pyright: ignore[reportPrivateUsage]
        found: list[BaseException] = []
        peers = Scripted(
            network or MemoryNetwork(),
            rt,
            nursery.start_soon,
            session=session,
            connection=connection,
            on_failure=found.append,
        )
        peers.script(answer, offers, kotlin=kotlin)
        peers.failures = found
        peers.up = up
        yield peers, node
        nursery.cancel_scope.cancel()
    assert failures or not found, found
    assert peers.statistics()["peers"] == 0


def peers_of(node: Node) -> Peers:
    """Give the peers of a node."""
    return node._connections.peers  # pyright: ignore[reportPrivateUsage]


async def weather(peers: Peers, *, ready: bool = True) -> Ref[Weather]:
    """Give a ref to the thing that the wires of a test stand for."""
    ref = remote_ref(peers, Weather, URL, THING)
    if ready:
        await ref.ready()
        await quiet()
    return ref


quiet = wait_all_tasks_blocked


@asynccontextmanager
async def two_nodes(cls: type[Agent] = Weather, **spec: Any) -> AsyncGenerator[tuple[Node, Node]]:
    """Give a node that serves one agent, and another on the same network."""
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network) as client,
    ):
        await server.start_child(ChildSpec("weather", cls, **spec))
        yield server, client
        assert server.connection_failures == ()
        assert client.connection_failures == ()
