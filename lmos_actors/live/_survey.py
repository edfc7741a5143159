"""Sums over the tree: for each supervisor, over all agents below it.

There may be very many agents, and the sums are for people to read. So while somebody looks, one task walks
through the tree repeatedly, `STEP` agents at a time, and rests long enough after each step to use only a
small part of one processor. All viewers share the task. A sum mixes several instants, and may be as old as
one pass.
"""

from __future__ import annotations

from heapq import nlargest
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import attrs
import trio

from lmos_actors.supervision import Supervisor, children_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lmos_actors.actors import Slot


class StartSoon(Protocol):
    """A function that starts a task of the node."""

    def __call__(self, fn: Callable[[], Awaitable[None]], /, *, name: str) -> None: ...


STEP: Final = 1_000
"""Agents between two rests."""

FIRST: Final = 0.02
"""The share of one processor that the first pass takes, as somebody waits for it."""

SHARE: Final = 0.005
"""The share that later passes take."""

PAUSE: Final = 0.5
"""Seconds between two passes, at least."""

MOST_TOP: Final = 50
"""Agents of each kind of `Top` that are named."""

Order: TypeAlias = Literal["waiting", "handled", "restarts"]


@attrs.define
class Sums:
    """Sums over all agents below a supervisor; `down` counts agents that do not run."""

    agents: int = 0
    waiting: int = 0
    handled: int = 0
    restarts: int = 0
    down: int = 0

    def add(self, slot: Slot) -> None:
        """Add one agent."""
        self.agents += 1
        depth = slot.accepted - slot.begun
        if depth > 0:
            self.waiting += depth
        self.handled += slot.handled + slot.inline
        if slot.incarnation > 1:
            self.restarts += slot.incarnation - 1
        if slot.status != "running":
            self.down += 1

    def add_sums(self, sums: Sums) -> None:
        """Add the sums of a supervisor below."""
        self.agents += sums.agents
        self.waiting += sums.waiting
        self.handled += sums.handled
        self.restarts += sums.restarts
        self.down += sums.down


@attrs.define
class _Open:
    """A supervisor whose children are being walked through."""

    path: str
    children: Iterator[Any]
    sums: Sums = attrs.field(factory=Sums)


class Survey:
    """The sums of one tree. A task started by `start_soon` keeps them up to date while anybody looks."""

    def __init__(self, root: Supervisor, start_soon: StartSoon) -> None:
        self._root = root
        self._start_soon = start_soon
        self._sums: dict[str, Sums] = {}
        self._lookers = 0
        self._runs = False
        self.passes = 0
        """How often the whole tree has been gone through."""
        self._handled: dict[int, int] = {}
        self._at = 0.0
        self.top: dict[Order, list[tuple[float, Slot]]] = {}
        """The agents with the most of each at the last pass; `handled` is a rate, per second."""

    def sums_of(self, path: str) -> Sums | None:
        """Return the sums below the supervisor at a path, None if they are not known yet."""
        return self._sums.get(path)

    def begin(self) -> None:
        """Note that one more viewer looks."""
        self._lookers += 1
        if not self._runs:
            self._runs = True
            self._start_soon(self._run, name="survey of the live view")

    def end(self) -> None:
        """Note that one viewer no longer looks; after the last one all sums are dropped."""
        self._lookers -= 1
        if not self._lookers:
            self._sums, self._handled, self.top = {}, {}, {}
            self._at, self.passes = 0.0, 0

    async def _run(self) -> None:
        try:
            while self._lookers:
                await self._pass()
                await trio.sleep(PAUSE)
        finally:
            self._runs = False

    async def _pass(self) -> None:
        sums: dict[str, Sums] = {}
        began, share = thread_time(), SHARE if self.passes else FIRST
        tops = _Tops(self._handled, trio.current_time() - self._at if self._at else 0.0)
        self._at = trio.current_time()
        for count, done in enumerate(self._walk(sums, tops), start=1):
            if done is not None:  # as soon as it is known: the first pass may take seconds
                self._sums[done] = sums[done]
            if count % STEP == 0:
                tops.settle()
                await trio.sleep((thread_time() - began) * (1 / share - 1))
                if not self._lookers:
                    return
                began = thread_time()
        self._sums, self.passes = sums, self.passes + 1
        self._handled, self.top = tops.handled, tops.found()

    def _walk(self, sums: dict[str, Sums], tops: _Tops) -> Iterator[str | None]:
        """Walk the tree. Yield None for each agent, and a supervisor's path once its sums are complete."""
        line = [_Open(self._root.path, iter(self._root.children))]
        while line:
            last = line[-1]
            child = next(last.children, None)
            if child is None:
                line.pop()
                sums[last.path] = last.sums
                if line:
                    line[-1].sums.add_sums(last.sums)
                yield last.path
                continue
            below = child
            if not isinstance(child, Supervisor):
                last.sums.add(child)
                tops.add(child)
                yield None
                below = children_of(child)
            if below is not None:
                line.append(_Open(below.path, iter(below.children)))


class _Tops:
    """The agents with the highest value of each kind, collected while a tree is walked through."""

    def __init__(self, before: dict[int, int], seconds: float) -> None:
        self.handled: dict[int, int] = {}
        self._before = before
        self._seconds = seconds
        self._slots: dict[Order, list[tuple[float, int, Slot]]] = {
            "waiting": [],
            "handled": [],
            "restarts": [],
        }

    def add(self, slot: Slot) -> None:
        handled = slot.handled + slot.inline
        number = slot.number
        if handled:
            self.handled[number] = handled
            before = self._before.get(number)
            if self._seconds > 0 and before is not None and handled > before:
                self._slots["handled"].append(((handled - before) / self._seconds, -number, slot))
        depth = slot.accepted - slot.begun
        if depth > 0:
            self._slots["waiting"].append((depth, -number, slot))
        if slot.incarnation > 1:
            self._slots["restarts"].append((slot.incarnation - 1, -number, slot))

    def settle(self) -> None:
        """Drop all agents except those with the highest values."""
        for order, found in self._slots.items():
            if len(found) > 2 * MOST_TOP:
                self._slots[order] = nlargest(MOST_TOP, found)

    def found(self) -> dict[Order, list[tuple[float, Slot]]]:
        return {
            order: [(most, slot) for most, _, slot in nlargest(MOST_TOP, found)]
            for order, found in self._slots.items()
        }
