"""What sees every record of a run: the log, the judges, and those who wait for something to become so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from .._worlds import wait_until_idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Kind
    from lmos_actors.simulation import TraceLog

OFTEN: Final = 500
"""After how many records those who follow the run are told how far it is."""


class Watch:
    """An instrument that passes every record on to the log and the judges; who waits may look again."""

    def __init__(self, log: TraceLog) -> None:
        self._log = log.record
        self._takers: dict[str, list[Callable[[Kind, str, dict[str, Any]], None]]] = {}
        self._looks: tuple[Callable[[], object], ...] = ()
        self._changed: trio.Event | None = None
        self._ended = False
        self._count = 0
        self.counts: dict[str, int] = {}
        """How many records there were of each kind."""
        self.on_progress: Callable[[], None] | None = None
        """Called now and then, while much happens."""

    def record(self, kind: Kind, agent: str, fields: dict[str, object]) -> None:
        """Take one record. What is so for this one step alone is seen too."""
        if self._ended:
            return
        self._log(kind, agent, fields)
        for take in self._takers.get(kind, ()):
            take(kind, agent, fields)
        for look in self._looks:
            look()
        if self._changed is not None:
            self.notify()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._count += 1
        if not self._count % OFTEN and self.on_progress is not None:
            self.on_progress()

    def add(self, take: Callable[[Kind, str, dict[str, Any]], None], *kinds: str) -> None:
        """Have somebody told of every record of these kinds from now on."""
        for kind in kinds:
            self._takers.setdefault(kind, []).append(take)

    def on_record(self, look: Callable[[], object]) -> None:
        """Have somebody look at the world after every record from now on, until the end."""
        self._looks = (*self._looks, look)

    def recheck(self) -> None:
        """Something has changed that there is no record of."""
        for look in self._looks:
            look()
        self.notify()

    def end(self) -> None:
        """Take no more records: what follows belongs to the run no more."""
        self._ended = True

    def notify(self) -> None:
        """Something has changed."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def until(self, so: Callable[[], bool], deadline: float) -> bool:
        """Wait until it is so, or was so for a moment; at most until `deadline`. Says whether."""
        seen = False

        def look() -> None:
            nonlocal seen
            seen = seen or so()

        self._looks = (*self._looks, look)
        try:
            await wait_until_idle()
            look()
            while not seen and trio.current_time() < deadline:
                await self._change(deadline)
                look()
            return seen
        finally:
            self._looks = tuple([each for each in self._looks if each is not look])

    async def _change(self, deadline: float) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        changed = self._changed
        with trio.move_on_at(deadline):
            await changed.wait()
        await wait_until_idle()
