"""The supervisor under one incarnation of an agent: its children are gone when the agent is.

It is made at its first use, or as part of the agent's start where the class overrides `supervises()`. Its
task is a child of the nursery that the agent's own supervisor has, which is cancelled only when the agent
has unwound. The agent ends it: after its runs and tasks, before it leaves its lifespan. When it ends by
itself, the agent hears of it: a crash if it gave up, a stop if its work is done (`auto_shutdown`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.actors import SHUTDOWN, ExitReason, interruptible
from lmos_actors.errors import ConfigError, WrongState

from ._inbox import with_raised
from ._siblings import class_of
from ._spec import SupervisorSpec
from ._supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lmos_actors._core import Timer
    from lmos_actors.actors import Ref, Slot

A = TypeVar("A")

BY_DEFAULT: Final = SupervisorSpec("children")


class AgentSupervisor(Supervisor):
    """A supervisor that belongs to an incarnation of an agent and stands in the agent's place in the tree."""

    starts_are_cancellable: ClassVar[bool] = True

    def __init__(self, slot: Slot, /) -> None:
        super().__init__(slot.rt, _spec_of(slot), None)
        self._slot = slot
        owner = self.above = cast("Supervisor", slot.owner)
        self.ids = owner.ids
        self._path = slot.path
        self.lives = f"{slot.owner.lives} {slot.incarnation}"
        for reference in self.spec.outward:
            self.place_of(reference.from_above(self.label).sibling)  # which refuses those that lead nowhere
        self._stopping_children = False
        self._limit: Timer | None = None
        self._reset()
        slot.rt.tally.supervisors[self] = None
        slot.owner.start_task(self.main, name=f"children of {slot.path}", context=slot.rt.base_context.copy())
        slot.rt.timers.woke = True

    # ---- where it is

    @property
    def label(self) -> str:
        """That of the agent."""
        return self._slot.label

    def child_path(self, name: str) -> str:
        """Return the path of a child of that name: it is below the agent."""
        return f"{self.path}/{name}"

    # ---- what the agent asks of it

    async def start_class(self, factory: Callable[[], A]) -> Ref[A]:
        """Start an agent under the first free name that its class yields. Raises StartFailed, WrongState."""
        return await self.start_named(class_of(factory) or factory, factory)

    async def request(self, fn: Callable[[], Coroutine[Any, Any, Any]], *, cancellable: bool = False) -> Any:
        """Have its own task carry something out. Raises WrongState; StartFailed if it could not start."""
        try:
            return await super().request(fn, cancellable=cancellable)
        except WrongState:
            if self._failure is not None:
                raise self._failure from self._failure.__cause__
            raise

    async def ready(self) -> None:
        """Wait until the children that the agent always has run. Raises StartFailed."""
        await self._begun.wait()
        if self._failure is not None:
            raise self._failure

    async def settled(self) -> None:
        """Wait until every end of a child so far has been dealt with, here or by the end of the agent."""
        await super().settled()
        if not self._alive:
            if self._slot.statistics().state == "ending":
                await self._slot.wait_down()
            owner = self._slot.owner
            if isinstance(owner, Supervisor):
                await owner.settled()

    # ---- end

    @enable_ki_protection
    def stop_children(self, shutdown: float | str) -> None:
        """Stop the children in reverse start order, after `shutdown` seconds at once, then end."""
        if self._stopping_children:
            return
        self._stopping_children = True
        if self._reason is None:
            self._reason = SHUTDOWN
        self._work.cancel("its agent is ending")
        self._inbox.wake()
        self.rt.timers.woke = True
        if shutdown == "brutal":
            self.kill()
        elif shutdown != "infinity":
            self._limit = self.rt.timers.call_at(trio.current_time() + float(shutdown), self.kill)

    def kill(self) -> None:
        """Stop everything below immediately, without draining."""
        self.rt.timers.woke = True
        super().kill()

    async def wait_ended(self) -> None:
        """Wait until all children have ended."""
        await self._ended.wait()

    @enable_ki_protection
    async def main(self) -> None:
        """Run the supervisor, and report its end to the agent."""
        try:
            await super().main()
        finally:
            if self._limit is not None:
                self._limit.cancel()
            self.remove()
            self._report_end()

    def _report(self) -> None:
        """Do nothing: only the agent is above, and `main` reports to it."""

    def _report_end(self) -> None:
        raised = tuple(self._raised.values())
        self._raised.clear()
        reason: ExitReason | None = None
        if not self._stopping_children and self._failure is None:
            reason = self._reason or SHUTDOWN
            if raised:
                reason, raised = with_raised(reason, self.path, raised), ()
        self._slot.children_ended(reason, raised)


def _spec_of(slot: Slot) -> SupervisorSpec:
    agent = slot.agent
    if not agent.__contract__.has_children:
        return BY_DEFAULT
    spec = interruptible(lambda: slot.context().run(agent.supervises))
    if not isinstance(spec, SupervisorSpec):
        raise ConfigError(f"must be a SupervisorSpec, not {spec!r}", f"{type(agent).__name__}.supervises()")
    return spec


def children_of(slot: Slot) -> AgentSupervisor | None:
    """Return the supervisor of an agent's children, None if it has none."""
    extra = slot.extra
    return None if extra is None else cast("AgentSupervisor | None", extra.child_supervisor)
