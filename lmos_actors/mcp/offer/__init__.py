"""Agents of a node, offered to MCP clients. Importing this imports the SDK, which is in the extra `mcp`."""

from lmos_actors._late import late

with late(__name__):
    from ._endpoint import McpEndpoint as McpEndpoint
    from ._lines import serve_lines as serve_lines
    from ._offer import McpOffer as McpOffer
