"""The spans of MCP requests, by OpenTelemetry's conventions, and the traces sent in `_meta`.

The SDK writes OpenTelemetry's current span into each request, whatever it is given. So the span of a request
is made the current one while it is sent.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import attach, detach
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lmos_actors.actors import calling

if TYPE_CHECKING:
    from collections.abc import Generator

WAY: Final = "mcp"
"""The binding's name in metrics and traces."""

_TARGETS: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_W3C: Final = TraceContextTextMapPropagator()


def request_attributes(method: str, version: str | None, target: str | None) -> dict[str, Any]:
    """Return a span's attributes for a request of the protocol; `target` names a tool or a prompt."""
    found = {"mcp.method.name": method, "mcp.protocol.version": version or "", "lmos.way": WAY}
    if target and method in _TARGETS:
        found[_TARGETS[method]] = target
    if method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    return found


@contextmanager
def request_going_out(method: str, version: str | None, target: str = "") -> Generator[Any]:
    """Watch a request until the block ends; yield the members of `_meta` that carry its trace."""
    attributes = request_attributes(method, version, target)
    with calling(("mcp", method, "call", WAY), f"{method} {target}".rstrip(), attributes) as trace:
        if not trace:
            yield {}
            return
        token = attach(_W3C.extract(trace))
        try:
            yield trace
        finally:
            detach(token)
