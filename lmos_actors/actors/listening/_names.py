"""Names of topics and groups, which end at the node."""

from __future__ import annotations


def name_on(node: str | None, name: str) -> str:
    """Return by what a real node knows a name that is of a node of a simulated network, if there is one."""
    return name if node is None else f"{node}\n{name}"
