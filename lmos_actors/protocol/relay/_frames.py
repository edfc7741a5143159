"""The frames of an AgentRelay: JSON objects whose members are passed on as the received bytes.

A relay does not interpret what agents send each other. It reads only the members of the protocol. It checks
the payload and all private members as JSON, and sends them on byte for byte: a number of twenty digits is not
changed. If a frame has a member twice, the last one counts, as in all relays that were recorded, and is sent
on once. A value that the relay reads is refused if it has a member twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from lmos_actors._core import read_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RELAY: Final = "relay"
"""The id of the relay itself: as a target it means a command, as a sender an answer of the relay."""

EVERYBODY: Final = "*"
"""The target of a broadcast."""

OWN: Final = ("id", "from", "ts")
"""Members that the relay sets itself, whatever a sender has written there."""

Members = dict[str, Raw]

_read: Final = msgspec.json.Decoder(Members).decode
_write: Final = msgspec.json.Encoder().encode
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Unreadable(Struct, frozen=True):
    """A frame that is not a JSON object, and why."""

    reason: str


def read_members(data: bytes, depth: int) -> Members | Unreadable:
    """Return the members of a frame with at most `depth` levels of arrays and objects."""
    if data.count(b"[") + data.count(b"{") > depth and _depth_of(data) > depth:
        return Unreadable(f"it is nested deeper than {depth} levels")
    try:
        return _read(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Unreadable(f"it is no JSON object: {error}")


def _depth_of(data: bytes) -> int:
    """Return how deep arrays and objects are nested in a text, which need not be JSON."""
    deepest = now = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"[{":
            now += 1
            deepest = max(deepest, now)
        elif byte in b"]}":
            now -= 1
    return deepest


def value_of(members: Mapping[str, Raw], name: str) -> Any:
    """Return the value of a member, None if it is absent. Raise ValueError if it is not JSON."""
    raw = members.get(name)
    if raw is None:
        return None
    try:
        return read_json(bytes(raw))
    except (ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


def text_of(members: Mapping[str, Raw], name: str) -> str | None:
    """Return the text of a member, None if it is absent, unreadable or not a text."""
    try:
        value = value_of(members, name)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def write_members(members: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the text of a frame from its members, whose values are JSON."""
    return b"{" + b",".join(_write(name) + b":" + value for name, value in members) + b"}"


def write_value(value: Any) -> bytes:
    """Return a value as JSON. Raise TypeError if it is not plain data."""
    return _write(value)
