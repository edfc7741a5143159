"""The holds and the service time of one slot, over all its incarnations.

A held agent begins no turn and no run, but those that have begun continue. An agent with a service time works
on each message for that time, one at a time, before the turn of that message runs. The effects of the turn,
including its answer, come at the end of that time. Until then the message has given up its seat and has had
no effect. So for a sender that withdraws the message, or learns that the agent died, nothing has happened.

An agent that is neither held nor slowed has no `Pacing` and no extra cost. The operations that hold an agent
are in `_hold.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .._runtime import BATCH, BUDGET
from ..messages._gates import BUSY, HELD, PAUSED, WORKED, WORKING
from ..messages._mailbox import (
    DONE,
    QUEUED,
    WORKED_ON,
    Envelope,
    FairQueue,
    InternalTurn,
    PeriodicTurn,
    PromptTurns,
    Tell,
)

if TYPE_CHECKING:
    from collections import deque

    from lmos_actors._core import Timer

    from .._runtime import Runtime, Turns


class PacedSlot(Protocol):
    """The slot of an agent that is held or has a service time; see `Slot`, in a layer above this file."""

    rt: Runtime
    extra: Any
    begun: int
    gate: int
    queue: list[Any] | deque[Any]
    turns: Turns

    def ensure_extra(self) -> Any: ...
    def long_queue(self) -> deque[Any]: ...
    def put_back(self, items: list[Any]) -> None: ...
    def admit(self) -> None: ...
    def on_idle(self) -> None: ...
    def resume(self) -> None: ...


class Pacing:
    """The holds of an agent, its service time in seconds, and the message that is being worked on."""

    __slots__ = ("_slot", "holds", "item", "seconds", "timer")

    def __init__(self, slot: PacedSlot) -> None:
        self._slot = slot
        self.holds = 0
        self.seconds = 0.0  # of service for each message
        self.item: Any = None  # out of the queue: it is worked on, or its turn is due
        self.timer: Timer | None = None  # fires when the work is done

    def holds_back(self) -> bool:
        """Return whether the agent must not take a turn or begin work now, and set its gate accordingly."""
        slot = self._slot
        if self.timer is not None:
            slot.gate = WORKING
        elif self.item is not None:
            slot.gate = WORKED
            slot.rt.schedule(slot)
        elif self.holds:
            slot.gate = PAUSED
            slot.on_idle()
        else:
            slot.ensure_extra().pace = None  # the agent is as any other again
            return False
        return True

    def take(self, item: Any) -> None:
        """Begin work on an accepted message or queue it if work cannot begin now; the queue must be empty."""
        slot = self._slot
        if not self.seconds or self.timer is not None or self.item is not None or self.holds:
            slot.queue = [item]
            slot.resume()
        elif type(item) is Tell:  # as `_work_on`, written out: in a simulation most messages come this way
            slot.begun += 1
            item.phase = WORKED_ON
            self.item = item
            self.timer = slot.rt.timers.call_after(self.seconds, self._work_done)
            slot.gate = WORKING
            if slot.extra.parked:
                slot.admit()
        else:
            self._work_on(item)

    def take_turn(self, turn: InternalTurn) -> None:
        """Begin work on the turn of a timer that fires once, or queue it, as `take` does for a message."""
        slot = self._slot
        if not self.seconds or self.timer is not None or self.item is not None or self.holds:
            slot.queue = [turn]
            slot.resume()
        else:
            self.item = turn
            self.timer = slot.rt.timers.call_after(self.seconds, self._work_done)
            slot.gate = WORKING
            if slot.extra.parked:
                slot.admit()

    def begin_work(self) -> bool:
        """Take the message that has waited longest and work on it; return whether there was one."""
        item = self._next_in_queue()
        if item is not None:
            self._work_on(item)
        return item is not None

    def _work_on(self, item: Any) -> None:
        slot = self._slot
        if not isinstance(item, InternalTurn):
            slot.begun += 1
            if isinstance(item, Envelope):
                item.phase = WORKED_ON
                item.began()
        elif isinstance(item, PeriodicTurn):
            item = item.taken_up()  # it waits no more: the next firing is not merged into it
        self.item = item
        self.timer = slot.rt.timers.call_after(self.seconds, self._work_done)
        slot.gate = WORKING
        if slot.extra.parked:
            slot.admit()

    def _next_in_queue(self) -> Any:
        """Remove and return the first queued item that still has to be handled; None if there is none."""
        slot = self._slot
        queue = slot.queue if len(slot.queue) <= BATCH else slot.long_queue()
        if type(queue) is FairQueue:
            queue.reorder_fairly()
        while queue:
            item = queue[0]
            del queue[0]
            if isinstance(item, PromptTurns):
                item = item.first()
                if item is not None:
                    return item
            elif not (isinstance(item, Envelope) and item.phase == DONE):
                return item
            else:
                slot.ensure_extra().withdrawn -= 1
        return None

    def _work_done(self) -> None:
        slot = self._slot
        self.timer = None
        if slot.gate == WORKING:
            if slot.extra.out:
                slot.gate = HELD
            elif self.item is not None:  # as `resume` would find; here it is nearly always so
                slot.gate = WORKED
                rt = slot.rt
                run_worked = rt.run_worked
                if run_worked is None:
                    rt.schedule(slot)
                else:  # the dispatcher, which has no other turn, would take it next with a budget begun anew
                    slot.turns.budget = BUDGET
                    run_worked(rt, slot, self)
            else:
                slot.resume()

    def take_finished_work(self) -> list[Any]:
        """Remove the message whose work is finished, and return it as a batch; [] if it was withdrawn."""
        self._slot.gate = BUSY
        item = self.return_item()
        return [] if item is None else [item]

    def end_work(self) -> None:
        """Stop the work because the incarnation ends; put the message back into the queue, to be answered."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        item = self.return_item()
        if item is not None:
            self._slot.put_back([item])

    def return_item(self) -> Any:
        """Remove and return the message in work, and give it a seat again; return None if there is none.

        The timer of the work keeps running, but finds no message when it fires.
        """
        item, self.item = self.item, None
        if item is not None and not isinstance(item, InternalTurn):
            self._slot.begun -= 1
            if isinstance(item, Envelope):
                item.phase = QUEUED
                item.on_seat_regained()
        return item
