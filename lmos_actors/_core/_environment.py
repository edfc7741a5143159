"""What surrounds a node in its trio run: set by a simulated world, read when a node is opened."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
import trio

if TYPE_CHECKING:
    from ._entropy import Entropy
    from ._instrument import Instrument
    from ._timers import Timers


@attrs.frozen
class Ambient:
    """The sources of time, ids and chance of a world, and who records what happens in it.

    `timers` are None where time is real: then each node has its own. `describe` is called when the world
    turns out to be deadlocked: whoever knows what is waiting for what appends a function that says so, or ""
    if it has nothing to say.
    """

    entropy: Entropy
    timers: Timers | None
    instrument: Instrument | None = None
    describe: list[Callable[[], str]] = attrs.field(factory=list[Callable[[], str]])
    staging: Any = None
    """What tests put in the place of agents; see `Staging` of the runtime."""


_ambient: trio.lowlevel.RunVar[Ambient | None] = trio.lowlevel.RunVar("lmos_actors.ambient", None)


def current_ambient() -> Ambient | None:
    """Return what surrounds this trio run, or None in real time. Raises RuntimeError outside a trio run."""
    return _ambient.get()


def set_ambient(ambient: Ambient | None) -> None:
    """Set what surrounds this trio run, for all of its tasks. Raises RuntimeError outside a trio run."""
    _ambient.set(ambient)


def time_jumps() -> bool:
    """Return whether time in this trio run is virtual.

    Then nothing may be left to a thread, as time goes on.
    """
    ambient = current_ambient()
    if ambient is not None and ambient.timers is not None:
        return True
    return bool(getattr(trio.lowlevel.current_clock(), "autojump_threshold", inf) != inf)
