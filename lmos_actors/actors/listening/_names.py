"""Names of topics and groups, which belong to one node."""

from __future__ import annotations


def name_on(node: str | None, name: str) -> str:
    """Return the real node's key for a name, which may belong to a node of a simulated network."""
    return name if node is None else f"{node}\n{name}"
