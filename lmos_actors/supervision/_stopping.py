"""How a supervisor stops children: in reverse start order, and the members of a crowd together.

A crowd is a set of children for which OTP has a simple_one_for_one supervisor: the members of one pool, the
children of one `start_many`, a population. None of them can rely on another still running, so all are stopped
at once, and the slowest determines how long that takes.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from trio.lowlevel import checkpoint

from lmos_actors.actors import SHUTDOWN, Slot

from ._spec import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._plan import Plan
    from ._spec import Spec

BUDGET = 64  # children between checkpoints


class Stopping(Protocol):
    """The supervisor whose children are stopped; see `SupervisorLoop`, in a layer above this file."""

    plan: Plan[Any]
    made_from: Spec
    brutal: bool

    @property
    def specs_of_unnamed(self) -> Mapping[type, tuple[Any, Any]]: ...

    def forget(self, child: Any) -> None: ...


async def stop_in_order(loop: Stopping, children: Iterable[Any]) -> None:
    """Stop children one after another, but adjacent children of one crowd together."""
    is_pool = isinstance(loop.made_from, Pool)
    single = {id(spec) for spec, _ in loop.specs_of_unnamed.values()}  # specs of agents started one by one

    def crowd_of(child: Any) -> int:
        if is_pool:
            return 0
        return id(child if id(child.spec) in single else child.spec)

    for count, (_, crowd) in enumerate(groupby(children, crowd_of), start=1):
        await stop_together(loop, crowd)
        if not count % BUDGET:
            await checkpoint()


async def stop_together(loop: Stopping, children: Iterable[Any]) -> None:
    """Stop children at once, and wait until each has ended fully; temporary children are forgotten."""
    ending: list[Any] = []
    for count, child in enumerate(children, start=1):
        if child.status == "running":  # nearly always: alive before and after
            child.status = "stopping"
        else:
            loop.plan.become(child, "stopping")
        shutdown = "brutal" if loop.brutal else child.spec.shutdown
        if not isinstance(child, Slot):
            await child.stop(shutdown)
        elif not child.stop(SHUTDOWN, shutdown):
            ending.append(child)
            continue
        _stopped(loop, child)
        if not count % BUDGET:
            await checkpoint()
    for child in ending:
        await child.wait_down()
        _stopped(loop, child)


def _stopped(loop: Stopping, child: Any) -> None:
    if loop.plan.stopped(child):
        loop.forget(child)
