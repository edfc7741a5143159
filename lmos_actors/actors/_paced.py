"""What keeps a turn from beginning: an agent held from outside, and one whose turns take time.

A held agent begins no turn and no run; what has begun goes on. An agent with a service time works on each
message for so long, one at a time, before the turn of that message runs: what comes of the turn, its answer
included, comes at the end of that time. Meanwhile the message has its seat no more, and no effect yet: who
withdraws it finds that nothing has happened, and so does who hears that the agent died.

An agent that is neither has no `Pace` and pays nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from trio.lowlevel import enable_ki_protection

from ._aside import Aside
from ._cell import NO_MAIL, Pace
from ._gates import BUSY, DRAINING, HELD, IDLE, PAUSED, QUIET, RUNNING, WORKED, WORKING
from ._mailbox import DONE, QUEUED, WORKED_ON, Contended, Envelope, Firing, Periodic
from ._runtime import BATCH

if TYPE_CHECKING:
    from ._mailbox import RunLine


class Paced(Aside):
    """A slot whose agent may be held, and may take time for its turns."""

    __slots__ = ()

    def pace(self) -> Pace:
        """Return what holds or slows the agent, made at the first call."""
        more = self.furnish()
        if more.pace is None:
            more.pace = Pace()
        return more.pace

    @property
    def held(self) -> bool:
        """Whether somebody holds the agent."""
        more = self.more
        return more is not None and more.pace is not None and more.pace.holds > 0

    # ---- from outside

    @enable_ki_protection
    def hold(self) -> None:
        """Begin no turn and no run from now on, until each `hold` has had its `release`."""
        self.loosen()
        self.pace().holds += 1
        if self.gate in (IDLE, BUSY, QUIET):
            self._out_of_line()
            self.gate = PAUSED

    @enable_ki_protection
    def release(self) -> None:
        """Undo one `hold`. Raises RuntimeError when there is none."""
        if not self.held:
            raise RuntimeError(f"{self.path} is not held")
        pace = self.pace()
        pace.holds -= 1
        if pace.holds:
            return
        if self.state in (RUNNING, DRAINING):
            self._begin_those_in_line()
        if self.gate == PAUSED:
            if self.turns.slot is self:  # it was held in the turn that runs now
                self.gate = BUSY
            elif self.furnish().out:
                self.gate = HELD
            else:
                self.resume()

    @enable_ki_protection
    def set_service_time(self, seconds: float) -> None:
        """Have the agent work so long on each message from the next on; 0: no time at all."""
        self.loosen()
        self.pace().seconds = seconds
        if self.gate in (IDLE, BUSY, QUIET):
            self._out_of_line()
            if self.turns.slot is not self:
                self.resume()

    def _out_of_line(self) -> None:
        """It is not to be taken by the dispatcher as it stands."""
        if self.turns.slot is self:
            self.turns.leave = True
        elif self.gate == BUSY:
            with suppress(ValueError):
                self.rt.ready.remove(cast("Any", self))

    def _begin_those_in_line(self) -> None:
        """Begin the runs that could have begun while the agent was held."""
        more = self.furnish()
        for op, line in tuple(more.pending.items()):
            while line and more.active.get(op, 0) < op.concurrency:
                if not self.begin_next(line):
                    break
        self.admit()

    # ---- taking turns

    def resume(self) -> None:
        """Go on taking turns."""
        more = self.more
        if more is not None and more.pace is not None:
            pace = more.pace
            if pace.seconds and pace.timer is None and pace.item is None and not pace.holds:
                if self.queue and self._begin_work(pace):
                    return
            elif self._kept_back(pace):
                return
        if self.queue:
            self.gate = BUSY
            self.rt.schedule(self)
        else:
            quiet = more is not None and (more.parked or more.pace is not None)
            self.gate = QUIET if quiet else IDLE
            self.queue = NO_MAIL
            if self.state == DRAINING:
                self.settled_down()

    def _kept_back(self, pace: Pace) -> bool:
        """Return whether no turn is to be taken out of the queue now, nor work to be begun."""
        if pace.timer is not None:
            self.gate = WORKING
        elif pace.item is not None:
            self.gate = WORKED
            self.rt.schedule(self)
        elif pace.holds:
            self.gate = PAUSED
            self.settled_down()
        else:
            self.furnish().pace = None  # it is as any other again
            return False
        return True

    def _begin_work(self, pace: Pace) -> bool:
        """Take the message that waits longest and work on it; return whether there was one."""
        item = self._next_in_queue()
        if item is None:
            return False
        if not isinstance(item, Firing):
            self.begun += 1
            if isinstance(item, Envelope):
                item.phase = WORKED_ON
                item.began()
        elif isinstance(item, Periodic):
            item = Firing(*item.take())  # it waits no more: the next firing is not merged into it
        pace.item = item
        pace.timer = self.rt.timers.call_after(pace.seconds, self._work_done)
        self.gate = WORKING
        if self.furnish().parked:
            self.admit()
        return True

    def _next_in_queue(self) -> Any:
        """Take the first item out of the queue that still means something, None if there is none."""
        queue = self.queue if len(self.queue) <= BATCH else self.long_queue()
        if type(queue) is Contended:
            queue.take_turns()
        while queue:
            item = queue[0]
            del queue[0]
            if not (isinstance(item, Envelope) and item.phase == DONE):
                return item
            self.furnish().withdrawn -= 1
        return None

    def _work_done(self) -> None:
        more = self.furnish()
        pace = more.pace or self.pace()
        pace.timer = None
        if self.gate == WORKING:
            if more.out:
                self.gate = HELD
            elif pace.item is not None:  # as `resume` would find; here it is nearly always so
                self.gate = WORKED
                self.rt.schedule(self)
            else:
                self.resume()

    def take_worked(self) -> list[Any]:
        """Take the message that the agent has worked on, for its turn; none if it was withdrawn."""
        self.gate = BUSY
        pace = self.furnish().pace
        item = None if pace is None else self._give_back(pace)
        return [] if item is None else [item]

    def give_up_work(self) -> None:
        """The message is withdrawn on which the agent works; it notices that at the end."""
        self._give_back(self.pace())

    def end_work(self) -> None:
        """The incarnation ends: what it works on waits with the others for what becomes of them."""
        more = self.more
        if more is not None and more.pace is not None:
            pace = more.pace
            if pace.timer is not None:
                pace.timer.cancel()
                pace.timer = None
            item = self._give_back(pace)
            if item is not None:
                self.put_back([item])

    def _give_back(self, pace: Pace) -> Any:
        item, pace.item = pace.item, None
        if item is not None and not isinstance(item, Firing):
            self.begun -= 1
            if isinstance(item, Envelope):
                item.phase = QUEUED
                item.sits_again()
        return item

    # ---- filled in by those below

    def begin_next(self, line: RunLine) -> bool:
        """Begin the first run in line that the behaviour allows."""
        raise NotImplementedError

    def settled_down(self) -> None:
        """Nothing waits any more: a stopping agent may end."""
        raise NotImplementedError
