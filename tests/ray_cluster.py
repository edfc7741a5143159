"""A real cluster of Ray for tests, on this machine: its head, and as many raylets as there are to be."""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None and os.environ.get("LMOS_ACTORS_RAY") != "required",
    reason="ray is not installed here: pip install 'lmos-actors[ray]'",
)


@contextmanager
def cluster(raylets: int = 1) -> Generator[Any]:
    """Run a cluster for a block. Its `address` is for `RayPlace`.

    A single raylet has two processors; of several the first, to which a launcher is connected, has none, so
    that processes which want some run on the others, which may be killed.
    """
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {
        "num_cpus": 2 if raylets == 1 else 0,
        "object_store_memory": 80 << 20,
        "include_dashboard": False,
    }
    running: Any = Cluster(initialize_head=True, head_node_args=node)
    try:
        for _ in range(raylets - 1):
            running.add_node(num_cpus=8, object_store_memory=80 << 20)
        yield running
    finally:
        running.shutdown()
