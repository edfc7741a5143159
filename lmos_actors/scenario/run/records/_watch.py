"""The distribution of a run's records to its log, its judges and its waiting steps.

`Watch` is the instrument of the run's node. The condition of a waiting step is checked after every record, so
that even a state that lasts for a single turn is noticed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from ..._worlds import wait_until_idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Kind
    from lmos_actors.simulation import TraceLog

    Taker: TypeAlias = Callable[[Kind, str, dict[str, Any]], None]

OFTEN: Final = 500
"""Records between two reports of progress."""


class Watch:
    """An instrument that passes every record to the log and to observers, and wakes waiting steps."""

    def __init__(self, log: TraceLog) -> None:
        self._log: Taker = log.record
        self.on_instant: Callable[[float], None] | None = None
        """Called with the instant of a sample before the sample is taken."""
        self._takers: dict[str, list[tuple[Taker, frozenset[str] | None]]] = {}
        self._looks: tuple[Callable[[], object], ...] = ()
        self._changed: trio.Event | None = None
        self._ended = False
        self.muted = False
        """True while records are ignored: those of a killed node while it unwinds."""
        self.is_silent: Callable[[Kind, str, dict[str, object]], bool] | None = None
        """Returns whether to ignore a record, because a killed network node made it."""
        self._left = OFTEN
        self.counts: defaultdict[str, int] = defaultdict(int)
        """The number of records by kind."""
        self.on_progress: Callable[[], None] | None = None
        """Called after every `OFTEN` records."""

    def divert(self, log: Taker, on_instant: Callable[[float], None]) -> None:
        """Send further records through `log`, which passes them on to the log of the run.

        `on_instant` is called before each sample.
        """
        self._log = log
        self.on_instant = on_instant

    def record(self, kind: Kind, agent: str, fields: dict[str, object]) -> None:
        """Log one record, pass it to the observers, and check the conditions of waiting steps."""
        if self._ended or self.muted or (self.is_silent is not None and self.is_silent(kind, agent, fields)):
            return
        self._log(kind, agent, fields)
        takers = self._takers.get(kind)
        if takers is not None:
            for take, paths in takers:
                if paths is None or agent in paths:
                    take(kind, agent, fields)
        if self._looks:
            for look in self._looks:
                look()
        if self._changed is not None:
            self.notify()
        self.counts[kind] += 1
        self._left -= 1
        if not self._left:
            self._left = OFTEN
            if self.on_progress is not None:
                self.on_progress()

    def add(self, take: Taker, *kinds: str, paths: frozenset[str] | None = None) -> None:
        """Call `take` for every further record of some kinds; `paths` limits this to the agents there."""
        for kind in kinds:
            self._takers.setdefault(kind, []).append((take, paths))

    def on_record(self, look: Callable[[], object]) -> None:
        """Call `look` after every further record until the watch ends."""
        self._looks = (*self._looks, look)

    def recheck(self) -> None:
        """Check the conditions of waiting steps after a change without a record, such as a sample."""
        for look in self._looks:
            look()
        self.notify()

    def end(self) -> None:
        """Ignore all further records, because they are not part of the run."""
        self._ended = True

    def notify(self) -> None:
        """Wake the steps that wait for a change."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def until(self, so: Callable[[], bool], deadline: float) -> bool:
        """Wait until `so()` is true, even for a moment, or until `deadline`; return whether it was true."""
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
