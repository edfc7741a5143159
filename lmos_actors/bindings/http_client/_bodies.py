"""Values as bodies of HTTP messages, by media type: JSON, text, bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmos_actors._core import read_json
from lmos_actors.errors import InvalidInput, LocalProtocolError, NotAllowed
from lmos_actors.protocol import lmos
from lmos_actors.protocol.td import JSON

from ._stream import BadAnswer

if TYPE_CHECKING:
    from ._stream import WebAnswer

BYTES: Final = "application/octet-stream"
_LIMITS: Final = lmos.Limits()
_PARTED: Final = ("multipart/", "application/x-www-form-urlencoded")


def essence(kind: str | None) -> str:
    """Return a media type without parameters, in lower case; JSON for None."""
    return (kind or JSON).partition(";")[0].strip().lower() or JSON


def is_json(kind: str) -> bool:
    """Return whether a media type is JSON."""
    return kind == JSON or kind.endswith("+json")


def written(value: Any, kind: str | None) -> bytes:
    """Return a value as a body of a media type. Raises InvalidInput, NotAllowed."""
    found = essence(kind)
    if is_json(found):
        try:
            return lmos.written(value)
        except LocalProtocolError as error:
            raise InvalidInput(str(error)) from None
    if found.startswith(_PARTED):
        raise NotAllowed(f"a value cannot be sent as {found!r}: JSON, text and bytes can be")
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return _encoded(value)
    if found.startswith("text/") and (value is None or isinstance(value, bool | int | float)):
        return written(value, JSON)
    raise InvalidInput(f"{found!r} takes a text or bytes, not {type(value).__name__}")


def _encoded(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("a text with half of a surrogate pair") from None


def taken(answer: WebAnswer, expected: str | None) -> Any:
    """Return the value of an answer; UNSET if there is none. Raises BadAnswer.

    Without a media type, `expected` is assumed. Text is returned as text, all else as bytes.
    """
    if not answer.body or answer.head.status in (204, 205):
        return msgspec.UNSET
    kind = answer.head.kind or essence(expected)
    if is_json(kind):
        return from_json(answer.body)
    if not kind.startswith("text/"):
        return answer.body
    try:
        return answer.body.decode()
    except UnicodeDecodeError:
        raise BadAnswer("it is not UTF-8 text") from None


def from_json(data: bytes | str) -> Any:
    """Return the value of a JSON body, within the limits that messages have. Raises BadAnswer."""
    far = lmos.beyond(data, _LIMITS)
    if far is not None:
        raise BadAnswer(f"it is {far.detail}")
    try:
        return read_json(data)
    except (RecursionError, ValueError) as error:
        raise BadAnswer(f"it is not JSON: {str(error)[:200]}") from None
