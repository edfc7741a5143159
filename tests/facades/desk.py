"""A chat agent for tests, and a client that says frames as they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import ActionFailed, open_node
from lmos_actors.facades import ChatAgent, ChatMedia, ChatPart, ChatTurn
from lmos_actors.transport import MemoryNetwork, connect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.node import Node

URL = "ws://desk:80"


class Desk(ChatAgent):
    """Does what it is told; repeats everything else, with the number of the turn."""

    running: int = 0
    most: int = 0
    cancelled: int = 0

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        number = turn.memory["turns"] = turn.memory.get("turns", 0) + 1
        word, _, rest = turn.text.partition(" ")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if word == "crash":
                yield "I will "
                raise RuntimeError("secret: 4711")
            if word == "fail":
                raise ActionFailed({"code": "PROVIDER_ERROR", "message": rest})
            if word == "slow":
                yield "wait "
                await trio.sleep(float(rest))
            elif word == "flood":
                for _ in range(int(rest)):
                    yield "x" * 1_000
                return
            elif word == "nothing":
                return
            elif word == "add":
                yield f"sum {await turn.use(add, a=1, b=int(rest))}"
                return
            elif word == "bad":
                yield f"sum {await turn.use(add, a=rest, b=1)}"
                return
            elif word == "ask":
                yield f"found {await turn.ask_client('position', {'accuracy': rest})}"
                return
            elif word == "show":
                yield ChatPart("image", media=ChatMedia("image/png", data="AAAA"))
                return
            elif word == "who":
                yield str(turn.principal)
                return
            elif word == "history":
                yield "; ".join(f"{said.role}: {said.text}" for said in turn.history)
                return
            yield f"{number}: {turn.text}"
        except BaseException:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Raw:
    """A client on a connection of its own, that says and hears frames."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.heard, self._news = trio.open_memory_channel[dict[str, Any] | bytes](10_000)
        self.connection: Any = None
        self.ended: Any = None
        self.over = trio.Event()

    def text(self, text: str) -> None:
        self.heard.send_nowait(json.loads(text))

    def binary(self, data: bytes) -> None:
        self.heard.send_nowait(data)

    def frames(self, room: int) -> list[bytes]:
        taken, self.waiting = self.waiting, []
        return taken

    def say(self, frame: Any = None, **members: Any) -> None:
        """Send a frame: a text as it is, or an object."""
        text = frame if isinstance(frame, str) else json.dumps(members if frame is None else frame)
        self.waiting.append(text.encode())
        self.connection.wake()

    def ask(self, content: str, **members: Any) -> None:
        self.say(type="message", content=content, **members)

    async def next(self, *kinds: str) -> Any:
        """Wait for the next frame, or the next of some types."""
        while True:
            frame = await self._news.receive()
            if not kinds or (isinstance(frame, dict) and frame["type"] in kinds):
                return frame

    async def end(self) -> Any:
        """Wait for the end of a turn."""
        return await self.next("done", "error")

    async def run(self) -> None:
        self.ended = await self.connection.run(self)
        self.heard.close()
        self.over.set()


@asynccontextmanager
async def opened_raw(
    network: MemoryNetwork, query: str = "agent=desk", path: str = "/", headers: Any = ()
) -> AsyncGenerator[Raw]:
    raw = Raw()
    raw.connection = await connect(network, f"{URL}{path}?{query}", subprotocols=(), headers=headers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raw.run)
        yield raw
        raw.connection.close()
        nursery.cancel_scope.deadline = trio.current_time() + 10


@asynccontextmanager
async def opened_desk(**options: Any) -> AsyncGenerator[tuple[Node, MemoryNetwork]]:
    network = MemoryNetwork()
    async with open_node(**{"listen": URL, "omnia": True, "network": network, **options}) as node:
        await node.start(Desk)
        yield node, network
