"""The spans of turns, by OpenTelemetry's conventions for agents, and the agents that addresses name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from lmos_actors.actors import calling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.actors import Going

AGENTS: Final = "/api/agents/"

WAY: Final = "omnia"
"""The binding's name in metrics and traces."""


def agent_named(path: str, query: Mapping[str, list[str]]) -> str | None:
    """Return the name of the agent in an address of the facade, None if it names none."""
    named = query.get("agent")
    if named:
        return named[0]
    if not path.startswith(AGENTS):
        return None
    parts = (
        path.removeprefix(AGENTS).removesuffix("/ws").split("/")
    )  # NAME, or NAMESPACE/NAME as Omnia's pages
    return parts[-1] if len(parts) <= 2 and all(parts) else None


def turn_attributes(agent: str | None, session: str | None) -> dict[str, str]:
    """Return a span's attributes for a turn; unknown ones are left out."""
    known = {"gen_ai.agent.name": agent, "gen_ai.conversation.id": session}
    return {
        "gen_ai.operation.name": "invoke_agent",
        **{name: value for name, value in known.items() if value},
    }


def agent_at(url: str) -> str | None:
    """Return the name of the agent in the URL of a facade, None if it names none."""
    parts = urlsplit(url)
    return agent_named(unquote(parts.path), parse_qs(parts.query))


def turn_going_out(agent: str | None, session: str | None) -> Going:
    """Return a context manager that records a turn of an agent elsewhere as a span."""
    attributes = {**turn_attributes(agent, session), "lmos.way": WAY}
    return calling(("chat", "turn", "invoke", WAY), f"invoke_agent {agent or ''}".rstrip(), attributes)
