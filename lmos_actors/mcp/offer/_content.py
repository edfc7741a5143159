"""Results of actions as content: pictures, sound, embedded resources, messages of prompts.

An action whose result has `McpContent`, alone or in a list, or is an `McpResult`, says itself what its client
gets; there is no schema of such a result. Any other result is data, and is text and structure both.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import mcp_types as types

from lmos_actors.bindings import written_value
from lmos_actors.files import mapped

from .._values import McpContent, McpMessage, McpResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp_types import CallToolResult, ContentBlock

Contents: TypeAlias = "types.TextResourceContents | types.BlobResourceContents"

OCTETS: Final = "application/octet-stream"
JSON: Final = "application/json"


def is_content(tp: Any) -> bool:
    """Return whether a type is content, or has content in a list or a union."""
    return tp in (McpContent, McpResult) or any(map(is_content, get_args(tp)))


def result_of(value: Any) -> CallToolResult:
    """Return what a client gets for a result whose type is content."""
    if isinstance(value, McpResult):
        data = mapped(value.structured) or None
        return types.CallToolResult(content=_blocks(value.content), structured_content=data)
    return types.CallToolResult(content=_blocks(value))


def _blocks(value: Any) -> list[ContentBlock]:
    return [] if value is None else [block_of(each) for each in _each(value)]


def block_of(value: Any) -> ContentBlock:
    """Return a piece of content as the protocol has it; of what is none, its text or its JSON."""
    if not isinstance(value, McpContent):
        text = value if isinstance(value, str) else written_value(value).decode()
        return types.TextContent(type="text", text=text)
    if value.type == "image":
        return types.ImageContent(type="image", data=value.data, mime_type=value.mime_type)
    if value.type == "audio":
        return types.AudioContent(type="audio", data=value.data, mime_type=value.mime_type)
    if value.type == "resource":
        return types.EmbeddedResource(type="resource", resource=_contents(value, value.uri, value.mime_type))
    if value.type == "link":
        mime_type = value.mime_type or None
        return types.ResourceLink(
            type="resource_link", name=value.text or value.uri, uri=value.uri, mime_type=mime_type
        )
    return types.TextContent(type="text", text=value.text)


def contents_of(value: Any, uri: str, mime_type: str) -> list[Contents]:
    """Return the value of a resource as the protocol has it; `mime_type` is empty where none is declared."""
    return [_contents(each, uri, mime_type) for each in _each(value)]


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
        return types.BlobResourceContents(uri=value.uri or uri, mime_type=kind or OCTETS, blob=value.data)
    return types.TextResourceContents(uri=value.uri or uri, mime_type=kind, text=value.text)


def messages_of(value: Any) -> list[types.PromptMessage]:
    """Return what a prompt has returned: messages, or what the user says."""
    return [
        types.PromptMessage(role=each.role, content=block_of(each.content))
        if isinstance(each, McpMessage)
        else types.PromptMessage(role="user", content=block_of(each))
        for each in _each(value)
    ]


def _each(value: Any) -> Iterable[Any]:
    """Return the pieces of a value: of a list that has content or messages, its entries."""
    several: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore
    has_pieces = any(isinstance(each, McpContent | McpMessage) for each in several)
    one: list[Any] = [value]
    return several if has_pieces else one
