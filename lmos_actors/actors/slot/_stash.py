"""Behaviours of an agent: messages put aside until its behaviour allows them, and the timer of a behaviour.

The rules are those of OTP's `gen_statem`. A message that the present behaviour does not allow is refused, or
postponed if its action says so (`Slot.postpone_or_refuse`). Once the behaviour changes, postponed messages
are tried again, in order and before all later ones. A message put aside keeps its seat: it has been accepted
and has not begun, so the accounts no longer count it as begun.

`stash()` ends the turn by raising `Stashed`, a BaseException, so that an `except Exception` of the handler
cannot swallow it. It is allowed only where nothing else can have happened meanwhile: in a turn, or in the
first step of a run. The first step is recognised (`_is_first_step`) by the task's `custom_sleep_data`, which
trio clears whenever it wakes the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import current_task, enable_ki_protection

from ..messages._invocation import CURRENT
from ..messages._mailbox import QUEUED, Envelope, InternalTurn
from ..messages._operation import STREAM
from ._slot_timers import turn_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timer

    from ..messages._invocation import OwnTask, Run
    from ._slot import Slot


def check_stash(slot: Slot) -> None:
    """Raise RuntimeError unless the message that is being handled may be put aside."""
    run = CURRENT.get()
    if slot.turns.slot is slot:
        current = slot.turns.current
        if isinstance(current, InternalTurn) or (isinstance(current, tuple) and current[0] is None):
            raise RuntimeError("stash() puts the message in hand aside: a timer's turn has none")
    elif run is None or run.slot is not slot or run.op.kind == STREAM or not _is_first_step(run):
        raise RuntimeError("stash() puts the message in hand aside: in its turn, or before the first wait")


@enable_ki_protection
def unstash(slot: Slot) -> int:
    """Put the stashed messages back at the front of the queue, in order; return their number."""
    extra = slot.extra
    if extra is None or extra.stash is None or not extra.stash.items:
        return 0
    stash = extra.stash
    items = list(stash.items.values())
    stash.items.clear()
    for item in items:
        if isinstance(item, Envelope):
            item.phase = QUEUED
    if slot.turns.slot is slot:
        stash.up_next += items
        slot.turns.leave = True
    else:
        slot.bring_back(stash, items)
        slot.resume_if_idle()
    return len(items)


@enable_ki_protection
def behaviour_changed(slot: Slot) -> None:
    """Cancel the timer of the previous behaviour, and requeue the messages that it postponed."""
    stash = slot.ensure_stash()
    _end_state_timeout(slot)
    if slot.turns.slot is slot:
        stash.changed = True
        slot.turns.leave = True
        unstash(slot)
    else:
        run, (last, count) = CURRENT.get(), stash.by_run
        stash.by_run = run, unstash(slot) + (count if last is run else 0)


def state_timeout(slot: Slot, seconds: float, fn: Callable[[], None]) -> Timer:
    """Run a turn after `seconds` if the behaviour is still the same; this replaces any earlier such turn."""
    stash = slot.ensure_stash()
    _end_state_timeout(slot)

    def due() -> None:  # the behaviour may change between the firing and its turn
        if stash.timer is timer:
            stash.timer = None
            fn()

    due.__qualname__ = getattr(fn, "__qualname__", "state timeout")
    timer = stash.timer = turn_after(slot, seconds, due, ())
    return timer


def _end_state_timeout(slot: Slot) -> None:
    extra = slot.extra
    if extra is not None and extra.stash is not None and extra.stash.timer is not None:
        extra.stash.timer.cancel()
        extra.stash.timer = None


def _is_first_step(run: Run | OwnTask) -> bool:
    """Return whether the current task is the run's and is still in the first step of the run."""
    return current_task().custom_sleep_data is run  # trio empties it whenever the task is woken
