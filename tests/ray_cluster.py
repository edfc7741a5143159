"""A real cluster of Ray for tests, on this machine: its head, and as many raylets as there are to be."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None and os.environ.get("LMOS_ACTORS_RAY") != "required",
    reason="ray is not installed here: pip install 'lmos-actors[ray]'",
)
_numbers = count(2)


@contextmanager
def cluster(*processors: int) -> Generator[Any]:
    """Run a cluster for a block, one machine for each number of processors. Its `address` is for `RayPlace`.

    The first machine is the head, to which a launcher is connected. Where it has none, processes that want
    some run on the others, which may be killed. The head has the address of this machine, each of the others
    one of its own: 127.0.0.2, 127.0.0.3, ... These are its `machines`. `outside` is the address for what is
    not on one of them.
    """
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    from ray.cluster_utils import Cluster

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    head = {**_machine(processors[0]), "include_dashboard": False, "ray_client_server_port": port}
    running: Any = Cluster(initialize_head=True, head_node_args=head)
    running.machines = []
    try:
        for each in processors[1:]:
            add_machine(running, each)
        running.outside = f"ray://127.0.0.1:{port}"
        yield running
    finally:
        running.shutdown()


def add_machine(running: Any, processors: int) -> None:
    """Add a machine to a cluster that runs; in the main thread, as Ray takes a signal."""
    address = f"127.0.0.{next(_numbers)}"
    running.add_node(**_machine(processors), node_ip_address=address)
    running.machines.append(address)


def _machine(processors: int) -> dict[str, Any]:
    return {"num_cpus": processors, "object_store_memory": 80 << 20}
