"""Placement: where processes run. Nothing above this file knows of machines, disks or addresses.

The embedded place is this machine (`_local_place.py`); another is a cluster of Ray (`_ray_place.py`). What a
process says of itself (where it listens, that it is ready, that it drains) is in the lines that it prints,
the same at each place: a place passes them on, and understands none of them. What every place has to do is
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
    """One process to run: `arguments` are those of the command `lmos-actors`, `name` is for people.

    `processors` are those that the place has to find for it, None for what is there.
    """

    name: str
    arguments: tuple[str, ...]
    processors: int | None = None
    environment: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """Further variables of its environment, some of which are secrets."""


class Process(Protocol):
    """A process that was started at a place."""

    @property
    def id(self) -> str:
        """Its identifier at its place: the number of the process."""
        ...

    def output(self) -> AsyncGenerator[bytes]:
        """Return its standard output, in pieces as they come. What is not read holds the process back."""
        ...

    def errors(self) -> AsyncGenerator[bytes]:
        """Return its standard error, in the same way."""
        ...

    async def wait(self) -> int | None:
        """Wait for its end; return its exit code, or the negative number of the signal that ended it.

        None where its end was noticed, and its exit code is not known.
        """
        ...

    def stop(self) -> None:
        """Ask it to end in order. Does nothing once it was asked, or has ended."""
        ...

    def kill(self) -> None:
        """End it at once. Does nothing once it has ended."""
        ...

    def pause(self) -> None:
        """Have it do nothing at all, until `resume`: a fault, for tests. Does nothing once it has ended."""
        ...

    def resume(self) -> None:
        """Let it go on after `pause`. Does nothing if it goes on already, or has ended."""
        ...


class Place(Protocol):
    """Where processes run. What it has started ends in order once the launcher is gone, however that came."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Be able to start processes for a block. Raise ConfigError, AlreadyRunning.

        At its end those that still run are left alone: they end in order, as the launcher has gone.
        """
        ...

    def check(self, plan: LaunchPlan) -> None:
        """Raise ConfigError for what a plan asks for and the place cannot do; once it is open."""
        ...

    async def left(self) -> Sequence[int | str]:
        """Return what identifies the processes of an earlier launcher that still run."""
        ...

    async def wait_left(self, seconds: float) -> None:
        """Wait until these have ended; kill those that have not after some seconds."""
        ...

    async def start(self, order: Order) -> Process:
        """Start a process; bounded. Raise StartFailed, also where the place has no room for it."""
        ...
