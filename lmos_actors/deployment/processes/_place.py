"""The interface of places, which run processes and hide their machines, disks and addresses.

The embedded place is this machine (`_local_place.py`); another is a Ray cluster (`_ray_place.py`). A process
reports its state (where it listens, that it is ready, that it drains) in the lines that it prints. These
lines are the same at each place: a place passes them on without reading them. The duties of every place are
in `tests/deployment/processes/test_place.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ._plan import LaunchPlan


@attrs.frozen(kw_only=True)
class Order:
    """One process to run. `arguments` are the arguments of `lmos-actors`; `name` is for people.

    `processors` is the number of processors that the place must find for it; None means no demand.
    """

    name: str
    arguments: tuple[str, ...]
    processors: int | None = None
    environment: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """Further variables of its environment; some are secrets."""


class Process(Protocol):
    """A process that was started at a place."""

    @property
    def id(self) -> str:
        """The identifier of the process at its place, such as its number."""
        ...

    def output(self) -> AsyncGenerator[bytes]:
        """Return the standard output in pieces, as they arrive. Unread output blocks the process."""
        ...

    def errors(self) -> AsyncGenerator[bytes]:
        """Return the standard error in pieces, as `output` does."""
        ...

    async def wait(self) -> int | None:
        """Wait for the end; return the exit code, or the negative number of the signal that caused it.

        Return None if the end was noticed but the exit code is not known.
        """
        ...

    def stop(self) -> None:
        """Ask the process to end in order. Do nothing if it was asked before or has ended."""
        ...

    def kill(self) -> None:
        """End the process at once. Do nothing if it has ended."""
        ...

    def pause(self) -> None:
        """Suspend the process until `resume`, as a fault for tests. Do nothing if it has ended."""
        ...

    def resume(self) -> None:
        """Continue the process after `pause`. Do nothing if it is not paused or has ended."""
        ...


class Place(Protocol):
    """A place where processes run. They end in order after the end of the launcher, however that ended."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Allow processes to be started during a block. Raise ConfigError, AlreadyRunning.

        At the end of the block, running processes are left alone: they end in order, as the launcher has
        ended.
        """
        ...

    def check(self, plan: LaunchPlan) -> None:
        """Raise ConfigError if the place cannot do what a plan requires. Call this once the place is open."""
        ...

    async def left(self) -> Sequence[int | str]:
        """Return the identifiers of the processes of an earlier launcher that still run."""
        ...

    async def wait_left(self, seconds: float) -> None:
        """Wait until the processes of an earlier launcher have ended; kill them after `seconds`."""
        ...

    async def start(self, order: Order) -> Process:
        """Start a process in bounded time. Raise StartFailed, also if the place has no room for it."""
        ...
