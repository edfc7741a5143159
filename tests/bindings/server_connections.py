"""Connections to a server without a transport: a consumer that writes its frames by hand, or by a session."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.actors import Runtime, slot_of
from lmos_actors.bindings import Exposure, LmosServer
from lmos_actors.protocol import lmos
from lmos_actors.testing import settle
from lmos_actors.transport import Budget, Ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node
    from lmos_actors.transport import Handler

THING = "weather"
BASE = "http://127.0.0.1:8080"


class Line:
    """A connection as the server sees it, and as a test does: nothing is sent that nobody takes."""

    def __init__(
        self,
        offered: tuple[str, ...] = ("lmosprotocol",),
        headers: tuple[tuple[bytes, bytes], ...] = (),
        peer: str = "consumer:1",
    ) -> None:
        self.peer = peer
        self.target = "/ws"
        self.headers = headers
        self.subprotocol = offered[0] if offered else None
        self.offered = offered
        self.closed: tuple[int, str] | None = None
        self.account = Budget(1 << 30).open(bool)
        self.woken = 0
        self._ids = count(1)
        self._handler: Any = None
        self._began = trio.Event()
        self._gone = trio.Event()

    # ---- as the server sees it

    async def run(self, handler: Handler) -> Ended:
        self._handler = handler
        self._began.set()
        await self._gone.wait()
        return Ended(1000, "", "peer", True)

    is_quiet = False
    """So that every request goes through the mailbox of its agent."""

    def wake(self) -> None:
        self.woken += 1

    def flush(self) -> None:
        self.wake()

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self.closed is None:
            self.closed = (code, reason)

    # ---- as a test does

    @property
    def handler(self) -> Any:
        assert self._handler is not None
        return self._handler

    @property
    def session_there(self) -> lmos.ThingSession:
        """The session at the other end."""
        session: lmos.ThingSession = self.handler.session
        return session

    async def begun(self) -> None:
        await self._began.wait()

    def leave(self) -> None:
        """The connection breaks."""
        self._gone.set()

    def put(self, kind: str, **members: Any) -> str:
        """Send a message; give its id."""
        message_id = f"m{next(self._ids)}"
        said: dict[str, Any] = {"messageType": kind, "thingID": THING, "messageID": message_id}
        if kind not in ("cancelAction", "queryAction"):
            said["correlationID"] = message_id
        said.update(members)
        self.handler.text(json.dumps({name: value for name, value in said.items() if value is not ...}))
        return str(said["messageID"])

    def raw(self) -> list[bytes]:
        """Take all frames that wait."""
        frames: list[bytes] = []
        while taken := self.handler.frames(65_536):
            frames += taken
        return frames

    def take(self) -> list[dict[str, Any]]:
        """Take all text messages that wait."""
        return [json.loads(frame) for frame in self.raw()]

    async def ask(self, kind: str, **members: Any) -> dict[str, Any]:
        """Send a message, and take what is answered as soon as everybody is quiet: one message."""
        self.put(kind, **members)
        await settle()
        (answer,) = self.take()
        return answer


class Session(Line):
    """A connection whose consumer is a `ConsumerSession`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        ids = count(1)
        prefix = self.peer
        self.session = lmos.ConsumerSession(
            selected=bool(self.offered), new_id=lambda: f"{prefix}-{next(ids)}", offers=lmos.OFFERS
        )

    def carry(self) -> list[Any]:
        """Carry frames both ways once; give what happened."""
        while frames := self.session.frames():
            for frame in frames:
                if isinstance(frame, lmos.Binary):
                    self.handler.binary(frame)
                else:
                    self.handler.text(frame.decode())
        happened: list[Any] = []
        for frame in self.raw():
            if isinstance(frame, lmos.Binary):
                happened += self.session.receive_binary(frame)
            else:
                happened += self.session.receive(frame.decode())
        return happened

    async def settled(self) -> list[Any]:
        """Carry frames until nothing moves any more."""
        happened = self.carry()
        await settle()
        while more := self.carry():
            happened += more
            await settle()
        return happened


class Serving:
    """A server over the agents of a node, and its connections."""

    def __init__(self, node: Node, nursery: trio.Nursery, options: lmos.SessionOptions | None) -> None:
        self.node = node
        self.failures: list[BaseException] = []
        self.rt: Runtime = node._rt  # pyright: ignore[reportPrivateUsage] # what the node gives its server
        self.exposure = Exposure(node.root, (BASE,))
        self.server = LmosServer(self.rt, self.exposure, options=options, on_failure=self.failures.append)
        self._nursery = nursery

    async def line(self, line: Line | None = None, **options: Any) -> Line:
        """Connect somebody who writes frames by hand."""
        made = Line(**options) if line is None else line
        connection: Any = made
        self._nursery.start_soon(self.server.serve, connection)
        await made.begun()
        return made

    async def session(self, **options: Any) -> Session:
        """Connect somebody who uses a session."""
        made = Session(**options)
        await self.line(made)
        return made


@asynccontextmanager
async def serving(
    node: Node, *, options: lmos.SessionOptions | None = None, failures: bool = False
) -> AsyncGenerator[Serving]:
    """Serve the agents of a node until the block is left; nothing may go wrong inside but by `failures`."""
    async with trio.open_nursery() as nursery:
        made = Serving(node, nursery, options)
        yield made
        nursery.cancel_scope.cancel()
    assert failures or not made.failures, made.failures


def accounts(node: Node) -> None:
    """Check that the counts of every agent add up (M1)."""
    for ref in node.agents():
        counts = slot_of(ref).statistics()
        ends = counts.handled + counts.cancelled + counts.dropped + counts.dead_lettered
        assert counts.accepted == ends + counts.waiting + counts.running, counts
