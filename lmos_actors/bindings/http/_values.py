"""JSON over HTTP: bodies read with limits, query parameters as members of an input, values written."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote_plus

import msgspec

from lmos_actors._core import read_json as read_text
from lmos_actors.actors import MISSING
from lmos_actors.errors import InvalidInput
from lmos_actors.protocol.lmos import Limits, beyond, written

from ..exposure._values import PLAIN, plain, plain_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmos_actors.actors import Operation

LIMITS: Final = Limits(max_bytes=1 << 40)
"""Limits on the nesting and the numbers of bodies; the front door bounds their length."""

SHORT: Final = 64  # bytes that are too few for harmful nesting or numbers
MOST_PARAMETERS: Final = 100

_UNREAD: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)


def read_json(body: bytes) -> Any:
    """Read a body. Raises InvalidInput unless it is JSON, not too deep, and without repeated members."""
    if len(body) > SHORT:
        problem = beyond(body, LIMITS)
        if problem is not None:
            raise InvalidInput(problem.detail)
    try:
        return read_text(body)
    except _UNREAD as error:
        raise InvalidInput(f"the body is not JSON: {_plainly(error)}") from None


def _plainly(error: Exception) -> str:
    """Return the reason of an error, without the text that was sent."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    return str(error) if isinstance(error, msgspec.MsgspecError) else "it cannot be read"


def with_integers(value: Any) -> Any:
    """Return a value with integers in place of whole numbers that were written like 4.0.

    JSON Schema does not distinguish between them.
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: with_integers(each) for name, each in members.items()}
    if isinstance(value, list):
        return [with_integers(each) for each in cast("Iterable[Any]", value)]
    return value


def fitting(value: Any, check: Callable[[Any], object]) -> Any:
    """Return a value, or its form by `with_integers` if only that form passes `check`. Raises nothing."""
    try:
        check(value)
    except InvalidInput:
        whole = with_integers(value)
        try:
            check(whole)
        except InvalidInput:
            return value
        return whole
    return value


def written_value(value: Any) -> bytes:
    """Return a value as JSON.

    Raises LocalProtocolError, or the error of `plain`, if JSON cannot hold the value.
    """
    return written(value if type(value) in PLAIN else plain(value))


def written_members(values: dict[str, Any]) -> bytes:
    """Return several values by name as a JSON object."""
    return written(plain_members(values))


def tag_of(body: bytes) -> str:
    """Return the entity tag of a body."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


# ---- query parameters


def parameters_of(query: bytes) -> dict[str, str]:
    """Read a query string. Raises InvalidInput for a repeated name, and for too many."""
    found: dict[str, str] = {}
    if not query:
        return found
    parts = query.decode("ascii", "replace").split("&", MOST_PARAMETERS)
    if len(parts) > MOST_PARAMETERS:
        raise InvalidInput(f"more than {MOST_PARAMETERS} query parameters")
    for part in parts:
        name, _, value = part.partition("=")
        name = _unquoted(name)
        if name in found:
            raise InvalidInput("a query parameter is repeated", f"$.{name[:100]}")
        if name:
            found[name] = _unquoted(value)
    return found


def _unquoted(text: str) -> str:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("a query parameter is not UTF-8") from None


def with_parameters(op: Operation, data: Any, query: bytes) -> Any:
    """Return the input of an action with the query parameters that are members of it (`uriVariables`).

    Parameters of other names are ignored. Raises InvalidInput for a member that is also in the body.
    """
    given = parameters_of(query)
    shapes = {} if op.whole else {p.wire_name: p.shape.schema for p in op.params if not p.is_stream}
    found = {name: valued(text, shapes[name]) for name, text in given.items() if name in shapes}
    if not found:
        return data
    if data is None or data is MISSING:
        return found
    if not isinstance(data, dict):  # refused later, as any input of a wrong type
        return data
    body = cast("dict[str, Any]", data)
    for name in found:
        if name in body:
            raise InvalidInput("it is in the body and in the query", f"$.{name}")
    return {**body, **found}


def valued(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value of a query parameter: unchanged where its type is text, else read as JSON."""
    if _may_be_text(schema):
        return text
    try:
        return read_json(text.encode())
    except InvalidInput:
        return text  # its type refuses it, with the reason


def _may_be_text(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") == "string":
        return True
    words = (*schema.get("enum", ()), schema.get("const"))
    return any(isinstance(each, str) for each in words) or any(map(_may_be_text, schema.get("oneOf", ())))
