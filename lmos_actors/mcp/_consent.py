"""Consent of people to the tools of an MCP server, as the tools are described at the time of the call.

A server may change its description of a tool at any time, and a consent to the old description does not cover
the new one. So the question contains the whole description, by which equal questions are recognized. Before a
call is sent, the tool is compared with what the person has seen.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import msgspec

from lmos_actors._core import printable

if TYPE_CHECKING:
    from ._values import McpTool

Consent: TypeAlias = Literal["none", "tools", "calls"]
"""What people are asked about: nothing, each tool as it is described, or each call."""

SHOWN: Final = 100
"""Maximum characters of a tool's name in a question, and in its key."""


class ToolChanged(Exception):
    """Raised if the description of a tool has changed since a person was asked."""


@attrs.frozen
class Question:
    """A question to a person. If `stands` is true, the answer also holds for later equal questions."""

    text: str
    data: dict[str, Any]
    key: str
    stands: bool


def question_about(tool: McpTool, arguments: dict[str, Any], consent: Consent) -> Question:
    """Return the question about a tool, or about one call of it."""
    schema: Any = msgspec.json.decode(tool.input_schema) if tool.input_schema else {}
    described: dict[str, Any] = {**msgspec.to_builtins(tool), "input_schema": schema}
    name = printable(tool.name[:SHOWN])[:SHOWN]
    if consent == "tools":
        key = f"use {name} {_digest(tool.name)}"
        return Question(f"use the tool {name!r}, as it is described here", {"tool": described}, key, True)
    data: dict[str, Any] = {"arguments": arguments, "tool": described}
    return Question(f"call the tool {name!r}", data, f"call {name} {_digest(data)}", False)


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]
