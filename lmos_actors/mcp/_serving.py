"""Agents of one node offered to MCP clients: the SDK is imported only when this is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.actors import Seats
from lmos_actors.bindings import Exposure
from lmos_actors.errors import ConfigError, hint_at
from lmos_actors.node import argument

from ._options import McpOptions

if TYPE_CHECKING:
    from trio.abc import ReceiveStream, SendStream

    from lmos_actors.node import Node, NodeService


def mcp_service(options: McpOptions) -> NodeService:
    """Return a service that offers the agents of a node over HTTP. Raises ConfigError without the extra."""
    made: NodeService = _offering().McpEndpoint(options)
    return made


async def serve_mcp(
    node: Node, incoming: ReceiveStream, outgoing: SendStream, options: McpOptions | None = None
) -> None:
    """Offer the agents of a node to one MCP client, over two streams such as standard input and output.

    The client may do everything. Returns at the end of `incoming`, and cancels the client's requests; closes
    neither stream. Raises ConfigError without the extra `mcp`.
    """
    given = McpOptions() if options is None else options
    offering, rt, exposure = _offering(), node.root.rt, Exposure(node.root)
    failed = rt.wires.note_failure
    offer = offering.McpOffer(rt, exposure, options=given, seats=Seats(), on_failure=failed)
    if given.agent and offer.catalogue.agent(given.agent) is None:
        hint = hint_at(given.agent, [each.name for each in exposure])
        raise ConfigError(f"there is no agent {given.agent!r} to offer{hint}", "McpOptions.agent")
    await offering.serve_lines(offer, incoming, outgoing)


def _offering() -> Any:
    """Import the package that offers agents. Raises ConfigError without the extra."""
    try:
        from lmos_actors.mcp import offer
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "lmos_actors":
            raise
        raise ConfigError("needs the extra mcp: pip install 'lmos-actors[mcp]'", argument("mcp")) from None
    return offer
