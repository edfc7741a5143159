"""The accounts of all agents of a node, added up.

A node may have very many agents of which few have done anything since somebody last asked. So those at rest
are in the sums already, and nobody looks at them; all others stand in a line (`loose`), each once, and are
looked at when somebody asks: those that have come to rest go into the sums. Asking costs what has happened
since it was last asked.

Counting must cost nothing where messages are sent and handled. An agent in the sums therefore has a gate of
its own, `TALLIED`, where it would have `IDLE`. That closes the short ways, and the long way takes it out of
the sums (`Cell.loosen`) before anything in its accounts changes. Then its gate is `IDLE`, and the next
message costs what it always did. Only `accepted` may have been raised before; nothing waits for an agent at
rest, so `begun` stands for it in the sums.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs

from ._gates import GONE, IDLE, RUNNING, TALLIED


@attrs.define
class Sums:
    """Sums over agents, over all incarnations of each."""

    agents: int = 0
    accepted: int = 0
    handled: int = 0
    cancelled: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    refused: int = 0
    restarts: int = 0

    def add(self, slot: Any, times: int) -> None:
        """Add what one agent has done, or, with -1 `times`, take it out."""
        self.agents += times
        inline = slot.inline
        self.accepted += times * (slot.begun + inline)
        self.handled += times * (slot.handled + inline)
        if slot.incarnation > 1:
            self.restarts += times * (slot.incarnation - 1)
        more = slot.more
        if more is not None:
            self.cancelled += times * more.cancelled
            self.dropped += times * more.dropped
            self.dead_lettered += times * more.dead_lettered
            self.refused += times * more.refused


class Tally:
    """The agents of one node: sums over those at rest by class, and all others in a line."""

    __slots__ = ("_gone", "at_rest", "loose", "supervisors")

    def __init__(self) -> None:
        self.at_rest: dict[type, Sums] = {}
        self.loose: deque[Any] = deque()
        self.supervisors: dict[Any, None] = {}
        """All supervisors of the tree."""
        self._gone = 0  # slots in the line

    def others(self) -> list[Any]:
        """Return the slots of all agents that are not in the sums."""
        return [slot for slot in self.loose if _is_in_tree(slot)]

    def settle(self, most: int) -> list[Any]:
        """Look at so many of the line; put those at rest into the sums, and return the slots of the others.

        Never blocks; takes about half a microsecond for each.
        """
        loose, at_rest = self.loose, self.at_rest
        others: list[Any] = []
        for _ in range(min(most, len(loose))):
            slot = loose.popleft()
            rests = slot.gate == IDLE and slot.accepted == slot.begun  # no call: they may be very many
            if rests and slot.status == "running" and (slot.more is None or _is_quiet(slot)):
                slot.gate = TALLIED
                cls = slot.agent.__class__
                sums = at_rest.get(cls)
                if sums is None:
                    sums = at_rest[cls] = Sums()
                if slot.more is not None or slot.incarnation > 1:
                    sums.add(slot, 1)
                else:
                    sums.agents += 1
                    sums.accepted += slot.begun + slot.inline
                    sums.handled += slot.handled + slot.inline
            elif slot.state == GONE:
                self._gone -= 1
            else:
                loose.append(slot)
                if _is_in_tree(slot):
                    others.append(slot)
        return others

    def loosen(self, slot: Any) -> None:
        """Take an agent out of the sums and let it stand in the line."""
        cls = slot.agent.__class__
        sums = self.at_rest[cls]
        sums.add(slot, -1)
        if not sums.agents:
            del self.at_rest[cls]
        self.loose.append(slot)

    def lost(self) -> None:
        """Take note that a slot of the line is gone for good.

        Such slots are taken out in numbers, or with the end of the line: at most half of it are gone.
        """
        self._gone += 1
        loose = self.loose
        while loose and loose[-1].state == GONE:  # those that came last are the first to go, as often as not
            loose.pop()
            self._gone -= 1
        if self._gone * 2 > len(loose):
            self.loose = deque(slot for slot in loose if slot.state != GONE)
            self._gone = 0


def _is_quiet(slot: Any) -> bool:
    """Return whether nothing goes on beside the mailbox: no run, nobody parked, nothing held back."""
    more = slot.more
    return slot.state == RUNNING and not (more.runs or more.parked or more.out or more.pace is not None)


def _is_in_tree(slot: Any) -> bool:
    """Return whether a slot has its place in the tree; what was forgotten may have to unwind first."""
    return slot.state != GONE and (slot.more is None or not slot.more.buried)
