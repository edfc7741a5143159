"""The texts that all providers' formats have in common, made from results, tool requests and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmos_actors.actors import shape_of
from lmos_actors.errors import InvalidInput

from ._failures import REQUEST_REFUSED, model_failure
from ._messages import Message, ModelMessage, ToolRequest

if TYPE_CHECKING:
    from ._messages import ModelFile, ToolMessage

NO_TEXT: Final = "(no text)"
"""The text to send if a provider wants a text and there is none."""

MOST_TOOLS: Final = 128
"""Tool requests of one answer."""

NO_ARGUMENTS: Final = ("", "null", "[]")
"""The texts that some send in place of an empty object."""

MOST_TOKENS: Final = 1 << 40
"""Tokens of one request that are believed."""

_TEXTS: Final = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})


def result_text(message: ToolMessage) -> str:
    """Return the result of a tool, or its error, as a text that is never blank.

    A result that is a text is returned unchanged, other data as JSON.
    """
    if message.error:
        return f"error: {message.error}"
    if isinstance(message.result, str):
        return message.result if message.result.strip() else NO_TEXT
    return msgspec.json.encode(message.result).decode()


def tool_request(number: str, name: str, arguments: str) -> ToolRequest:
    """Return the request for a tool; arguments that are not a JSON object are kept unchanged.

    Missing arguments may be a blank text, null or an empty list. An object may be JSON within a JSON text.
    """
    if arguments.strip() in NO_ARGUMENTS:
        return ToolRequest(number, name)
    try:
        read: Any = msgspec.json.decode(arguments)
        read = msgspec.json.decode(read) if isinstance(read, str) else read
    except (msgspec.DecodeError, RecursionError):
        read = None
    if not isinstance(read, dict):
        return ToolRequest(number, name, {}, arguments)
    request = ToolRequest(number, name, read)  # pyright: ignore[reportUnknownArgumentType]
    try:
        shape_of(list[Message]).take([ModelMessage("", [request])])  # as it will go back to the model
    except InvalidInput:  # nested too deeply, or with a number of a thousand digits
        return ToolRequest(number, name, {}, arguments)
    return request


def counted(tokens: int | None) -> int:
    """Return a provider's count, which may have any value, limited to the range from 0 to MOST_TOKENS."""
    return min(max(0, tokens or 0), MOST_TOKENS)


def file_text(file: ModelFile, kind: str) -> str:
    """Return a text file's content below its name. Raise MODEL_REQUEST_REFUSED for any other file."""
    name = file.name or "a file"
    if not (kind.startswith("text/") or kind in _TEXTS):
        raise model_failure(REQUEST_REFUSED, f"{name} is of type {kind}, which this provider does not take")
    try:
        text = file.data.decode()
    except UnicodeDecodeError:
        raise model_failure(REQUEST_REFUSED, f"{name} is no text in UTF-8") from None
    return f"{name}:\n{text}"
