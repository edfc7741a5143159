"""Timers of an agent: turns and messages that come after some seconds, while its incarnation lives."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import Timer, TimerHeap, timers_of

from .._trace_context import current_mark
from ..declaration._history import kept_turn, unwrapped
from ..messages._gates import ENDING, QUIET
from ..messages._mailbox import PeriodicTurn, PromptTurn
from ._departure import Departure
from ._skewed_clock import world_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._slot import Slot

_NO_TIME: Final = TimerHeap()
"""Stands in for the heap of a timer that is due at once; it stays empty."""


@enable_ki_protection
def turn_after(slot: Slot, seconds: float, fn: Callable[..., None], args: tuple[Any, ...]) -> Timer:
    """Run a turn `seconds` from now, while this incarnation lives."""
    agent = slot.agent
    if agent is not None and agent.__contract__.options.history:
        fn = kept_turn(agent, fn)
    due = _Due(slot, fn, args)
    if not seconds and slot.state < ENDING:
        return _turn_promptly(slot, due)
    extra = slot.extra
    if extra is not None and extra.clock is not None:
        seconds = world_seconds(slot, seconds)
    due.timer = timer = slot.rt.timers.call_after(seconds, due.fire)
    if extra is None or extra.timers is not None or slot.state >= ENDING:
        slot.keep_timer(timer)
    else:  # most agents have one timer: no call for it
        extra.timers = timer
        timer.owner = extra
    return timer


def _turn_promptly(slot: Slot, due: _Due) -> Timer:
    """Run a turn before all messages that were not taken yet, as `gen_statem` does for a timeout of 0."""
    due.timer = timer = Timer(trio.current_time(), due.fire, _NO_TIME)
    stash = slot.ensure_stash()
    slot.keep_timer(timer)
    stash.prompt.turns.append(due)
    if slot.turns.slot is slot:
        slot.turns.leave = True  # it is queued when this turn ends: see `Slot.restore_stashed`
    elif not stash.prompt.is_queued:
        slot.leave_tally()
        stash.prompt.in_row = 0
        slot.bring_back(stash, [])
        slot.resume_if_idle()
    return timer


@enable_ki_protection
def send_after(
    slot: Slot, seconds: float, link: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Timer:
    """Send a message `seconds` from now, as a turn would send it, while this incarnation lives.

    If the receiver is near, the arguments are checked now. This raises InvalidInput or NotFound. A message
    that is refused later, when it is sent, becomes a dead letter, as no code is left to handle the error.
    """
    delayed = Departure.planned(slot, link, key, args, kwargs)
    extra = slot.extra
    if extra is not None and extra.clock is not None:
        seconds = world_seconds(slot, seconds)
    delayed.timer = timer = slot.rt.timers.call_after(seconds, delayed.fire)
    if extra is None or slot.state >= ENDING:
        slot.keep_timer(timer)
    else:
        timer.join(extra)
    return timer


def run_every(slot: Slot, when: float, seconds: float, firing: PeriodicTurn) -> None:
    """Run a turn at `when` and every `seconds` after it, by the clock of the agent."""

    def fire() -> None:
        timer.leave()
        if not firing.waiting:
            firing.waiting = True
            slot.put(firing)
        now = trio.current_time()
        period = world_seconds(slot, seconds)
        missed = max(0, int((now - when) / period))
        run_every(slot, when + (missed + 1) * period, seconds, firing)

    timer = slot.rt.timers.call_at(when, fire)
    timer.join(slot.ensure_extra())


def next_turns(slot: Slot, most: int) -> list[tuple[float, str]]:
    """Return at most `most` pending timers of an agent, newest first, as pairs of instant and title."""
    pending = () if slot.extra is None else timers_of(slot.extra)
    return [(timer.when, _title(timer.callback)) for timer in islice(pending, most)]


def _title(callback: Any) -> str:
    """Return a title for a timer: the name of the method that it runs, or of the message that it sends."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, Departure):
        return owner.title
    cells = (cell.cell_contents for cell in getattr(callback, "__closure__", None) or ())
    found = owner if owner is not None else next((c for c in cells if isinstance(c, PeriodicTurn)), None)
    title = getattr(found, "title", None)
    if title is not None:
        return str(title)
    fn = getattr(found, "fn", None)
    return "" if fn is None else str(getattr(unwrapped(fn, ())[0], "__qualname__", ""))


class _Due(PromptTurn):
    """The turn of a timer, which enters the queue when it is due."""

    __slots__ = ()

    slot: Slot

    def __init__(self, slot: Slot, fn: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.fn, self.args = fn, args
        self.slot = slot
        self.trace = current_mark(slot.rt) if slot.traced else None

    def fire(self) -> None:
        """Queue the turn."""
        timer, slot = self.timer, self.slot
        extra = slot.extra
        if extra is not None and extra.timers is timer and timer.after is None:
            extra.timers = timer.owner = None
        else:
            timer.leave()
        if slot.gate == QUIET and not slot.queue and extra is not None and extra.pace is not None:
            extra.pace.take_turn(self)  # as `put` does
        else:
            slot.put(self)
