"""The names of offered tools, and URIs of resources. Each names one thing, which has no other name.

Models accept names of up to 64 letters, digits, `_` and `-`. So the agent `desk.clerk` has a tool
`desk__clerk__find` for its action `find`. A name that would break these rules, or be ambiguous, is cut and
gets a digest behind three underscores, which no other name has.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

LONGEST: Final = 64
"""Maximum characters of a tool's name."""

PROPERTIES: Final = "properties"
EVENTS: Final = "events"
ACTIONS: Final = "actions"

LONGEST_URI: Final = 2_048
"""Maximum characters of a resource's URI."""

DIGEST_MARK: Final = "___"

OF_AGENTS: Final = "lmos://agents/"
"""The beginning of resource URIs below the name of their agent."""

_BETWEEN: Final = "__"
_DIGITS: Final = 10
_PLAIN_PART: Final = re.compile(r"[A-Za-z0-9-](?:_?[A-Za-z0-9-])*")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9-]+")
_URI: Final = re.compile(r"lmos://agents/([^/?#]+)/(properties|events)/([^/?#]+)")


def tool_name(agent: str, what: str) -> str:
    """Return the name of a tool or a prompt: the operation's name, after the public name of its agent.

    If only one agent is offered, `agent` is empty.
    """
    parts = (*agent.split("."), what) if agent else (what,)
    name = _BETWEEN.join(parts)
    if len(name) <= LONGEST and all(map(_PLAIN_PART.fullmatch, parts)):
        return name
    digest = sha256(f"{agent}\0{what}".encode()).hexdigest()[:_DIGITS]
    readable = _OTHERS.sub("_", name)[: LONGEST - len(DIGEST_MARK) - _DIGITS].strip("_")
    return f"{readable}{DIGEST_MARK}{digest}"


def parts_of(name: str) -> tuple[str, str] | None:
    """Return the agent's public name and the operation's name, for a tool name without a digest."""
    if len(name) > LONGEST or DIGEST_MARK in name:
        return None
    *agent, what = name.split(_BETWEEN)
    return (".".join(agent), what) if agent and tool_name(".".join(agent), what) == name else None


def resource_uri(agent: str, kind: str, name: str) -> str:
    """Return the URI of a property or of an event (`kind`) of an agent."""
    return f"{OF_AGENTS}{quote(agent, safe='')}/{kind}/{quote(name, safe='')}"


def resource_parts(uri: str) -> tuple[str, str, str] | None:
    """Return the agent, kind and name in a URI; None for a URI that `resource_uri` does not make."""
    found = _URI.fullmatch(uri) if len(uri) <= LONGEST_URI else None
    if found is None:
        return None
    agent, kind, name = unquote(found[1]), found[2], unquote(found[3])
    return (agent, kind, name) if resource_uri(agent, kind, name) == uri else None
