"""Agents held from outside, and agents whose turns take service time.

A held agent begins no turn and no run; what has begun goes on. An agent with a service time works on each
message for so long, one at a time, before the turn of that message runs: the effects of the turn, its answer
included, come at the end of that time. Meanwhile the message has given up its seat and has had no effect yet.
So a sender that withdraws it finds that nothing has happened, and so does one that hears that the agent died.

An agent that is neither has no `Pacing` and pays nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from trio.lowlevel import enable_ki_protection

from ._gates import BUSY, DRAINING, HELD, IDLE, PAUSED, QUIET, RUNNING, WORKED, WORKING
from ._mailbox import DONE, QUEUED, WORKED_ON, Envelope, FairQueue, InternalTurn, PeriodicTurn
from ._runtime import BATCH
from ._slot_stash import SlotStash
from ._slot_state import NO_MAIL, Pacing

if TYPE_CHECKING:
    from ._mailbox import RunLine


class SlotPacing(SlotStash):
    """A slot whose agent may be held, and may take time for its turns."""

    __slots__ = ()

    def ensure_pacing(self) -> Pacing:
        """Return the holds and the service time of the agent, made at the first call."""
        extra = self.ensure_extra()
        if extra.pace is None:
            extra.pace = Pacing()
        return extra.pace

    @property
    def held(self) -> bool:
        """Whether the agent is held."""
        extra = self.extra
        return extra is not None and extra.pace is not None and extra.pace.holds > 0

    # ---- from outside

    @enable_ki_protection
    def hold(self) -> None:
        """Begin no turn and no run from now on, until each `hold` has had its `release`."""
        self.leave_tally()
        self.ensure_pacing().holds += 1
        if self.gate in (IDLE, BUSY, QUIET):
            self._leave_ready_queue()
            self.gate = PAUSED

    @enable_ki_protection
    def release(self) -> None:
        """Undo one `hold`. Raises RuntimeError when there is none."""
        if not self.held:
            raise RuntimeError(f"{self.path} is not held")
        pace = self.ensure_pacing()
        pace.holds -= 1
        if pace.holds:
            return
        if self.state in (RUNNING, DRAINING):
            self._begin_pending_runs()
        if self.gate == PAUSED:
            if self.turns.slot is self:  # it was held in the turn that runs now
                self.gate = BUSY
            elif self.ensure_extra().out:
                self.gate = HELD
            else:
                self.resume()

    @enable_ki_protection
    def set_service_time(self, seconds: float) -> None:
        """Have the agent work so long on each message from the next on; 0: no time at all."""
        self.leave_tally()
        self.ensure_pacing().seconds = seconds
        if self.gate in (IDLE, BUSY, QUIET):
            self._leave_ready_queue()
            if self.turns.slot is not self:
                self.resume()

    def _leave_ready_queue(self) -> None:
        """Keep the dispatcher from taking the agent as it stands."""
        if self.turns.slot is self:
            self.turns.leave = True
        elif self.gate == BUSY:
            with suppress(ValueError):
                self.rt.ready.remove(cast("Any", self))

    def _begin_pending_runs(self) -> None:
        """Begin the runs that could have begun while the agent was held."""
        extra = self.ensure_extra()
        for op, line in tuple(extra.pending.items()):
            while line and extra.active.get(op, 0) < op.concurrency:
                if not self.begin_next(line):
                    break
        self.admit()

    # ---- taking turns

    def resume(self) -> None:
        """Go on taking turns."""
        extra = self.extra
        if extra is not None and extra.pace is not None:
            pace = extra.pace
            if pace.seconds and pace.timer is None and pace.item is None and not pace.holds:
                if self.queue and self._begin_work(pace):
                    return
            elif self._is_held_back(pace):
                return
        if self.queue:
            self.gate = BUSY
            self.rt.schedule(self)
        else:
            quiet = extra is not None and (extra.parked or extra.pace is not None)
            self.gate = QUIET if quiet else IDLE
            self.queue = NO_MAIL
            if self.state == DRAINING:
                self.on_idle()

    def _is_held_back(self, pace: Pacing) -> bool:
        """Return whether no turn is to be taken out of the queue now, nor work to be begun."""
        if pace.timer is not None:
            self.gate = WORKING
        elif pace.item is not None:
            self.gate = WORKED
            self.rt.schedule(self)
        elif pace.holds:
            self.gate = PAUSED
            self.on_idle()
        else:
            self.ensure_extra().pace = None  # it is as any other again
            return False
        return True

    def _begin_work(self, pace: Pacing) -> bool:
        """Take the message that waits longest and work on it; return whether there was one."""
        item = self._next_in_queue()
        if item is None:
            return False
        if not isinstance(item, InternalTurn):
            self.begun += 1
            if isinstance(item, Envelope):
                item.phase = WORKED_ON
                item.began()
        elif isinstance(item, PeriodicTurn):
            item = InternalTurn(*item.take())  # it waits no more: the next firing is not merged into it
        pace.item = item
        pace.timer = self.rt.timers.call_after(pace.seconds, self._work_done)
        self.gate = WORKING
        if self.ensure_extra().parked:
            self.admit()
        return True

    def _next_in_queue(self) -> Any:
        """Take the first item out of the queue that still means something, None if there is none."""
        queue = self.queue if len(self.queue) <= BATCH else self.long_queue()
        if type(queue) is FairQueue:
            queue.reorder_fairly()
        while queue:
            item = queue[0]
            del queue[0]
            if not (isinstance(item, Envelope) and item.phase == DONE):
                return item
            self.ensure_extra().withdrawn -= 1
        return None

    def _work_done(self) -> None:
        extra = self.ensure_extra()
        pace = extra.pace or self.ensure_pacing()
        pace.timer = None
        if self.gate == WORKING:
            if extra.out:
                self.gate = HELD
            elif pace.item is not None:  # as `resume` would find; here it is nearly always so
                self.gate = WORKED
                self.rt.schedule(self)
            else:
                self.resume()

    def take_finished_work(self) -> list[Any]:
        """Take the message that the agent has worked on, for its turn; none if it was withdrawn."""
        self.gate = BUSY
        pace = self.ensure_extra().pace
        item = None if pace is None else self._return_item(pace)
        return [] if item is None else [item]

    def abandon_work(self) -> None:
        """Withdraw the message on which the agent works; its timer finds none at the end."""
        self._return_item(self.ensure_pacing())

    def end_work(self) -> None:
        """Stop working, as the incarnation ends; the message goes back to the queue, to be answered."""
        extra = self.extra
        if extra is not None and extra.pace is not None:
            pace = extra.pace
            if pace.timer is not None:
                pace.timer.cancel()
                pace.timer = None
            item = self._return_item(pace)
            if item is not None:
                self.put_back([item])

    def _return_item(self, pace: Pacing) -> Any:
        item, pace.item = pace.item, None
        if item is not None and not isinstance(item, InternalTurn):
            self.begun -= 1
            if isinstance(item, Envelope):
                item.phase = QUEUED
                item.on_seat_regained()
        return item

    # ---- filled in by those below

    def begin_next(self, line: RunLine) -> bool:
        """Begin the first run in line that the behaviour allows."""
        raise NotImplementedError

    def on_idle(self) -> None:
        """End a stopping agent once nothing waits or runs any more."""
        raise NotImplementedError
