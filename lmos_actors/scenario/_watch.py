"""Waiting for something to become so in a run, without looking again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from lmos_actors.testing import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._instrument import Kind
    from lmos_actors.simulation import TraceLog


class Watch:
    """An instrument that passes every record on to the log, and lets those who wait look again."""

    def __init__(self, log: TraceLog) -> None:
        self._log = log
        self._looks: list[Callable[[], None]] = []
        self._changed: trio.Event | None = None

    def record(self, kind: Kind, agent: str, fields: dict[str, object]) -> None:
        """Take one record. What is so for this one step alone is seen too."""
        self._log.record(kind, agent, fields)
        for look in tuple(self._looks):
            look()
        self.notify()

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

        self._looks.append(look)
        try:
            await settle()
            look()
            while not seen and trio.current_time() < deadline:
                await self._change(deadline)
                look()
            return seen
        finally:
            self._looks.remove(look)

    async def _change(self, deadline: float) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        changed = self._changed
        with trio.move_on_at(deadline):
            await changed.wait()
        await settle()
