"""Results of actions as content: pictures, sound, embedded resources, messages of prompts.

If the result of an action is an `McpResult`, an `McpContent` or a list with `McpContent`, the action itself
determines what its client gets; such a result has no schema. Any other result is data, sent both as text and
as structure.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import mcp_types as types

from lmos_actors.bindings import written_value
from lmos_actors.errors import ActionFailed
from lmos_actors.files import is_mapping

from .._values import McpContent, McpMessage, McpResult

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

Contents: TypeAlias = "types.TextResourceContents | types.BlobResourceContents"

RESULT: Final = "result"
"""The member that holds a value which is not an object, in the structure."""

OCTETS: Final = "application/octet-stream"
JSON: Final = "application/json"


def is_content(tp: Any) -> bool:
    """Return whether a type is content, or has content in a list or a union."""
    return tp in (McpContent, McpResult) or any(map(is_content, get_args(tp)))


def result_of(value: Any) -> CallToolResult:
    """Return the client's result for a value whose type is content."""
    if not isinstance(value, McpResult):
        return types.CallToolResult(content=[block_of(each) for each in _each(value)])
    data = value.structured
    structured = None if data is None else data if is_mapping(data) else {RESULT: data}
    content = [block_of(each) for each in value.content]
    return types.CallToolResult(content=content, structured_content=structured)


def block_of(value: Any) -> ContentBlock:
    """Return a piece of content in the protocol's form; for another value, its text or its JSON.

    Raises ActionFailed for a piece that a client could not read, as it could then read nothing of the answer.
    """
    if not isinstance(value, McpContent):
        text = value if isinstance(value, str) else written_value(value).decode()
        return types.TextContent(type="text", text=text)
    if value.type == "image":
        return types.ImageContent(type="image", data=_data_of(value), mime_type=value.mime_type or OCTETS)
    if value.type == "audio":
        return types.AudioContent(type="audio", data=_data_of(value), mime_type=value.mime_type or OCTETS)
    if value.type in ("resource", "link") and not value.uri:
        raise ActionFailed(f"the agent returns a {value.type} without a uri")
    if value.type == "resource":
        return types.EmbeddedResource(type="resource", resource=_contents(value, value.uri, value.mime_type))
    if value.type == "link":
        mime_type = value.mime_type or None
        return types.ResourceLink(
            type="resource_link", name=value.text or value.uri, uri=value.uri, mime_type=mime_type
        )
    return types.TextContent(type="text", text=value.text)


def _data_of(content: McpContent) -> str:
    try:
        b64decode(content.data, validate=True)
    except ValueError:
        raise ActionFailed("the agent returns data that is not Base64") from None
    return content.data


def contents_of(value: Any, uri: str, mime_type: str) -> list[Contents]:
    """Return the value of a resource in the protocol's form; `mime_type` is empty if none is declared."""
    return [_contents(each, uri, mime_type) for each in (_each(value) or [value])]


def _contents(value: Any, uri: str, mime_type: str) -> Contents:
    kind = mime_type or None
    if isinstance(value, bytes):
        return types.BlobResourceContents(
            uri=uri, mime_type=kind or OCTETS, blob=b64encode(value).decode("ascii")
        )
    if isinstance(value, str):
        return types.TextResourceContents(uri=uri, mime_type=kind, text=value)
    if not isinstance(value, McpContent):
        return types.TextResourceContents(uri=uri, mime_type=kind or JSON, text=written_value(value).decode())
    kind = value.mime_type or kind
    if value.data:
        data = _data_of(value)
        return types.BlobResourceContents(uri=value.uri or uri, mime_type=kind or OCTETS, blob=data)
    return types.TextResourceContents(uri=value.uri or uri, mime_type=kind, text=value.text)


def messages_of(value: Any) -> list[types.PromptMessage]:
    """Return the messages that a prompt has returned; a text becomes the user's message."""
    return [
        types.PromptMessage(role=each.role, content=block_of(each.content))
        if isinstance(each, McpMessage)
        else types.PromptMessage(role="user", content=block_of(each))
        for each in _each(value)
    ]


def _each(value: Any) -> list[Any]:
    """Return the pieces of a value: the entries of a list of content or messages; no piece for None."""
    several: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore
    has_pieces = any(isinstance(each, McpContent | McpMessage) for each in several)
    return several if has_pieces or value in (None, [], ()) else [value]
