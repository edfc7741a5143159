"""The values of MCP servers: their offers and their results. Plain data, without the SDK."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from lmos_actors._core import schema_problem

TOOL_BYTES: Final = 32_768
"""Maximum bytes of one tool, with its description and schemas; also of a resource, and of a prompt."""

TOOLS_BYTES: Final = 131_072
"""Maximum bytes of all tools of a server: all of them go with each request to a model."""


class McpTool(Struct, frozen=True, omit_defaults=True):
    """A tool of a server. The schemas are JSON Schemas as JSON text, empty if unknown.

    `read_only` and `idempotent` are the server's claims, which are not checked.
    """

    name: str
    description: str = ""
    input_schema: str = ""
    output_schema: str = ""
    read_only: bool = False
    idempotent: bool = False


def tool_bytes(tool: McpTool) -> int:
    """Return the size of a tool in bytes, including its description and schemas."""
    return len(msgspec.json.encode(tool))


def tool_problem(tool: McpTool) -> str | None:
    """Return why a tool described by a stranger cannot be used; None if it can."""
    size = tool_bytes(tool)
    if not tool.name or size > TOOL_BYTES:
        return f"it has {size} bytes, and {TOOL_BYTES} are taken" if tool.name else "it has no name"
    for schema in (tool.input_schema, tool.output_schema):
        problem = schema_problem(schema)
        if problem is not None:
            return f"one of its schemas is not right: {problem}"
    return None


class McpResource(Struct, frozen=True, omit_defaults=True):
    """A resource of a server, or a template of resources, whose `uri` has parts in braces to fill in."""

    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    is_template: bool = False


class McpArgument(Struct, frozen=True, omit_defaults=True):
    """An argument of a prompt; its value is a text."""

    name: str
    description: str = ""
    required: bool = False


class McpPrompt(Struct, frozen=True, omit_defaults=True):
    """A prompt of a server."""

    name: str
    description: str = ""
    arguments: tuple[McpArgument, ...] = ()


class McpContent(Struct, frozen=True, omit_defaults=True):
    """A piece of a result: a `text`, or `data` in Base64, with a `mime_type`; a `link` has only its `uri`."""

    type: Literal["text", "image", "audio", "resource", "link"] = "text"
    text: str = ""
    data: str = ""
    mime_type: str = ""
    uri: str = ""


class McpResult(Struct, frozen=True, omit_defaults=True):
    """The result of a tool. `structured` is plain data; None if the tool returned none."""

    content: tuple[McpContent, ...] = ()
    structured: Any = None


class McpMessage(Struct, frozen=True, omit_defaults=True):
    """A message of a prompt."""

    role: Literal["user", "assistant"]
    content: McpContent


class McpProgress(Struct, frozen=True, omit_defaults=True):
    """The progress of a call: `progress` of `total`, in the server's own measure."""

    progress: float
    total: float | None = None
    message: str = ""


class McpInfo(Struct, frozen=True, omit_defaults=True):
    """The server's description of itself, and the version of the protocol in use.

    `instructions` are a text for a model. They come from a stranger, so no model gets them automatically.
    """

    name: str = ""
    version: str = ""
    protocol: str = ""
    instructions: str = ""
