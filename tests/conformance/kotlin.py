"""A kotlin-wot server with several connections, as that of May 2025 behaves, and its report card.

Every connection is a `KotlinServer` of its own; the values are one, and what changes or happens is told to
all connections that listen, as the servient does.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any
from uuid import UUID

import trio

from lmos_actors.conformance import Call, Card, ConformOptions, Hints, Level, conform
from lmos_actors.transport import MemoryNetwork
from tests.conformance.breaking import on_virtual_time
from tests.conformance.ktor import KtorServer, KtorSocket
from tests.protocol.lmos.kotlin_server import Closed, KotlinServer

THING = "kettle"
HINTS = Hints(triggers={"rain": Call(action="shower")}, fails=Call(action="fail"))


class Session(KotlinServer):
    """One connection of the servient."""

    actions = ("echo", "fail", "shower")

    def __init__(self, servient: Servient, socket: KtorSocket) -> None:
        super().__init__(THING)
        self.servient = servient
        self.socket = socket
        self.values = servient.values

    def change(self, name: str, value: Any) -> list[str]:
        """Change a property: the other connections are told too."""
        self.values[name] = value
        for other in self.servient.sessions:
            if other is not self:
                self.servient.later += [(other, frame) for frame in KotlinServer.change(other, name, value)]
        return super().change(name, value)

    def _say(self, kind: str, request: dict[str, Any] | None, **members: Any) -> str:
        said = json.loads(super()._say(kind, request, **members))
        said["messageId"] = str(UUID(bytes=self.servient.random.randbytes(16), version=4))
        return json.dumps(said)

    def _invoke(self, message: dict[str, Any]) -> list[str]:
        if message["action"] != "shower" or "input" not in message:
            return super()._invoke(message)
        for session in self.servient.sessions:
            self.servient.later += [(session, frame) for frame in session.happen("rain", {"mm": 1})]
        return [self._say("actionStatus", message, action="shower", status="completed", output=None)]


class Servient:
    """The server."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"unit": "K", "limit": 3}
        self.sessions: list[Session] = []
        self.random = Random(3)
        self.later: list[tuple[Session, str]] = []
        self.server = KtorServer(self.talk, self.document)

    async def talk(self, socket: KtorSocket) -> None:
        """Serve one connection: one message after the other; what is no text is passed over."""
        session = Session(self, socket)
        self.sessions.append(session)
        try:
            while True:
                text = await socket.receive()
                if isinstance(text, bytes):
                    continue
                try:
                    answers = session.take(text.encode())
                except (Closed, ValueError, TypeError, AttributeError, RecursionError):
                    await socket.close(1003, "Failed to read message")
                    return
                for answer in answers:
                    await socket.send(answer)
                await self._tell()
        finally:
            self.sessions.remove(session)

    async def _tell(self) -> None:
        waiting, self.later = self.later, []
        for session, frame in waiting:
            if session in self.sessions:
                await session.socket.send(frame)

    def document(self, path: str) -> bytes | None:
        """Give the description: of one thing, or of all in an array."""
        found = {"/": [self.thing()], f"/{THING}": self.thing()}.get(path)
        return None if found is None else json.dumps(found).encode()

    def thing(self) -> dict[str, Any]:
        """Give the description as its servient writes it: a form per affordance, and no security."""

        def forms(*ops: str) -> list[dict[str, Any]]:
            href = f"ws://{self.server.address}/ws"
            form = {"href": href, "contentType": "application/json", "subprotocol": "lmosprotocol"}
            return [{**form, "op": list(ops)}]

        observing = ("observeproperty", "unobserveproperty")
        text, whole = {"type": "string"}, {"type": "integer"}
        return {
            "@context": [
                "https://www.w3.org/2022/wot/td/v1.1",
                {"lmos": "https://eclipse.dev/lmos/protocol/v1"},
            ],
            "@type": "lmos:Agent",
            "id": THING,
            "title": "Kettle",
            "properties": {
                "unit": {
                    **text,
                    "observable": True,
                    "forms": forms("readproperty", "writeproperty", *observing),
                },
                "limit": {**whole, "readOnly": True, "forms": forms("readproperty")},
            },
            "actions": {
                "echo": {"safe": True, "input": text, "output": text, "forms": forms("invokeaction")},
                "shower": {"safe": True, "forms": forms("invokeaction")},
                "fail": {"safe": True, "forms": forms("invokeaction")},
            },
            "events": {
                "rain": {"data": {"type": "object"}, "forms": forms("subscribeevent", "unsubscribeevent")}
            },
        }


def kotlin_card(level: Level, *, cases: tuple[str, ...] = ()) -> Card:
    """Give the card of a kotlin-wot server."""

    async def main() -> Card:
        network = MemoryNetwork()
        servient = Servient()
        async with trio.open_nursery() as nursery:
            await nursery.start(servient.server.serve, network, "kotlin.example")
            options = ConformOptions(level=level, cases=cases, allow_unsafe=True, hints=HINTS)
            card = await conform(network, f"http://{servient.server.address}/{THING}", options)
            nursery.cancel_scope.cancel()
        return card

    card: Card = on_virtual_time(main)
    return card
