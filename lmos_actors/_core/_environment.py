"""The environment of a trio run: set by a simulated world, read when a node is opened."""

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
class Environment:
    """The sources of time, ids and chance of a world, and the instrument that records it.

    `timers` is None in real time: then each node has its own. The functions in `describe` are called when the
    world turns out to be deadlocked: each returns a text that says who waits for whom, or "".
    """

    entropy: Entropy
    timers: Timers | None
    instrument: Instrument | None = None
    describe: list[Callable[[], str]] = attrs.field(factory=list[Callable[[], str]])
    staging: Any = None
    """Replacements of agents in tests; see `Staging` of the runtime."""


_environment: trio.lowlevel.RunVar[Environment | None] = trio.lowlevel.RunVar("lmos_actors.environment", None)


def current_environment() -> Environment | None:
    """Return the environment of this trio run, None in real time. Raises RuntimeError outside a trio run."""
    return _environment.get()


def set_environment(environment: Environment | None) -> None:
    """Set the environment of this trio run, for all its tasks. Raises RuntimeError outside a trio run."""
    _environment.set(environment)


def time_jumps() -> bool:
    """Return whether time in this trio run is virtual.

    If it is, no work may be given to a thread, as virtual time would pass while the thread runs.
    """
    environment = current_environment()
    if environment is not None and environment.timers is not None:
        return True
    return bool(getattr(trio.lowlevel.current_clock(), "autojump_threshold", inf) != inf)
