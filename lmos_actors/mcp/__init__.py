"""MCP servers as agents, their tools for models, and agents offered to MCP clients (`offer`).

The public names are imported from here, as in `from lmos_actors.mcp import McpServer`. The SDK is imported
when a server starts, and is in the extra `mcp`.
"""

from lmos_actors._late import late

with late(__name__):
    from ._failures import (
        ARGUMENTS_INVALID as ARGUMENTS_INVALID,
        NO_ANSWER as NO_ANSWER,
        NO_TOOL as NO_TOOL,
        NOT_APPROVED as NOT_APPROVED,
        REQUEST_REFUSED as REQUEST_REFUSED,
        RESULT_INVALID as RESULT_INVALID,
        RESULT_TOO_LARGE as RESULT_TOO_LARGE,
        TOOL_FAILED as TOOL_FAILED,
        McpServerLost as McpServerLost,
        mcp_failure as mcp_failure,
    )
    from ._marks import (
        prompt as prompt,
        resource as resource,
    )
    from ._oauth import McpOAuth as McpOAuth
    from ._options import McpOptions as McpOptions
    from ._server import McpServer as McpServer
    from ._serving import mcp_service as mcp_service, serve_mcp as serve_mcp
    from ._tools import (
        McpSource as McpSource,
        is_mcp_server as is_mcp_server,
        mcp as mcp,
        tools_of_server as tools_of_server,
    )
    from ._values import (
        McpArgument as McpArgument,
        McpContent as McpContent,
        McpInfo as McpInfo,
        McpMessage as McpMessage,
        McpProgress as McpProgress,
        McpPrompt as McpPrompt,
        McpResource as McpResource,
        McpResult as McpResult,
        McpTool as McpTool,
        tool_problem as tool_problem,
    )
