"""Conversion of text frames to messages and back.

No text of a peer raises an error: a text that cannot be read is returned as `Unreadable`, with a reason that
names the member. A server refuses such a frame and continues; a client counts it. A text that is too long, or
not UTF-8, never reaches this module, because the connection is closed over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import UNSET, Struct

from lmos_actors._core import check_members
from lmos_actors.errors import nearest

from ._messages import (
    CLIENT_TYPES,
    PART_TYPES,
    SERVER_TYPES,
    ClientMessage,
    Part,
    ServerMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Unreadable(Struct, kw_only=True, frozen=True):
    """A text that is not a frame: why, and its `type` if that is text."""

    reason: str
    type: str | None = None


class UnknownFrame(Struct, kw_only=True, frozen=True):
    """A frame of a server with an unknown type, which clients ignore."""

    type: str


_read_client: Final[Callable[[str | bytes], ClientMessage]] = msgspec.json.Decoder(ClientMessage).decode
_read_server: Final[Callable[[str | bytes], ServerMessage]] = msgspec.json.Decoder(ServerMessage).decode
_read_plain: Final = msgspec.json.Decoder().decode
_write: Final = msgspec.json.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)


def read_client_frame(text: str | bytes) -> ClientMessage | Unreadable:
    """Return the message of a client's text frame."""
    try:
        message = _read_client(text)
        check_members(text, _read_plain(text))
    except _UNREADABLE as error:
        return _why(text, error, CLIENT_TYPES)
    if type(message) is UserMessage:
        fault = _content_fault(message)
        if fault is not None:
            return Unreadable(reason=fault, type="message")
    return message


def read_server_frame(text: str | bytes) -> ServerMessage | UnknownFrame | Unreadable:
    """Return the message of a server's text frame."""
    try:
        message = _read_server(text)
        check_members(text, _read_plain(text))
        return message
    except _UNREADABLE as error:
        found = _why(text, error, SERVER_TYPES)
    if found.type is not None and found.type not in SERVER_TYPES:
        return UnknownFrame(type=found.type)
    return found


def write_frame(message: ClientMessage | ServerMessage) -> bytes:
    """Return a message as a text frame in UTF-8.

    Raise TypeError, ValueError and similar errors for a value in it that has no JSON form.
    """
    return _write(message)


def _why(text: str | bytes, error: Exception, types: Sequence[str]) -> Unreadable:
    """Return an `Unreadable` with the reason why a text could not be read."""
    try:
        raw = _read_plain(text)
    except RecursionError:
        return Unreadable(reason="nested too deeply")
    except _UNREADABLE as fault:
        return Unreadable(reason=f"this is not JSON: {fault}")
    if not isinstance(raw, dict):
        return Unreadable(reason="a frame is a JSON object")
    kind = cast("dict[str, Any]", raw).get("type", UNSET)
    if not isinstance(kind, str):
        what = "it has no type" if kind is UNSET else "its type is not text"
        return Unreadable(reason=f"{what}: known are {', '.join(types)}")
    if kind not in types:
        near = nearest(kind, types)
        hint = f"did you mean {near!r}?" if near else f"known are {', '.join(types)}"
        return Unreadable(reason=f"there is no type {kind!r}: {hint}", type=kind)
    return Unreadable(reason=str(error), type=kind)


# ---- content, beyond the types of its members


def _content_fault(message: UserMessage) -> str | None:
    """Return the fault in the content of a message, or None if there is none."""
    if not message.parts:
        return None if message.content else "a message has content or parts - at `$.content`"
    for number, part in enumerate(message.parts):
        fault = _part_fault(part)
        if fault is not None:
            return f"{fault} - at `$.parts[{number}]`"
    return None


def _part_fault(part: Part) -> str | None:
    if part.type == "text":
        return "a part of type text has `text`" if part.text is None else None
    if part.type not in PART_TYPES:
        near = nearest(part.type, PART_TYPES)
        hint = f"did you mean {near!r}?" if near else f"known are {', '.join(PART_TYPES)}"
        return f"there is no type of parts {part.type!r}: {hint}"
    media = part.media
    if media is None:
        return f"a part of type {part.type} has `media`"
    if not media.mime_type:
        return "media have a `mime_type`"
    places = [place for place in (media.data, media.url, media.storage_ref) if place is not None]
    return None if len(places) == 1 else "media have exactly one of `data`, `url` and `storage_ref`"
