"""The warning for runs that stay open while none of their changes are kept.

A durable class that is `serial` and keeps snapshots saves its state at the end of each run. A crash during a
long run undoes all changes of that run, which the author of the class may not expect. So a warning names the
first run of each such action that stays open for longer than `LONG`. Other classes need no timer for this.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors.errors import UnkeptRunWarning

if TYPE_CHECKING:
    from lmos_actors._core import Timer

    from ..messages._invocation import Run

LONG: Final = 1.0
"""Seconds that a run may be open before it is named."""


def watch_run(run: Run) -> Timer | None:
    """Set a timer that warns of a run still open after `LONG`; None if its action was named before.

    The timer ends with the incarnation. Cancel it when the run ends.
    """
    slot = run.slot
    cls = type(cast("object", run.agent))
    action = (cls, run.op.name)
    if action in slot.rt.unkept_runs:
        return None

    def is_long() -> None:
        timer.leave()
        slot.rt.unkept_runs |= {action}
        _warn(run)

    timer: Timer = slot.rt.timers.call_after(LONG, is_long)
    slot.keep_timer(timer)
    return timer


def _warn(run: Run) -> None:
    name = type(run.agent).__name__
    text = (
        f"the run {run.op.name!r} of agent {run.slot.path!r} has been open for {LONG:g} s, and what it "
        f"changes is kept when it ends: a crash before that takes it back, as class {name} has "
        f'durable=True and serial=True. To keep each step, make it class {name}(..., durable="journal"), '
        f"which changes its state by self.record(...) and apply(...); or drop serial=True and say "
        f"@action(snapshot_safe=True)"
    )
    try:
        warnings.warn(text, UnkeptRunWarning, stacklevel=2)
    except UnkeptRunWarning as exc:  # where warnings are errors, it is one of the node
        fatal: Any = run.slot.rt.fatal
        if fatal is not None:
            fatal(exc)
