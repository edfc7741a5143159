"""This package: the programs of `python -m tests.benchmarks`, supervised, with checked values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks import ours, stories, wire
from tests.benchmarks.peers.programs import MANY

if TYPE_CHECKING:
    from collections.abc import Callable


def _seconds(rate_of: Callable[[int], float], n: int) -> float:
    return n / rate_of(n)


tell = partial(_seconds, partial(ours.on_node, ours.tell))
ask = partial(_seconds, partial(ours.on_node, ours.ask))
ring = partial(_seconds, partial(ours.on_node, ours.ring))
spawn = partial(_seconds, partial(ours.on_node, ours.start))
far_ask = partial(_seconds, wire.ask)
far_tell = partial(_seconds, wire.tell)
deliveries = partial(_seconds, partial(stories.unlogged, 1_000))


def fan(n: int) -> float:
    return n / ours.on_node(ours.fan, n // MANY)


def memory(n: int) -> float:
    return ours.on_node(ours.memory_started, n)
