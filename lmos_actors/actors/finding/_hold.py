"""Holding and slowing agents, and skewing their clocks, from outside; for scenarios and simulations.

`_pacing.py` and `_skewed_clock.py` do the work. Each of these effects belongs to the agent's place in the
tree: it outlasts restarts, until it is undone.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
from trio.lowlevel import enable_ki_protection

from lmos_actors.errors import ConfigError

from ..messages._gates import BUSY, DRAINING, HELD, IDLE, PAUSED, QUIET, RUNNING
from ..slot._skewed_clock import SkewedClock
from ._registry import slot_of

if TYPE_CHECKING:
    from ..refs._ref import Ref
    from ..slot._slot import Slot


@enable_ki_protection
def hold(ref: Ref[Any]) -> None:
    """Hold an agent: no further turn or run begins, while those that have begun go on.

    Messages wait by the mailbox's policy, and timers wait too. Stops, crashes, queries, cancels and deadlines
    work as always; a stop lets messages wait until its time is up, then answers them. Holds are counted, and
    each needs its own `release`. A restarted agent is still held. Never blocks. Raises NotFound; NotAllowed
    for a pool.
    """
    slot = slot_of(ref)
    slot.leave_tally()
    slot.ensure_pacing().holds += 1
    if slot.gate in (IDLE, BUSY, QUIET):
        _leave_ready_queue(slot)
        slot.gate = PAUSED


@enable_ki_protection
def release(ref: Ref[Any]) -> None:
    """Undo one `hold`. Never blocks. Raises RuntimeError if the agent is not held; NotFound, NotAllowed."""
    slot = slot_of(ref)
    if not slot.held:
        raise RuntimeError(f"{slot.path} is not held")
    pace = slot.ensure_pacing()
    pace.holds -= 1
    if pace.holds:
        return
    if slot.state in (RUNNING, DRAINING):
        extra = slot.ensure_extra()
        for op, line in tuple(extra.pending.items()):  # the runs that could have begun meanwhile
            while line and extra.active.get(op, 0) < op.concurrency:
                if not slot.begin_next(line):
                    break
        slot.admit()
    if slot.gate == PAUSED:
        if slot.turns.slot is slot:  # it was held in the turn that runs now
            slot.gate = BUSY
        elif slot.ensure_extra().out:
            slot.gate = HELD
        else:
            slot.resume()


@enable_ki_protection
def set_service_time(ref: Ref[Any], seconds: float) -> None:
    """Let an agent work `seconds` on each message before its turn runs or its run begins; 0 for no time.

    The agent works on one message at a time, and an answer comes at the end of that time. A run goes on
    beside the work on the next message, unless its class is `serial`. The message being worked on keeps its
    old time. Never blocks. Raises ConfigError for a number below 0 or not finite, NotFound, NotAllowed.
    """
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"must be a finite number of seconds of at least 0, not {seconds!r}", "seconds")
    slot = slot_of(ref)
    slot.leave_tally()
    slot.ensure_pacing().seconds = float(seconds)
    if slot.gate in (IDLE, BUSY, QUIET):
        _leave_ready_queue(slot)
        if slot.turns.slot is not slot:
            slot.resume()


def service_time(ref: Ref[Any]) -> float:
    """Return the seconds that an agent spends on each message. Raises NotFound, NotAllowed."""
    extra = slot_of(ref).extra
    return extra.pace.seconds if extra is not None and extra.pace is not None else 0.0


def skew_clock(ref: Ref[Any], skew: float = 0.0, rate: float = 1.0) -> object:
    """Set an agent's clock ahead by `skew` seconds, and make it run `rate` times as fast from now on.

    This affects the date of `Agent.now`, and timers that begin from then on. Several skews add up, and rates
    are multiplied. Returns the value for `end_skew`. Raises ConfigError for a skew that is not finite, or a
    rate that is not above 0; NotFound, NotAllowed.
    """
    if not math.isfinite(skew):
        raise ConfigError(f"must be a finite number of seconds, not {skew!r}", "skew")
    if not 0 < rate < math.inf:
        raise ConfigError(f"must be a finite number above 0, not {rate!r}", "rate")
    extra = slot_of(ref).ensure_extra()
    if extra.clock is None:
        extra.clock = SkewedClock()
    return extra.clock.add(skew, rate)


def end_skew(ref: Ref[Any], mark: object) -> None:
    """Undo one `skew_clock`, which corrects the date at once. Raises NotFound, NotAllowed."""
    extra = slot_of(ref).ensure_extra()
    if extra.clock is not None and extra.clock.remove(mark):
        extra.clock = None


def keep_state(ref: Ref[Any]) -> None:
    """Make an agent's next incarnation start with the present fields and the present behaviour.

    The objects in the fields are not copied. Raises AgentUnavailable if there is no incarnation; NotFound,
    NotAllowed.
    """
    slot = slot_of(ref)
    agent = slot.agent
    if agent is None:
        raise slot.closed_error()
    fields = [field.name for field in attrs.fields(agent.__class__)]
    names = ("_behaviour", *fields, *(p.hidden for p in agent.__contract__.properties.values()))
    slot.ensure_extra().kept = {name: agent.__dict__[name] for name in names if name in agent.__dict__}


def _leave_ready_queue(slot: Slot) -> None:
    """Take the agent out of the ready queue, or end its current batch after this turn."""
    if slot.turns.slot is slot:
        slot.turns.leave = True
    elif slot.gate == BUSY:
        with suppress(ValueError):
            slot.rt.ready.remove(slot)
