"""Parsing of a place in a node's tree, as a command line names it."""

from __future__ import annotations

from lmos_actors.bindings import name_in_url, path_named
from lmos_actors.errors import ConfigError


def path_in(url: str, path: str | None) -> str:
    """Return the path of an agent, given as a path or by a URL. Raises ConfigError."""
    name = name_in_url(url)
    if path is None and name is None:
        raise ConfigError(
            f"which agent? Give its URL, such as {url.rstrip('/')}/agents/weather, or its path in the tree; "
            "lmos-actors tree shows them",
            "PATH",
        )
    if path is not None and name is not None:
        raise ConfigError("the URL is that of an agent: give that, or the URL of the node and a path", "PATH")
    return path.strip("/") if path is not None else path_named(name or "")
