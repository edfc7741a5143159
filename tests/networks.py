"""The network of a test's own world, for peers in it that are no nodes: in memory where time is virtual."""

from __future__ import annotations

from lmos_actors.transport import default_network as default_network
