"""Agents of one node offered to MCP clients: the SDK is imported when that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.errors import ConfigError, nearest

from ._options import argument

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.abc import ReceiveStream, SendStream

    from lmos_actors.actors import Runtime
    from lmos_actors.bindings import Exposure, LmosServer
    from lmos_actors.mcp import McpOptions
    from lmos_actors.mcp.offer import McpEndpoint
    from lmos_actors.supervision import Supervisor


def endpoint_of_node(
    rt: Runtime,
    exposure: Exposure,
    server: LmosServer,
    options: McpOptions | bool,
    on_failure: Callable[[BaseException], object],
) -> McpEndpoint:
    """Return what offers the agents of a node over HTTP, to be run. Raises ConfigError."""
    from lmos_actors.mcp import McpOptions

    given = McpOptions() if isinstance(options, bool) else options
    if not isinstance(given, McpOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"must be True or McpOptions, not {given!r}", argument("mcp"))
    offering = _offering()
    offer = offering.McpOffer(rt, exposure, options=given, seats=server.context.seats, on_failure=on_failure)
    made: McpEndpoint = offering.McpEndpoint(offer, server)
    return made


async def serve_mcp(
    rt: Runtime,
    root: Supervisor,
    incoming: ReceiveStream,
    outgoing: SendStream,
    options: McpOptions | None,
    on_failure: Callable[[BaseException], object],
) -> None:
    """Offer the agents of a node over two streams; see `Node.serve_mcp`. Raises ConfigError."""
    from lmos_actors.actors import Seats
    from lmos_actors.bindings import Exposure
    from lmos_actors.mcp import McpOptions

    given = McpOptions() if options is None else options
    offering = _offering()
    exposure = Exposure(root)
    offer = offering.McpOffer(rt, exposure, options=given, seats=Seats(), on_failure=on_failure)
    if given.agent and offer.catalogue.agent(given.agent) is None:
        near = nearest(given.agent, [each.name for each in exposure])
        hint = f", did you mean {near!r}?" if near else ""
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
