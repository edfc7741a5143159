"""The cancel scopes around a parked task: whether anything but an answer may end its wait.

trio reports this only for the running task (`trio.current_effective_deadline`). So this file uses two private
names of trio, `Task._cancel_status` and `CancelStatus._scope`, and the name of the function in which a task
waits for the others in its nursery, `_nested_child_finished`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    import trio

EndOfWait: TypeAlias = Literal["deadline", "scope"]
"""What may end a wait besides an answer: a deadline, or a scope that was made to be cancelled."""

_IN_NURSERY: Final = "_nested_child_finished"


def end_of_wait(task: trio.lowlevel.Task, outermost: trio.CancelScope | None) -> EndOfWait | None:
    """Return whether a deadline or a scope inside `outermost` may end a parked task's wait: None if neither.

    A nursery's scope counts by its deadline alone: only tasks inside the nursery could cancel it.
    """
    nurseries: list[trio.CancelScope] = []
    each: trio.lowlevel.Task | None = task
    while each is not None:
        nurseries += [nursery.cancel_scope for nursery in each.child_nurseries]
        above = each.parent_nursery
        each = None if above is None else above.parent_task
    found: EndOfWait | None = None
    status: Any = task._cancel_status  # pyright: ignore[reportPrivateUsage]
    while status is not None and status._scope is not outermost:
        if status.effectively_cancelled or status._scope.deadline < math.inf:
            return "deadline"
        if status._scope not in nurseries:
            found = "scope"
        status = status.parent
    return found


def waits_for_nursery(task: trio.lowlevel.Task) -> bool:
    """Return whether a parked task waits at the end of a nursery for the other tasks in it."""
    if not task.child_nurseries:
        return False
    return any(frame.f_code.co_name == _IN_NURSERY for frame, _ in task.iter_await_frames())
