"""Relays as they were recorded, and our own, for agents to meet on; in memory."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import open_node
from lmos_actors.facades import RelayOptions, open_relay
from lmos_actors.transport import Accept, FrontDoor, MemoryNetwork, Refuse, endpoint_of
from tests.facades.relay.test_hub import HOST, URL, asked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.facades import Relay
    from lmos_actors.transport import Connection, Upgrade


class Shown:
    """Credentials that are a token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def headers_for(self, url: str, now: float) -> Any:
        return ((b"authorization", f"Bearer {self._token}".encode()),)


@attrs.frozen
class Habits:
    """What a relay does; see the captures' README."""

    name: str
    passes_members: bool
    demands_from: bool = False
    is_oldest: bool = False
    """It knows broadcasts alone, though its welcome says more."""


REFERENCE = Habits("reference", passes_members=False)
RAWK = Habits("rawk", passes_members=True)
SEED_DAY = Habits("seed-day", passes_members=True, demands_from=True, is_oldest=True)


class Peer:
    """The relay's end of a connection."""

    def __init__(self, relay: Recorded, id: str, connection: Connection) -> None:
        self.relay, self.id, self.connection = relay, id, connection
        self.waiting: list[bytes] = []
        self.follows: set[str] = set()

    def text(self, text: str) -> None:
        self.relay.take(self, json.loads(text))

    def binary(self, data: bytes) -> None:
        raise AssertionError(data)

    def frames(self, room: int) -> list[bytes]:
        taken, self.waiting = self.waiting, []
        return taken

    def is_behind(self) -> bool:
        return False

    def send(self, frame: dict[str, Any]) -> None:
        self.waiting.append(json.dumps(frame).encode())
        self.connection.wake()


class Recorded:
    """A relay with the habits of a recorded one, as far as agents depend on them."""

    def __init__(self, habits: Habits) -> None:
        self.habits = habits
        self.peers: dict[str, Peer] = {}
        self._ids = map("r-{}".format, count(1))

    def route(self, upgrade: Upgrade) -> Accept | Refuse:
        header = dict(upgrade.headers).get(b"authorization", b"").decode()
        id = header.removeprefix("Bearer ")
        return Accept(None, lambda connection: self._serve(id, connection))

    async def _serve(self, id: str, connection: Connection) -> None:
        peer = self.peers[id] = Peer(self, id, connection)
        can = ["broadcast", "direct"] if self.habits.is_oldest else ["broadcast", "direct", "subscribe"]
        known = {"relay": self.habits.name, "version": "0.1.0", "capabilities": can, "extensions": []}
        peer.send(self._own(id, "welcome", known))
        await connection.run(peer)
        if self.peers.get(id) is peer:
            del self.peers[id]

    def _own(self, to: str, type: str, payload: Any) -> dict[str, Any]:
        return {"id": next(self._ids), "from": "relay", "to": [to], "type": type, "payload": payload, "ts": 5}

    def take(self, peer: Peer, frame: dict[str, Any]) -> None:
        habits = self.habits
        if "payload" not in frame or (habits.demands_from and frame.get("from") != peer.id):
            peer.send(self._own(peer.id, "error", {"code": "invalid_message", "message": "no"}))
            return
        if "relay" in frame["to"] and not habits.is_oldest:
            self._command(peer, frame)
            return
        known = ("type", "ref")
        more = {
            name: value
            for name, value in frame.items()
            if (habits.passes_members or name in known) and name not in ("id", "from", "ts", "to", "payload")
        }
        sent = {"id": next(self._ids), "from": peer.id, "to": frame["to"], "payload": frame["payload"]}
        sent |= {**more, "ts": 5}
        if "*" in frame["to"]:
            for each in self.peers.values():
                if each is not peer:
                    each.send(sent)
            for each in self.peers.values():
                if peer.id in each.follows:
                    each.send(sent)  # followers hear it twice
        elif not habits.is_oldest:
            for name in frame["to"]:
                if name in self.peers:
                    self.peers[name].send(sent)

    def _command(self, peer: Peer, frame: dict[str, Any]) -> None:
        kind, payload = frame.get("type"), frame["payload"]
        if kind in ("subscribe", "unsubscribe") and payload:
            names = payload["agents"]
            (peer.follows.update if kind == "subscribe" else peer.follows.difference_update)(names)
            peer.send(self._own(peer.id, f"{kind}d", {"agents": names, "count": len(names)}))
        elif kind == "list_subscriptions":
            peer.send(self._own(peer.id, "subscriptions", {"agents": list(peer.follows)}))
        elif kind == "ping" and self.habits is RAWK:
            peer.send(self._own(peer.id, "pong", {"timestamp": 5}))


@asynccontextmanager
async def served(
    route: Callable[[Upgrade], Accept | Refuse], url: str = URL, network: MemoryNetwork | None = None
) -> AsyncGenerator[MemoryNetwork]:
    """Serve connections at an address for a block."""
    network = network or MemoryNetwork()

    def fail(error: BaseException) -> None:
        raise error

    door = FrontDoor(await network.listen(endpoint_of(url)), route=route, on_failure=fail)
    async with trio.open_nursery() as nursery:
        await nursery.start(door.serve)
        yield network
        nursery.cancel_scope.cancel()


