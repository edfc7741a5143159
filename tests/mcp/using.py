"""What the tests of MCP servers have in common."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import AgentError, open_node
from lmos_actors.mcp import McpServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmos_actors import Node, Ref

HERE = Path(__file__).parent
GOOD = [sys.executable, str(HERE / "well_behaved.py")]


def hostile(mode: str, *more: str) -> list[str]:
    """The command of a hostile server; -S -E: it needs nothing, and is there in 20 ms."""
    return [sys.executable, "-S", "-E", str(HERE / "hostile.py"), mode, *more]


@asynccontextmanager
async def server_of(command: list[str], **options: Any) -> AsyncIterator[tuple[Node, Ref[McpServer]]]:
    """A node with a server."""
    async with open_node() as node:
        yield node, await node.start(McpServer, command=command, **options)


async def asked(server: Ref[McpServer], name: str, /, **arguments: Any) -> Any:
    """Return what comes of a call: its result, or the failure."""
    try:
        return await server.invoke(McpServer.call, name, arguments)
    except AgentError as error:
        return error


async def text_of(server: Ref[McpServer], name: str, /, **arguments: Any) -> str:
    """Return the text of a result."""
    return "".join(each.text for each in (await asked(server, name, **arguments)).content)


class Notes:
    """What a program notes, line by line: a pipe with a name."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "notes")
        os.mkfifo(self.path)
        self._stream = trio.lowlevel.FdStream(os.open(self.path, os.O_RDWR | os.O_NONBLOCK))
        self._text = b""

    async def line(self) -> str:
        """Wait for the next line."""
        while b"\n" not in self._text:
            self._text += await self._stream.receive_some()
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()

    async def begun(self) -> int:
        """Wait until the program has begun; return its process id."""
        pid = int((await self.line()).removeprefix("pid "))
        self._process = os.pidfd_open(pid)
        return pid

    async def ended(self) -> None:
        """Wait until the program has ended that has begun last."""
        await trio.lowlevel.wait_readable(self._process)
        os.close(self._process)

    async def aclose(self) -> None:
        """Hear nothing more."""
        await self._stream.aclose()
