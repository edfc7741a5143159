"""The work that every peer does, and how one measurement of it is made.

A driver is a module `with_NAME` of this folder. Each of its functions is one kind of work, named as in
`WORK`: it takes the number of units, does them, and returns the seconds that they took, without what it did
to get ready (`memory` returns bytes). A driver leaves out what its library does not offer.
"""

from __future__ import annotations

import os
import socket
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.ours import resident as resident

if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[[int], float]

ROOT = Path(__file__).resolve().parents[3]

MANY = 1_000
"""Actors of a fan and of a ring, and the least number of units of both."""

WORK = {
    "tell": "one-way messages to one actor, counted by it",
    "ask": "questions to one actor, one after another",
    "fan": f"answers of {MANY:,} actors that are asked together",
    "ring": f"hops of one message around {MANY:,} actors",
    "spawn": "actors started, the last one asked",
    "memory": "bytes per idle actor",
    "far_ask": "questions to an actor in another process, one after another",
    "far_tell": "one-way messages to an actor in another process, counted by it",
    "deliveries": "deliveries of the story of gossip on virtual time, 1,000 agents",
}
PEERS = (
    "lmos_actors",
    "aiomas",
    "erlang",
    "mango",
    "mesa",
    "osbrain",
    "pykka",
    "simpy",
    "thespian",
    "xoscar",
)
LONG_ENOUGH = 0.5  # seconds
IDLE_ACTORS = 2_000  # as a peer may have a thread for each


def program(peer: str, work: str) -> Program | None:
    """Return a peer's program for a kind of work, or None. Raise ImportError if it is not installed."""
    found: Program | None = getattr(import_module(f"{__package__}.with_{peer}"), work, None)
    return found


def measure(run: Program, work: str) -> tuple[float, float]:
    """Return the rate by time and the rate by processor time; for `memory`, bytes in place of the first.

    The work grows until it takes half a second. Processor time includes child processes that have ended;
    what a run with little work takes is subtracted, so that starting is not in it.
    """
    if work == "memory":
        return run(IDLE_ACTORS), 0.0
    few = MANY if work in ("fan", "ring") else 100
    run(few)  # warms up
    idle, n = _used(run, few)[1], 4 * few
    seconds, used = _used(run, n)
    while seconds < LONG_ENOUGH:
        n *= 4 if seconds < LONG_ENOUGH / 4 else 2
        seconds, used = _used(run, n)
    return n / seconds, (n - few) / max(used - idle, 1e-6)


def _used(run: Program, n: int) -> tuple[float, float]:
    before = sum(os.times()[:4])
    seconds = run(n)
    return seconds, sum(os.times()[:4]) - before


def free_port() -> int:
    """Return a port of this machine that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
