"""Agents held and slowed from outside, for scenarios and simulations; see `_slot_pacing.py`.

All of it is of the agent's place in the tree: it lasts over restarts, until it is undone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lmos_actors.errors import ConfigError

from ._registry import slot_of

if TYPE_CHECKING:
    from ._ref import Ref


def hold(ref: Ref[Any]) -> None:
    """Have an agent take no message: no turn and no run begins, what has begun goes on.

    Mail waits by the mailbox's policy, and timers wait too. A stop, a crash, a query, a cancel and a deadline
    are heeded as ever; a stop gives what waits its time and then answers it. Several holds count, each ends
    by a `release`; a restarted agent is still held. Never blocks. Raises NotFound, NotAllowed for a pool.
    """
    slot_of(ref).hold()


def release(ref: Ref[Any]) -> None:
    """Undo one `hold`. Never blocks. Raises RuntimeError when the agent is not held; NotFound, NotAllowed."""
    slot_of(ref).release()


def set_service_time(ref: Ref[Any], seconds: float) -> None:
    """Have an agent work `seconds` on each message before its turn runs, or its run begins; 0: no time.

    It works on one message at a time, and an answer comes at the end of that time. A run goes on beside the
    work on the next message, unless its class is `serial`. The message in work keeps the time it began with.
    Never blocks. Raises ConfigError for a number that is below 0 or not finite, NotFound, NotAllowed.
    """
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"must be a finite number of seconds of at least 0, not {seconds!r}", "seconds")
    slot_of(ref).set_service_time(float(seconds))


def service_time(ref: Ref[Any]) -> float:
    """Return the seconds that an agent works on each message. Raises NotFound, NotAllowed."""
    extra = slot_of(ref).extra
    return extra.pace.seconds if extra is not None and extra.pace is not None else 0.0


def keep_state(ref: Ref[Any]) -> None:
    """Have an agent's next incarnation begin with the fields and the behaviour that this one has now.

    What they refer to is not copied. Raises AgentUnavailable when there is no incarnation; NotFound,
    NotAllowed.
    """
    slot_of(ref).keep_state()
