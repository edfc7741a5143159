"""A kotlin-wot server, one connection, as the real one of May 2025 behaves: frames in, frames out.

One thing with the properties `unit` (writable, observable) and `limit` (read-only), the actions `echo`, which
gives its input back, and `fail`, which raises, and the event `rain`. It raises `Closed` at a frame that its
mapper cannot read, as it answers nothing then. A request needs no `messageId`, and an invocation without the
member `input` is a 500 before its handler is asked. It fails to read all properties where one is write-only,
or where another binding serves them: with `read_all_fails`.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ERRORS = "https://eclipse.dev/lmos/protocol/v1/errors"
KINDS: dict[str, tuple[str, ...]] = {
    "readProperty": ("property",),
    "readAllProperties": (),
    "readMultipleProperties": ("properties",),
    "writeProperty": ("property", "data"),
    "writeMultipleProperties": ("data",),
    "writeAllProperties": ("data",),
    "observeProperty": ("property",),
    "unobserveProperty": ("property",),
    "invokeAction": ("action",),
    "subscribeevent": ("event",),
    "unsubscribeEvent": ("event",),
}
"""The types that it can read, and the members without which it cannot."""


FAILURES = {
    "404": ("not-found", "Property Not Found"),
    "405": ("operation-not-allowed", "Property is write-only"),
    "500": ("internal-server-error", "Internal Server Error"),
}


class Closed(Exception):
    """It has closed the connection with 1003, "Failed to read message"."""


class KotlinServer:
    """What one connection and its thing remember."""

    actions: tuple[str, ...] = ("echo", "fail")

    def __init__(self, thing: str) -> None:
        self.thing = thing
        self.read_all_fails = ""
        self.values: dict[str, Any] = {"unit": "K", "limit": 3}
        self.observed: list[str] = []
        self.subscribed: dict[str, str] = {}
        self._ids = count(1)

    def take(self, frame: bytes) -> list[str]:
        """Take one frame, give what it sends."""
        if frame.count(b"[") > 1000:  # its reader takes no more levels; Python's takes more with each version
            raise Closed
        message = self._readable(json.loads(frame))
        if message["thingId"] != self.thing:
            return [self._error(message, "404", "not-found", "Thing Not Found")]
        handlers: dict[str, Callable[[dict[str, Any]], list[str]]] = {
            "readProperty": self._read,
            "readAllProperties": self._read_all,
            "writeProperty": self._write,
            "observeProperty": self._observe,
            "unobserveProperty": self._unobserve,
            "invokeAction": self._invoke,
            "subscribeevent": self._subscribe,
            "unsubscribeEvent": self._unsubscribe,
        }
        handle = handlers.get(message["messageType"])
        if handle is None:
            return [self._error(message, "400", "unsupported-message-type", "Unsupported Message Type")]
        return handle(message)

    def change(self, name: str, value: Any) -> list[str]:
        """Give a property another value; give what it sends."""
        self.values[name] = value
        return [self._reading(name, None)] if name in self.observed else []

    def happen(self, event: str, data: Any) -> list[str]:
        """Let an event happen; give what it sends."""
        message_id = self.subscribed.get(event)
        if message_id is None:
            return []
        return [self._say("event", {"messageId": message_id}, event=event, data=data, timestamp=NUMBER)]

    def _readable(self, message: dict[str, Any]) -> dict[str, Any]:
        needed = KINDS.get(message.get("messageType", ""))
        if needed is None or any(member not in message for member in ("thingId", *needed)):
            raise Closed(json.dumps(message))
        try:
            json.dumps(message, ensure_ascii=False).encode()
        except UnicodeError:  # half of a surrogate pair
            raise Closed(json.dumps(message)) from None
        return {"messageId": f"r{next(self._ids)}", **message}

    def _say(self, kind: str, request: dict[str, Any] | None, **members: Any) -> str:
        head = {"messageType": kind, "thingId": self.thing, "messageId": f"k{next(self._ids)}"}
        return json.dumps(head | {"correlationId": request and request["messageId"]} | members)

    def _error(self, request: dict[str, Any], status: str, kind: str, title: str) -> str:
        detail, instance = "no such luck", f"{ERRORS}/{next(self._ids)}"
        members = {"type": f"{ERRORS}#{kind}", "title": title, "status": status}
        return self._say("error", request, **members, detail=detail, instance=instance)

    def _reading(self, name: str, request: dict[str, Any] | None) -> str:
        value = self.values[name]
        return self._say("propertyReading", request, property=name, data=value, timestamp=NUMBER)

    def _read_all(self, message: dict[str, Any]) -> list[str]:
        if self.read_all_fails:
            kind, title = FAILURES[self.read_all_fails]
            return [self._error(message, self.read_all_fails, kind, title)]
        return [self._say("propertyReadings", message, data=self.values, timestamp=NUMBER)]

    def _read(self, message: dict[str, Any]) -> list[str]:
        name = message["property"]
        if name not in self.values:
            return [self._error(message, "404", "not-found", "Property Not Found")]
        return [self._reading(name, message)]

    def _write(self, message: dict[str, Any]) -> list[str]:
        name = message["property"]
        if name not in self.values:
            return [self._error(message, "404", "not-found", "Property Not Found")]
        if name == "limit":
            return [self._error(message, "405", "operation-not-allowed", "Property Read-Only")]
        return [*self.change(name, message["data"]), self._reading(name, message)]

    def _observe(self, message: dict[str, Any]) -> list[str]:
        name = message["property"]
        if name not in self.values:
            return [self._error(message, "404", "not-found", "Property Not Found")]
        self.observed = [*(one for one in self.observed if one != name), name]
        return [self._reading(name, message)]

    def _unobserve(self, message: dict[str, Any]) -> list[str]:
        if message["property"] not in self.observed:
            return [self._error(message, "500", "internal-server-error", "Internal Server Error")]
        self.observed.remove(message["property"])
        return [self._say("acknowledgement", message, message="unobserveProperty")]

    def _invoke(self, message: dict[str, Any]) -> list[str]:
        action = message["action"]
        if action not in self.actions:
            return [self._error(message, "404", "not-found", "Action Not Found")]
        if "input" not in message or action == "fail":
            return [self._error(message, "500", "internal-server-error", "Internal Server Error")]
        output = message.get("input")
        return [self._say("actionStatus", message, action=action, status="completed", output=output)]

    def _subscribe(self, message: dict[str, Any]) -> list[str]:
        if message["event"] != "rain":
            return [self._error(message, "404", "not-found", "Event Not Found")]
        self.subscribed[message["event"]] = message["messageId"]
        return [self._say("acknowledgement", message, message="subscribeevent")]

    def _unsubscribe(self, message: dict[str, Any]) -> list[str]:
        if self.subscribed.pop(message["event"], None) is None:
            return [self._error(message, "500", "internal-server-error", "Internal Server Error")]
        return [self._say("acknowledgement", message, message="unsubscribeEvent")]


NUMBER = 1737399600.52
"""A time as its mapper writes it."""
