"""The failures of MCP servers: error answers to a request (`ActionFailed`, with a code), and lost servers."""

from __future__ import annotations

from typing import Any, Final

from lmos_actors.errors import ActionFailed

TOOL_FAILED: Final = "MCP_TOOL_FAILED"
"""The tool has answered that it failed; the message is the server's."""

NO_TOOL: Final = "MCP_NO_TOOL"
"""The server offers no tool of that name."""

ARGUMENTS_INVALID: Final = "MCP_ARGUMENTS_INVALID"
"""The arguments do not meet the schema of the tool; nothing was sent."""

RESULT_INVALID: Final = "MCP_RESULT_INVALID"
"""The tool was carried out, but its result breaks its schema or the protocol."""

RESULT_TOO_LARGE: Final = "MCP_RESULT_TOO_LARGE"
"""The server has answered, with more bytes than the server's agent accepts."""

REQUEST_REFUSED: Final = "MCP_REQUEST_REFUSED"
"""The server rejects the request; the message is the server's."""

NOT_APPROVED: Final = "MCP_NOT_APPROVED"
"""People were asked about the call, and it was not approved; nothing was sent."""

NO_ANSWER: Final = "MCP_NO_ANSWER"
"""The server did not answer in time; the request may have had its effect or not."""


UNREADABLE: Final = "the answer cannot be read: "
"""Begins the text of a failure for an answer that breaks the protocol."""


NOT_SENT: Final = "the request was not carried out: "
"""Begins the text of a failure for a request that the server had not begun."""

BROKEN: Final = "the connection broke off"
"""The text of a failure for an answer that did not come."""


class SessionLost(Exception):
    """Raised if a request's session is over; `begun` is whether the request may have been carried out."""

    def __init__(self, why: str, *, begun: bool) -> None:
        super().__init__(why)
        self.begun = begun


class NotSignedIn(Exception):
    """Raised if a person has not signed in; the text has the reason."""


class McpServerLost(Exception):
    """Raised if a server stays away, or breaks a rule; its agent ends with this error."""


def mcp_failure(code: str, message: str, **more: Any) -> ActionFailed:
    """Return the failure of a request to an MCP server, for the caller to raise."""
    return ActionFailed({"code": code, "message": message, **more})
