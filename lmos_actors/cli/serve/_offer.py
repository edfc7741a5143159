"""The process of `mcp`: agents that run for one MCP client, over standard input and output.

The client starts this process. Standard output is only for the protocol, and an agent or a program of an
agent that prints would break it. So before the first agent is imported, descriptor 1 is redirected to
standard error and descriptor 0 to nothing; the protocol uses duplicates of both. These are read and written
in threads. A descriptor made non-blocking would become so for the client, too, if it is a terminal; and files
do not support waiting.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.assembly import open_node
from lmos_actors.mcp import serve_mcp

from .._exit_codes import INTERRUPTED
from ._serve import exit_code_of, handling, planned_tree, start_later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.mcp import McpOptions
    from lmos_actors.node import Node
    from lmos_actors.supervision import SupervisorSpec

    from ..options._serving import ServeOptions
    from ._targets import Planned


def offer_targets(targets: Sequence[str], options: ServeOptions, offered: McpOptions) -> int:
    """Offer agents until standard input ends or a signal comes. Returns the exit code. Raises ConfigError."""
    protocol_in, protocol_out = os.dup(0), os.dup(1)  # only we have these from now on
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    planned = planned_tree(targets, options)
    if isinstance(planned, int):
        return planned
    tree, later = planned
    given = {**options.presented.options(insecure=False), **options.discovery.options()}
    given["store"] = options.store
    offering = _Offering(tree, later, protocol_in, protocol_out, given, offered)

    def run() -> int:
        trio.run(offering.run)
        return offering.signals

    return exit_code_of(run)


class _Offering:
    """One run of `mcp`, from the start of the agents until the client leaves or a signal arrives."""

    def __init__(
        self,
        tree: SupervisorSpec,
        later: Sequence[Planned],
        protocol_in: int,
        protocol_out: int,
        options: dict[str, Any],
        offered: McpOptions,
    ) -> None:
        self.signals = 0
        self._tree = tree
        self._later = later
        self._in, self._out = protocol_in, protocol_out
        self._options = options
        self._offered = offered
        self._scope = trio.CancelScope()
        self._node: Node | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    async def run(self) -> None:
        """Open the node, serve the client, close the node."""
        self._token = trio.lowlevel.current_trio_token()
        with handling(self._signalled):
            async with open_node(self._tree, **self._options) as self._node:
                with self._scope:
                    await start_later(self._later, self._node)
                    await serve_mcp(self._node, _Input(self._in), _Output(self._out), self._offered)

    def _signalled(self, number: int, _: object) -> None:
        self.signals += 1
        assert self._token is not None
        if self.signals == 1:
            self._token.run_sync_soon(partial(self._scope.cancel, signal.Signals(number).name))
        elif self.signals == 2:
            self._token.run_sync_soon(self._force_stop)
        else:  # an agent's turn does not end, so nothing else would happen
            os._exit(INTERRUPTED)

    def _force_stop(self) -> None:
        if self._node is not None:
            self._node.force_stop()


class _Input(trio.abc.ReceiveStream):
    """A descriptor that is read in threads. A thread that still waits is abandoned when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, or b"" at the end."""
        read = partial(os.read, self._descriptor, max_bytes or 65_536)
        try:
            return await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        except OSError:
            return b""

    async def aclose(self) -> None:
        """Leave the descriptor open, as a thread may still read from it."""


class _Output(trio.abc.SendStream):
    """A descriptor that is written in threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all bytes. Raises BrokenResourceError if they cannot be written."""
        rest = memoryview(bytes(data))
        while rest:
            try:
                write = partial(os.write, self._descriptor, rest)
                written = await trio.to_thread.run_sync(write, abandon_on_cancel=True)
            except OSError as error:
                raise trio.BrokenResourceError("nobody reads what is written") from error
            rest = rest[written:]

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once: this stream does not report when it is ready."""

    async def aclose(self) -> None:
        """Close the descriptor."""
        with suppress(OSError):
            os.close(self._descriptor)
