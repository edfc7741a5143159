"""Chance with a seed, by which a test can be repeated: numbers, and disks that may lose what is on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors._core import RandomStream
from lmos_actors.persistence import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable


def stream(seed: int) -> RandomStream:
    """Return the random numbers of a seed."""
    return RandomStream(seed)


def simulated_disk(
    seed: int = 1, seconds: Callable[[], float] = float, *, shared: bool = False
) -> SimulatedDisk:
    """Return a disk whose next commit takes `seconds()`; see `SimulatedDisk`."""
    return SimulatedDisk(stream(seed), seconds, shared=shared)
