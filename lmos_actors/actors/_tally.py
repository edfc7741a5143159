"""The counts of all agents of a node, added up.

A node may have very many agents of which few have done anything since the totals were last read. So agents at
rest are already counted in totals by class, and are not looked at; each other agent is once in a queue
(`untallied`). Reading the totals looks at that queue and counts those that have come to rest. So its cost
grows with what has happened since the last reading, not with the number of agents.

Counting must cost nothing where messages are sent and handled. An agent in the totals therefore has a special
gate, `TALLIED`, instead of `IDLE`. Any gate but `IDLE` closes the short paths, and the long path takes the
agent out of the totals (`Slot.leave_tally`) before any of its counts changes. Then its gate is `IDLE`, and
the next message costs no more than before. Only `accepted` may have been raised earlier; no message waits for
an agent at rest, so the totals use `begun` in its place.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs

from .messages._gates import GONE, IDLE, RUNNING, TALLIED


@attrs.define
class Totals:
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
        """Add the counts of one agent, or subtract them if `times` is -1."""
        self.agents += times
        inline = slot.inline
        self.accepted += times * (slot.begun + inline)
        self.handled += times * (slot.handled + inline)
        if slot.incarnation > 1:
            self.restarts += times * (slot.incarnation - 1)
        extra = slot.extra
        if extra is not None:
            self.cancelled += times * extra.cancelled
            self.dropped += times * extra.dropped
            self.dead_lettered += times * extra.dead_lettered
            self.refused += times * extra.refused


class Tally:
    """The agents of one node: sums by class over those at rest, and a line of all others."""

    __slots__ = ("_gone", "at_rest", "supervisors", "untallied")

    def __init__(self) -> None:
        self.at_rest: dict[type, Totals] = {}
        self.untallied: deque[Any] = deque()
        self.supervisors: dict[Any, None] = {}
        """All supervisors of the tree."""
        self._gone = 0  # slots in the line

    def others(self) -> list[Any]:
        """Return the slots of all agents that are not in the sums."""
        return [slot for slot in self.untallied if _is_in_tree(slot)]

    def settle(self, most: int) -> list[Any]:
        """Look at `most` slots of the line; add those at rest to the sums, and return the others.

        Never blocks; takes about half a microsecond for each slot.
        """
        untallied, at_rest = self.untallied, self.at_rest
        others: list[Any] = []
        for _ in range(min(most, len(untallied))):
            slot = untallied.popleft()
            rests = slot.gate == IDLE and slot.accepted == slot.begun  # no call: they may be very many
            if rests and slot.status == "running" and (slot.extra is None or _is_quiet(slot)):
                slot.gate = TALLIED
                cls = slot.agent.__class__
                sums = at_rest.get(cls)
                if sums is None:
                    sums = at_rest[cls] = Totals()
                if slot.extra is not None or slot.incarnation > 1:
                    sums.add(slot, 1)
                else:
                    sums.agents += 1
                    sums.accepted += slot.begun + slot.inline
                    sums.handled += slot.handled + slot.inline
            elif slot.state == GONE:
                self._gone -= 1
            else:
                untallied.append(slot)
                if _is_in_tree(slot):
                    others.append(slot)
        return others

    def remove(self, slot: Any) -> None:
        """Take an agent out of the sums, and put it into the line."""
        cls = slot.agent.__class__
        sums = self.at_rest[cls]
        sums.add(slot, -1)
        if not sums.agents:
            del self.at_rest[cls]
        self.untallied.append(slot)

    def note_removed(self) -> None:
        """Note that a slot of the line is gone for good.

        Such slots are taken out together, or from the end of the line: they are never more than half of it.
        """
        self._gone += 1
        untallied = self.untallied
        while (
            untallied and untallied[-1].state == GONE
        ):  # those that came last are the first to go, as often as not
            untallied.pop()
            self._gone -= 1
        if self._gone * 2 > len(untallied):
            self.untallied = deque(slot for slot in untallied if slot.state != GONE)
            self._gone = 0


def _is_quiet(slot: Any) -> bool:
    """Return whether a running agent has no run, no parked sender, no held message and no service time."""
    extra = slot.extra
    return slot.state == RUNNING and not (extra.runs or extra.parked or extra.out or extra.pace is not None)


def _is_in_tree(slot: Any) -> bool:
    """Return whether a slot is still part of the tree; one that is not may still be unwinding."""
    return slot.state != GONE and (slot.extra is None or not slot.extra.removed)
