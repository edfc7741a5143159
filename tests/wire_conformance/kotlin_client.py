"""A kotlin-wot client as the real one of May 2025 behaves: own JSON, strict where it is strict.

It reads a description as a whole or not at all. It sends one request, waits for the one answer its reader
accepts, and drops everything else. Where the real one would wait out its 100 seconds, this one says "would
hang".
"""

from __future__ import annotations

import json
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from tests.protocol.td.kotlin_reader import read
from tests.wire_conformance.sockets import Closed

if TYPE_CHECKING:
    from tests.wire_conformance.sockets import Socket

PATIENCE = 100.0
"""Seconds for which it waits for an answer."""

HANGS = "would hang"

NEEDED: dict[str, tuple[str, ...]] = {
    "acknowledgement": ("message",),
    "error": ("type", "title", "status", "detail", "instance"),
    "propertyReading": ("property", "data"),
    "propertyReadings": ("data",),
    "actionStatus": ("action",),
    "actionStatuses": ("statuses",),
    "event": ("event", "data"),
}
"""What its mapper can read at all, and the members without which it cannot."""

STATUSES = ("pending", "completed", "failed")


class KotlinClient:
    """One socket, with what its user has asked and heard."""

    def __init__(self, socket: Socket, thing: str) -> None:
        self.socket = socket
        self.thing = thing
        self.dropped: list[str] = []
        """Frames that its mapper could not read, or that answered nothing."""
        self.closed: tuple[int | None, str] | None = None
        self.events: dict[str, list[Any]] = {}
        self.readings: dict[str, list[Any]] = {}
        self._waiting: dict[str, Any] = {}
        self._answered: dict[str, trio.Event] = {}
        self._ids = count(1)

    async def listen(self) -> None:
        """Take what comes, until the connection ends."""
        try:
            while True:
                text = await self.socket.receive()
                if isinstance(text, bytes):
                    self.dropped.append("binary")
                elif (message := self._read(text)) is None:
                    self.dropped.append(text)
                else:
                    self._take(message, text)
        except Closed as closed:
            self.closed = closed.code, closed.reason

    def _read(self, text: str) -> dict[str, Any] | None:
        """Read a frame as its mapper does: what lacks a member cannot be read."""
        message = json.loads(text)
        needed = NEEDED.get(message.get("messageType"))
        if needed is None or any(name not in message for name in ("thingId", "messageId", *needed)):
            return None
        if any(not isinstance(message[name], str) for name in ("thingId", "messageId")):
            return None
        if message["messageType"] == "error" and any(not isinstance(message[name], str) for name in needed):
            return None
        if message.get("status", "completed") not in STATUSES and message["messageType"] == "actionStatus":
            return None
        return message if _time_can_be_read(message.get("timestamp")) else None

    def _take(self, message: dict[str, Any], text: str) -> None:
        if message["messageType"] == "event":
            if message["event"] in self.events:  # its channel is there only after the acknowledgement
                self.events[message["event"]].append(message["data"])
            else:
                self.dropped.append(text)
            return
        of = message.get("correlationId")
        if of in self._answered and message["messageType"] != "propertyReadings":
            if message["messageType"] == "actionStatus" and "output" not in message:
                return  # the call is over for its reader, and never for its caller
            self._waiting[of] = message
            self._answered.pop(of).set()
        elif message["messageType"] == "propertyReading" and message["property"] in self.readings:
            self.readings[message["property"]].append(message["data"])
        else:
            self.dropped.append(text)

    # ---- what its user calls

    def consume(self, description: dict[str, Any]) -> dict[str, Any]:
        """Read a description, and speak to its thing from now on. Raises Unreadable."""
        read(description)
        self.thing = description["id"]
        return description

    async def ask(self, kind: str, **members: Any) -> dict[str, Any] | str:
        """Send a request; give the message that answers it, or that none does."""
        message_id = f"k{next(self._ids)}"
        answered = self._answered[message_id] = trio.Event()
        head = {"messageType": kind, "thingId": self.thing, "messageId": message_id}
        await self.socket.send(json.dumps(head | members))
        with trio.move_on_after(PATIENCE):
            await answered.wait()
            return self._waiting.pop(message_id)
        return HANGS

    async def read(self, name: str) -> Any:
        """Read a property."""
        return _told(await self.ask("readProperty", property=name), "data")

    async def write(self, name: str, value: Any) -> Any:
        """Write a property."""
        return _told(await self.ask("writeProperty", property=name, data=value), "data")

    async def invoke(self, action: str, input: Any = None) -> Any:
        """Invoke an action."""
        return _told(await self.ask("invokeAction", action=action, input=input), "output")

    async def observe(self, name: str) -> Any:
        """Observe a property; the first reading is the acknowledgement."""
        told = _told(await self.ask("observeProperty", property=name, lastPropertyReading=TIME), "data")
        self.readings.setdefault(name, [])
        return told

    async def unobserve(self, name: str) -> Any:
        """End an observation: it says the same again, and waits for the acknowledgement."""
        told = await self.observe(name)
        self.readings.pop(name, None)
        return told

    async def subscribe(self, event: str) -> Any:
        """Subscribe to an event."""
        told = _told(await self.ask("subscribeevent", event=event, lastEvent=TIME), "message")
        self.events.setdefault(event, [])
        return told

    async def unsubscribe(self, event: str) -> Any:
        """End a subscription: it says the same again, and waits for the acknowledgement."""
        told = await self.subscribe(event)
        self.events.pop(event, None)
        return told


TIME = 1737399600.52
"""A time as its mapper writes it."""


def _told(answer: dict[str, Any] | str, member: str) -> Any:
    if isinstance(answer, str):
        return answer
    if answer["messageType"] == "error":
        kind = answer["type"].rpartition("#")[2]
        return f"error {answer['status']} {kind}: {answer['title']}"
    return answer[member]


def _time_can_be_read(at: Any) -> bool:
    """Whether its mapper takes this for a time: a number, or a date-time with an offset and no zone."""
    if at is None or isinstance(at, int | float):
        return True
    try:
        return isinstance(at, str) and datetime.fromisoformat(at).tzinfo is not None
    except ValueError:
        return False
