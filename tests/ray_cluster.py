"""A real cluster of Ray for tests, on this machine: its head, and as many raylets as there are to be."""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None and os.environ.get("LMOS_ACTORS_RAY") != "required",
    reason="ray is not installed here: pip install 'lmos-actors[ray]'",
)


@contextmanager
def cluster(raylets: int = 1) -> Iterator[Any]:
    """Run a cluster for a block; each raylet has two processors. Its `address` is for `RayPlace`."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
    running = Cluster(initialize_head=True, head_node_args=node)
    try:
        for _ in range(raylets - 1):
            running.add_node(num_cpus=2, object_store_memory=80 << 20)
        yield running
    finally:
        running.shutdown()
