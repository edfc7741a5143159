"""Detection of the protocol of a frame, for use when a server turns out to be of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

LMOS: Final = "LMOS"
RELAY: Final = "AgentRelay's protocol"
OMNIA: Final = "Omnia's chat protocol"
JSON_RPC: Final = "JSON-RPC, such as MCP"

_Members = dict[str, Any]

_SIGNS: Final[dict[str, Callable[[_Members], bool]]] = {
    LMOS: lambda frame: "messageType" in frame,
    JSON_RPC: lambda frame: "jsonrpc" in frame,
    RELAY: lambda frame: "from" in frame and "to" in frame,
    OMNIA: lambda frame: (
        frame.get("type") == "connected"
        or (frame.get("type") == "error" and isinstance(frame.get("error"), dict))
    ),
}


def spoken_in(frame: str | bytes) -> str | None:
    """Return the name of the protocol to which a frame belongs, or None if it is unknown."""
    try:
        found: Any = msgspec.json.decode(frame)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    members = cast("_Members", found)
    return next((name for name, shows in _SIGNS.items() if shows(members)), None)
