"""The children of one incarnation of an agent: a supervisor that ends before the agent does.

This supervisor is made at its first use, or as part of the agent's start if the class overrides
`supervises()`. Its task is a child of the nursery of the agent's own supervisor, which is cancelled only when
the agent has unwound. The agent ends it after its own runs and tasks, and before it leaves its lifespan. When
the supervisor ends by itself, the slot gets the reason (`children_ended`): a crash if the supervisor gave up,
a stop if its work is done (`auto_shutdown`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.actors import SHUTDOWN, ExitReason, interruptible
from lmos_actors.errors import ConfigError

from ._inbox import with_raised
from ._loop import SupervisorLoop
from ._members import members_of
from ._siblings import class_of
from ._spec import SupervisorSpec
from ._supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timer
    from lmos_actors.actors import Ref, Slot

A = TypeVar("A")

BY_DEFAULT: Final = SupervisorSpec("children")


class AgentSupervisor:
    """The supervisor of an agent's children; the agent's slot begins and ends it."""

    def __init__(self, slot: Slot, /) -> None:
        rt, agent = slot.rt, slot.agent
        spec: Any = BY_DEFAULT
        if agent.__contract__.has_children:
            spec = interruptible(lambda: slot.context().run(agent.supervises))
            if not isinstance(spec, SupervisorSpec):
                where = f"{type(agent).__name__}.supervises()"
                raise ConfigError(f"must be a SupervisorSpec, not {spec!r}", where)
        loop = SupervisorLoop(rt, spec, members_of, agent=slot)
        for reference in loop.spec.outward:
            loop.place_of(reference.from_above(loop.label).sibling)  # refuses one that leads above the root
        self.supervisor = Supervisor(loop)
        """The public interface to the loop."""
        self._slot = slot
        self._loop = loop
        self._stopped_by_agent = False
        self._limit: Timer | None = None
        loop.reset()
        rt.tally.supervisors[loop] = None
        slot.owner.start_task(self._main, name=f"children of {slot.path}", context=rt.base_context.copy())
        rt.timers.woke = True

    async def start_class(self, factory: Callable[[], A]) -> Ref[A]:
        """Start an agent under the first free name derived from its class. Raises StartFailed, WrongState."""
        return await self.supervisor.start_named(class_of(factory) or factory, factory)

    async def ready(self) -> None:
        """Wait until the children listed in the spec have started. Raises StartFailed."""
        await self._loop.started.wait()
        if self._loop.failure is not None:
            raise self._loop.failure

    @enable_ki_protection
    def stop_children(self, shutdown: float | str) -> None:
        """Stop the children in reverse start order, or all at once after `shutdown` seconds; then end."""
        if self._stopped_by_agent:
            return
        self._stopped_by_agent = True
        timers = self._loop.rt.timers
        self._loop.interrupt("its agent is ending")
        timers.woke = True
        if shutdown == "brutal":
            self.kill()
        elif shutdown != "infinity":
            self._limit = timers.call_at(trio.current_time() + float(shutdown), self.kill)

    def kill(self) -> None:
        """Stop everything below immediately, without draining."""
        self._loop.rt.timers.woke = True
        self._loop.kill()

    async def wait_ended(self) -> None:
        """Wait until all children have ended."""
        await self._loop.ended.wait()

    @enable_ki_protection
    async def _main(self) -> None:
        """Run the loop, and report its end to the agent."""
        loop = self._loop
        try:
            await loop.main()
        finally:
            if self._limit is not None:
                self._limit.cancel()
            loop.remove()
            raised = loop.take_raised()
            # no reason where the agent knows it: it stopped the children, or they failed to start
            reason: ExitReason | None = None
            if not self._stopped_by_agent and loop.failure is None:
                reason = loop.reason or SHUTDOWN
                if raised:
                    reason, raised = with_raised(reason, loop.path, raised), ()
            self._slot.children_ended(reason, raised)


def children_of(slot: Slot) -> Supervisor | None:
    """Return the supervisor of an agent's children, or None if it has none."""
    extra = slot.extra
    children = None if extra is None else cast("AgentSupervisor | None", extra.child_supervisor)
    return None if children is None else children.supervisor