Join = "Callable[..., AbstractAsyncContextManager[Relay]]"


@asynccontextmanager
async def recorded(habits: Habits) -> AsyncGenerator[Callable[..., AbstractAsyncContextManager[Relay]]]:
    """Serve a relay with recorded habits; yield what joins it by an id."""
    relay = Recorded(habits)
    async with served(relay.route) as network:

        def join(id: str, **options: Any) -> AbstractAsyncContextManager[Relay]:
            shown: Any = Shown(id)
            return open_relay(f"{URL}/arc", id=id, network=network, credentials=shown, **options)

        yield join


@asynccontextmanager
async def ours(
    store: Any = None, **options: Any
) -> AsyncGenerator[Callable[..., AbstractAsyncContextManager[Relay]]]:
    """Serve a hub of ours; yield what joins it by an id."""
    network = MemoryNetwork()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            open_node(listen=URL, relay=RelayOptions(**options), network=network, store=store)
        )

        @asynccontextmanager
        async def join(id: str, **more: Any) -> AsyncGenerator[Relay]:
            found = await asked(network, "POST", "/register", {"agent_id": id})
            shown: Any = Shown(found.json()["token"])
            async with open_relay(f"{URL}/arc", network=network, credentials=shown, **more) as relay:
                yield relay

        yield join


@asynccontextmanager
async def hub_with(*ids: str, **options: Any) -> AsyncGenerator[tuple[MemoryNetwork, dict[str, Any]]]:
    """Serve a hub of ours, with agents registered; yield the network, and their credentials."""
    network = MemoryNetwork()
    options = {"extensions": ("receipts",), **options}
    async with open_node(listen=URL, relay=RelayOptions(**options), network=network):
        found = {id: await asked(network, "POST", "/register", {"agent_id": id}) for id in ids}
        yield network, {id: Shown(answer.json()["token"]) for id, answer in found.items()}


@asynccontextmanager
async def relay_with(habits: Habits, *ids: str) -> AsyncGenerator[tuple[MemoryNetwork, dict[str, Any]]]:
    """As `hub_with`, of a relay with recorded habits: who shows a name is that agent."""
    async with served(Recorded(habits).route) as network:
        yield network, {id: Shown(id) for id in ids}


HUBS: dict[str, Callable[..., AbstractAsyncContextManager[tuple[MemoryNetwork, dict[str, Any]]]]] = {
    "ours": hub_with,
    **{habits.name: partial(relay_with, habits) for habits in (REFERENCE, RAWK, SEED_DAY)},
}
"""Our hub, and the relays that were recorded, with agents of the ids that are given."""

WORLDS: dict[str, Callable[[], AbstractAsyncContextManager[Any]]] = {
    "ours": lambda: ours(extensions=("receipts", "presence")),
    "ours without extensions": ours,
    "reference": lambda: recorded(REFERENCE),
    "rawk": lambda: recorded(RAWK),
    "seed-day": lambda: recorded(SEED_DAY),
}
"""The relays on which an agent has to get along."""


class Script:
    """The relay's end of a connection, written by hand."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number
        self.waiting: list[bytes] = []
        self._news, self._heard = trio.open_memory_channel[dict[str, Any]](1_000)

    def text(self, text: str) -> None:
        self._news.send_nowait(json.loads(text))

    def binary(self, data: bytes) -> None:
        raise AssertionError(data)

    def frames(self, room: int) -> list[bytes]:
        taken, self.waiting = self.waiting, []
        return taken

    def is_behind(self) -> bool:
        return False

    def send(self, frame: Any) -> None:
        self.waiting.append((frame if isinstance(frame, str) else json.dumps(frame)).encode())
        self.connection.wake()

    def welcome(self, id: str = "me", *extensions: str) -> None:
        payload = {"relay": "odd", "capabilities": ["direct"], "extensions": list(extensions)}
        self.send({"id": "w", "from": "relay", "to": [id], "type": "welcome", "payload": payload, "ts": 5})

    async def next(self) -> dict[str, Any]:
        return await self._heard.receive()

    async def run(self, script: Callable[[Script], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, script)
            await self.connection.run(self)
            self._news.close()
            nursery.cancel_scope.cancel()

    async def _follow(self, script: Callable[[Script], Awaitable[None]]) -> None:
        with suppress(trio.EndOfChannel):
            await script(self)


@asynccontextmanager
async def scripted(
    script: Callable[[Script], Awaitable[None]], refuse: Callable[[int], Refuse | None] = lambda _: None
) -> AsyncGenerator[tuple[MemoryNetwork, list[Upgrade]]]:
    """Serve a script, which gets each connection with its number from 1 on; or refuse it."""
    upgrades: list[Upgrade] = []

    def route(upgrade: Upgrade) -> Accept | Refuse:
        upgrades.append(upgrade)
        number = len(upgrades)
        refused = refuse(number)
        if refused is not None:
            return refused
        return Accept(None, lambda connection: Script(connection, number).run(script))

    async with served(route) as network:
        yield network, upgrades


__all__ = ["HOST", "URL", "WORLDS", "Script", "hub_with", "ours", "recorded", "scripted"]
