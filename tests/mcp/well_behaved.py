"""An MCP server made with the official SDK: a program on standard input and output, and an application.

    python well_behaved.py [NOTES]

What it does beside answering it writes into the file NOTES, a line each.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel


class Secrets(BaseModel):
    password: str


def make_server(note: Any = lambda line: None) -> MCPServer:
    """Make the server; `note` gets what happens in it."""
    server = MCPServer("well-behaved", version="1.2", instructions="Add before you guess.")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(structured_output=False)
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}!"

    @server.tool()
    def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    @server.tool()
    async def wait(ctx: Context) -> str:
        """Wait for ever."""
        note("waiting")
        try:
            await ctx.report_progress(0.25, 1.0, "waiting")
            await anyio.sleep_forever()
        except BaseException:
            note("cancelled")
            raise
        return "never"

    @server.tool()
    def die() -> str:
        """End the process."""
        note("dying")
        os._exit(3)

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Offer one tool more."""
        server.add_tool(fail, name="fail_again")
        await ctx.notify_tools_changed()
        return "grown"

    @server.tool()
    def variable(name: str) -> str:
        """Return a variable of the environment."""
        return os.environ.get(name, "not set")

    @server.tool(structured_output=False)
    def large(size: int) -> str:
        """Return a long text."""
        return "x" * size

    @server.resource("note://{name}")
    def named(name: str) -> str:
        """A note."""
        return f"the note {name}"

    @server.resource("note://first", mime_type="text/plain")
    def first() -> str:
        """The first note."""
        return "buy milk"

    @server.prompt()
    def review(code: str) -> str:
        """Review code."""
        return f"Review this: {code}"

    return server


def main() -> None:
    def note(line: str) -> None:
        if len(sys.argv) > 1:
            with open(sys.argv[1], "a", encoding="utf-8") as notes:
                notes.write(f"{line}\n")

    note(f"pid {os.getpid()}")
    make_server(note).run("stdio")
    note("left")


if __name__ == "__main__":
    main()
