"""The letter of the LMOS text: what each message has to have, and nothing that the text does not know.

Written from the tables of the communication protocol, and of nothing else.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+\Z")
UUID4: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")

REQUESTS: Final[dict[str, tuple[str, ...]]] = {
    "readProperty": ("name",),
    "writeProperty": ("name", "data"),
    "writeMultipleProperties": ("data",),
    "observeProperty": ("name",),
    "unobserveProperty": ("name",),
    "invokeAction": ("action",),
    "queryAction": ("action",),
    "cancelAction": ("action",),
    "subscribeEvent": ("event",),
    "unsubscribeEvent": ("event",),
    "subscribeAllEvents": (),
    "unsubscribeAllEvents": (),
}
"""What a consumer may say, and the members that are mandatory."""

ANSWERS: Final[dict[str, tuple[str, ...]]] = {
    "propertyReading": ("name", "value", "timestamp"),
    "propertyReadings": ("data", "timestamp"),
    "actionStatus": ("action", "status"),
    "event": ("correlationID", "event", "data", "timestamp"),
    "error": ("type", "title", "status", "detail", "instance"),
}
"""What a thing may say."""

STATUSES: Final = ("pending", "in progress", "completed", "failed")


def faults(message: dict[str, Any], known: dict[str, tuple[str, ...]]) -> list[str]:
    """Say what in a message is not by the letter; [] if nothing is."""
    kind = message.get("messageType")
    if kind not in known:
        return [f"messageType {kind!r} is not in the text"]
    wrong = [f"{name} is missing" for name in ("thingID", "messageID", *known[kind]) if name not in message]
    return wrong + [fault for name, value in message.items() if (fault := _fault(kind, name, value))]


def _fault(kind: str, name: str, value: Any) -> str | None:
    checks = {
        "thingID": lambda: isinstance(value, str) and URI.match(value),
        "messageID": lambda: isinstance(value, str) and UUID4.match(value),
        "correlationID": lambda: isinstance(value, str) and UUID4.match(value),
        "timestamp": lambda: isinstance(value, str) and value.endswith("Z") and datetime.fromisoformat(value),
        "status": lambda: value.isdigit() if kind == "error" else value in STATUSES,
        "data": lambda: (
            isinstance(value, dict) or kind not in ("propertyReadings", "writeMultipleProperties")
        ),
    }
    texts = ("name", "action", "event", "type", "title", "detail", "instance", "reason")
    if name in texts:
        return None if isinstance(value, str) and value else f"{name} is no text"
    check = checks.get(name)
    return f"{name} is {value!r}" if check is not None and not check() else None
