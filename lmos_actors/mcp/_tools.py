"""Tools of MCP servers for models, and `mcp`: a server that an agent starts for itself."""

from __future__ import annotations

import re
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs
import msgspec

from lmos_actors.errors import ActionFailed, OutcomeUnknown, ToolFailed
from lmos_actors.facades import Tool

from ._failures import NO_ANSWER
from ._server import McpServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.actors import Contract, Ref

    from ._values import McpContent, McpTool

_OTHERS: Final = re.compile(r"[^a-zA-Z0-9_-]+")


@attrs.frozen
class McpSource:
    """An MCP server among the `tools` of a thinking agent, which starts the server. Made by `mcp`."""

    name: str
    options: dict[str, Any]
    optional: bool = False

    @property
    def factory(self) -> partial[McpServer]:
        """The factory of the server's agent; it provides the class even while the agent is not running."""
        return partial(McpServer, **self.options)


def mcp(
    server: str | list[str], /, *, name: str | None = None, optional: bool = False, **options: Any
) -> McpSource:
    """Return an MCP server as a source of tools, given its URL or command and options of `McpServer`.

    A thinking agent starts the server as a child, restarts it when it ends, and stops it when the agent
    itself ends. `name` is put before the names of the server's tools if they collide with others; by default
    it is the name of the program or the host. If an `optional` server is away, the agent starts and works
    without its tools, and the server is tried again. Raises ConfigError for wrong options.
    """
    is_url = isinstance(server, str) and server.startswith(("http://", "https://"))
    options["url" if is_url else "command"] = server
    McpServer(**options)  # raises for a mistake in the line that makes it
    named = _OTHERS.sub("-", name or _name_of(server, is_url=is_url)).strip("-") or "mcp"
    return McpSource(named, options, optional)


def _name_of(server: str | list[str], *, is_url: bool) -> str:
    if is_url:
        return urlsplit(str(server)).hostname or ""
    words = [word for word in (server.split() if isinstance(server, str) else server) if word[:1] != "-"]
    return PurePath(words[-1]).stem if words else ""


def is_mcp_server(contract: Contract) -> bool:
    """Return whether agents of a class are MCP servers in use, or stand in for one."""
    return contract.actions.get("call") is McpServer.__contract__.actions["call"]


async def tools_of_server(server: Ref[McpServer]) -> list[Tool]:
    """Return the tools that a server offers now. Raises AgentError if the server is not there."""
    return [_tool_of(server, each) for each in await server.read(McpServer.tools)]


def _tool_of(server: Ref[McpServer], tool: McpTool) -> Tool:
    schema: dict[str, Any] = (
        msgspec.json.decode(tool.input_schema) if tool.input_schema else {"type": "object"}
    )
    call = partial(_call, server, tool.name)
    return Tool(tool.name, tool.description, schema, call, tool.read_only or tool.idempotent)


async def _call(server: Ref[McpServer], name: str, given: Mapping[str, Any]) -> Any:
    try:
        result = await server.invoke(McpServer.call, name, dict(given))
        if result.structured is not None:
            return result.structured
        return "\n".join(map(_text_of, result.content))  # texts, and mentions of all other content
    except ActionFailed as error:
        if error.code == NO_ANSWER:
            raise ToolFailed(name, str(error)) from OutcomeUnknown(str(server.path), "it was not answered")
        raise ToolFailed(name, str(error)) from error
    except Exception as error:
        raise ToolFailed(name, f"{type(error).__name__}: {error}") from error


def _text_of(content: McpContent) -> str:
    if content.type == "link":
        return f"[{content.uri}: {content.text}]"
    if content.data:
        return f"[{content.mime_type or content.type}, {len(content.data) * 3 // 4} bytes]"
    return content.text
