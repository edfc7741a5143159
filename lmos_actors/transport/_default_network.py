"""The default network of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from lmos_actors._core import time_jumps

from ._memory import MemoryNetwork
from ._tcp import TcpNetwork

if TYPE_CHECKING:
    from ._network import Network

_in_memory: Final[trio.lowlevel.RunVar[MemoryNetwork | None]] = trio.lowlevel.RunVar(
    "lmos_actors.network", None
)


def default_network() -> Network:
    """Return the default network of this trio run: in memory on virtual time, else the operating system's."""
    if not time_jumps():
        return TcpNetwork()
    network = _in_memory.get()
    if network is None:
        network = MemoryNetwork()
        _in_memory.set(network)
    return network
