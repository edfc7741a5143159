"""The loop of a supervisor: children started in order, restarted as planned, stopped in reverse.

A supervisor is one task, with one nursery. It handles one message at a time, as OTP's does: the end of a
child, a restart that is due, a request. So no decision is ever taken between the two halves of another, and
what a request sees is always a tree between two steps.

The work is divided in three. `_plan.py` decides, as pure functions over facts. The slots do what happens to
agents. This file carries the decisions out: it stops, starts and removes children, and waits for them. The
tasks of its children (runners, lifespans, supervisors below) are children of its nursery, so that a
supervisor that has ended leaves none behind.

What this file keeps true:

- An end of a child that the supervisor itself is stopping is no news (`exited` drops it); any other waits in
  the inbox, which is never full: there is at most one end for each incarnation.
- A message about a child names its incarnation, so that a late one never hits the next incarnation.
- Stopping is in reverse start order and shielded; `kill` only shortens it and never skips a child.
- `kill` of a deep tree needs no depth of the stack: the supervisors to be killed are worked off in a list.
- An exception that a child raises while it is stopped restarts nothing, but it is kept (`_raised`) and
  arrives at the caller of the stop, or in the supervisor's own end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import trio
from trio.lowlevel import checkpoint, enable_ki_protection, reschedule

from lmos_actors.actors import NORMAL, SHUTDOWN, AgentQuery, ExitReason, LookupLink, Ref, Runners, Slot
from lmos_actors.errors import ConfigError, IdTaken, RestartIntensityExceeded, StartFailed

from ._children import Names, mailbox_of
from ._ids import Ids
from ._inbox import Delays, Inbox, Request, merged_error, with_raised
from ._plan import Decision, Plan
from ._spec import ChildSpec, Pool, SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextvars import Context

    from lmos_actors.actors import MailboxOptions, Runtime, Status

    from ._siblings import Sibling
    from ._spec import Spec
    from ._supervisor import Supervisor

Child: TypeAlias = "Slot | Supervisor"

BUDGET = 64  # messages between checkpoints


class SupervisorLoop:
    """One supervisor of a running tree and what hangs from it, over all its incarnations."""

    kinds: ClassVar[dict[type, Callable[[Runtime, Any, SupervisorLoop], Supervisor]]] = {}
    """What runs each kind of spec; filled in by the classes that do."""

    def __init__(self, rt: Runtime, spec: SupervisorSpec, parent: SupervisorLoop | None) -> None:
        self.rt = rt
        self.spec = spec
        self.made_from: Spec = spec
        self.parent = parent
        self.above: SupervisorLoop | None = parent  # that of an agent's children has no parent
        self._path = "root" if parent is None else parent.child_path(spec.name)
        self.lives: str = "" if parent is None else parent.lives  # of agents above it: chance differs in each
        self.ids: Ids = Ids() if parent is None else parent.ids  # of the whole node
        self.status: Status = "starting"
        self.incarnation: int = 0
        self.runners: Runners | None = None
        self.on_end: Callable[[ExitReason], None] | None = None
        self._plan: Plan[Child] = Plan(spec)
        self._names: Names[Child] = Names()
        self._inbox = Inbox(rt.timers)
        self._nursery: trio.Nursery | None = None
        self._work = trio.CancelScope()
        self._reason: ExitReason | None = None
        self._brutal = False
        self._alive = False
        self._ended: trio.Event = trio.Event()
        self._ended.set()
        self._begun: trio.Event = trio.Event()
        self._failure: StartFailed | None = None
        self._delays = Delays(rt.timers, self._inbox)
        self._raised: dict[Child, BaseException] = {}  # by children while they were being stopped
        self._restarts: int = 0
        self._failed_starts: int = 0

    # ---- where it is

    @property
    def path(self) -> str:
        """Its place in the tree; `root` for the root."""
        return self._path

    @property
    def label(self) -> str:
        """Its name as a child."""
        return self.spec.name

    def child_path(self, name: str) -> str:
        """Return the path of a child of that name: the root's children have their names alone."""
        return name if self.parent is None else f"{self._path}/{name}"

    def place_of(self, sibling: Sibling) -> str:
        """Return the path from the root that a reference of a child leads to. Raises ConfigError."""
        here: SupervisorLoop | None = self
        for _ in range(sibling.ups):
            here = None if here is None else here.above
        if here is None:
            raise ConfigError("leads above the root supervisor", repr(sibling))
        return here.child_path("/".join(sibling.names))

    def ref_to(self, sibling: Sibling) -> Ref[Any]:
        """Return the ref that a child is given for a reference: to the slot, if it is there yet.

        Slots below a supervisor that has not started are not, and those of temporary agents that have ended
        are gone: then the ref looks at that place when it is used.
        """
        path, resolver = self.place_of(sibling), self.rt.resolver
        found = None if resolver is None else resolver.at(path)
        return Ref(LookupLink(self.rt, AgentQuery(None, path, is_place=True)) if found is None else found)

    @property
    def lineage(self) -> tuple[tuple[str, str], ...]:
        """The supervisors from the root down to this one: the name and the strategy of each."""
        above: list[SupervisorLoop] = [self]
        while (branch := above[-1].above) is not None:
            above.append(branch)
        return tuple((branch.label, branch.spec.strategy) for branch in reversed(above))

    # ---- what children ask of it

    def exited(self, child: Any, reason: ExitReason) -> None:
        """A child has ended and unwound; unless the supervisor itself is stopping it, that is news."""
        if child.status != "stopping" and self._alive:
            self._inbox.put((child, child.incarnation, reason))

    def raised_at_end(self, child: Any, error: BaseException) -> None:
        """Keep what a child raised while it was being stopped: that restarts nothing, but it arrives.

        It goes to the caller of the stop, at the latest into the supervisor's own end.
        """
        if child.status == "stopping":
            self._raised[child] = error

    def start_task(self, async_fn: Callable[..., Any], *args: Any, name: str, context: Context) -> None:
        """Start a task in the supervisor's nursery, in the given context."""
        nursery = self._nursery
        if nursery is None:
            raise RuntimeError(f"supervisor {self.path} has no nursery")
        context.run(partial(nursery.start_soon, async_fn, *args, name=name))

    # ---- life

    async def start(self) -> None:
        """Start it as a child of its parent; see `begin`."""
        parent = self.parent
        if parent is None or parent._nursery is None:
            raise RuntimeError("a supervisor is started by its parent")
        await self.begin(parent._nursery.start_soon)

    @enable_ki_protection
    async def begin(self, start_soon: Callable[..., None]) -> None:
        """Start its task by `start_soon`, and its children in order.

        Raises StartFailed: then what had started has been stopped, in order. Cancelled: then `stop` does it.
        """
        try:
            self._reset()
        except IdTaken as exc:
            raise StartFailed(self.path, str(exc)) from exc
        start_soon(self.main, name=f"supervisor {self.path}")
        await self._begun.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @enable_ki_protection
    async def main(self) -> None:
        """Run the supervisor, from the start of the first child to the end of the last."""
        self._failure = StartFailed(self.path, "it was stopped meanwhile")
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.runners = Runners(nursery)
                try:
                    with self._work:
                        await self._start_children()
                        await self._loop()
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop_children()
                    nursery.cancel_scope.cancel("the supervisor has ended")
        finally:
            self._nursery = None
            self.runners = None
            self._ended.set()
            started = self._begun.is_set()
            self._begun.set()
        if started:
            self._report()

    def _reset(self) -> None:
        self.ids.check(self.spec.children, self)
        self.incarnation += 1
        self._reason = None
        self._brutal = False
        self._alive = True
        self._inbox.clear()
        self._begun = trio.Event()
        self._ended = trio.Event()
        self._work = trio.CancelScope()
        kept = {child.label: child for child in self._plan.children}
        self._plan = Plan(self.spec, self.rt.entropy.stream(f"backoff {self.path}{self.lives}").random)
        self._names.clear()
        for spec in self.spec.children:
            child = kept.pop(spec.name, None)
            if child is None or _made_from(child) is not spec:
                child = self._new_child(spec, spec.name)
            child.status = "stopped"
            self._names.give(spec.name, child)
            self._plan.add(child)
        self._remove_all(kept.values())

    async def _start_children(self) -> None:
        for child in tuple(self._plan.children):
            try:
                await self._start_one(child)
            except StartFailed as exc:
                self._failed_starts += 1
                self._failure = StartFailed(self.path, str(exc))
                self._failure.__cause__ = exc.__cause__ or exc
                self._reason = SHUTDOWN
                return
        self._failure = None
        self._begun.set()

    async def _start_one(self, child: Child) -> None:
        child.status = "starting"
        try:
            if isinstance(child, Slot):
                made = child.start_at_once()
                if made is not None:
                    await child.start(made)
            else:
                await child.start()
        except BaseException:
            with trio.CancelScope(shield=True):
                await (child.wait_down() if isinstance(child, Slot) else child.stop())
            child.status = "stopped"
            raise
        self._plan.started(child)
        self._announce((child,))

    def _announce(self, children: Sequence[Child]) -> None:
        """Wake the tasks that wait for an agent to appear, and begin followings that wait for one."""
        self.rt.population.changed(children)
        if self.rt.absent is not None:
            for child in children:
                self.rt.absent.appeared(child if isinstance(child, Slot) else None)
        waiting = self.rt.appeared
        if waiting:
            self.rt.appeared = []
            for task in waiting:
                reschedule(task)

    async def _loop(self) -> None:
        inbox = self._inbox
        while self._reason is None:
            for _ in range(BUDGET):
                if not inbox or self._reason is not None:
                    break
                await self._handle(inbox.take())
            if inbox:
                await checkpoint()
            elif self._reason is None:
                await inbox.park()

    async def _handle(self, item: Any) -> None:
        if isinstance(item, Request):
            await item.carry_out(self.path)
        elif self.rt.failed:
            return
        elif len(item) == 2:
            await self._carry_out(self._plan.try_again(item[1], trio.current_time()))
        else:
            child, incarnation, reason = item
            if child.incarnation == incarnation:
                await self._carry_out(self._plan.exited(child, reason, trio.current_time()))

    async def _carry_out(self, decision: Decision[Child]) -> None:
        while True:
            for child in decision.stop:
                await self._stop_one(child)
            for child in decision.forget:
                self._forget(child)
            failed = await self._start_all(decision.start) if decision.start else None
            if failed is None:
                break
            decision = failed
        if decision.again is not None:
            self._delays.put(decision.again, decision.delay)
        if decision.end == "intensity":
            spec = self.spec
            error = RestartIntensityExceeded(self.path, spec.max_restarts, spec.max_seconds, decision.causes)
            self._reason = ExitReason("shutdown", error=error)
        elif decision.end is not None:
            self._reason = SHUTDOWN

    async def _start_all(self, children: tuple[Child, ...]) -> Decision[Child] | None:
        for child in children:
            self._restarts += 1
            if self.rt.instrument is not None:
                self.rt.instrument.record("restarting", child.path, {})
            try:
                await self._start_one(child)
            except StartFailed as exc:
                self._failed_starts += 1
                return self._plan.start_failed(child, exc.__cause__ or exc, trio.current_time())
        return None

    # ---- end

    async def stop(self, reason: ExitReason = SHUTDOWN, shutdown: float | str = "infinity") -> None:
        """Stop the children in reverse order, then end; past `shutdown` seconds, at once."""
        if not self._alive:
            await self._ended.wait()
            return
        if self._reason is None:
            self._reason = reason
        self._work.cancel("the supervisor is stopping")
        self._inbox.wake()
        if shutdown == "brutal":
            self.kill()
        elif shutdown != "infinity":
            with trio.move_on_after(float(shutdown)):
                await self._ended.wait()
                return
            self.kill()
        await self._ended.wait()

    @enable_ki_protection
    def kill(self) -> None:
        """Stop everything below immediately, without draining."""
        being_killed = self.rt.being_killed
        being_killed.append(self)
        if len(being_killed) == 1:  # else the call that works the list off comes to this one
            for branch in being_killed:  # it grows meanwhile
                branch._kill()
            being_killed.clear()

    def _kill(self) -> None:
        self._brutal = True
        if self._reason is None:
            self._reason = SHUTDOWN
        self._work.cancel("the supervisor was killed")
        for child in tuple(self._plan.children):
            if isinstance(child, Slot):
                child.stop(SHUTDOWN, "brutal")
            else:
                child.kill()

    async def _stop_children(self) -> None:
        for count, child in enumerate(self._plan.stop_order(), start=1):
            await self._stop_one(child)
            if not count % BUDGET:
                await checkpoint()
        for child in self._plan.children:
            child.status = "stopped"  # those, too, whose restart was to be tried again
        self._alive = False
        self._delays.clear()
        while self._inbox:
            item = self._inbox.take()
            if isinstance(item, Request):
                item.refuse(self.path)

    async def _stop_one(self, child: Child) -> None:
        child.status = "stopping"
        shutdown = "brutal" if self._brutal else child.spec.shutdown
        if not isinstance(child, Slot):
            await child.stop(SHUTDOWN, shutdown)
        elif not child.stop(SHUTDOWN, shutdown):
            await child.wait_down()
        if self._plan.stopped(child):
            self._forget(child)

    def _report(self) -> None:
        reason = self._reason or NORMAL
        raised = tuple(self._raised.values())
        self._raised.clear()
        if raised and self.parent is not None and self.status == "stopping":
            self.parent.raised_at_end(self, merged_error(self.path, raised))
        elif raised:
            reason = with_raised(reason, self.path, raised)
        if self.parent is not None:
            self.parent.exited(self, reason)
        elif self.on_end is not None:
            self.on_end(reason)

    # ---- children come and go

    def _new_child(self, spec: Spec, name: str) -> Child:
        if not isinstance(spec, ChildSpec):
            return self._new_supervisor(spec)
        slot = self._new_slot(spec, name, mailbox_of(spec))
        self.ids.take(slot)
        return slot

    def _new_slot(self, spec: ChildSpec[Any], name: str | int, mailbox: MailboxOptions) -> Slot:
        slot: Slot = self.rt.link(self.rt, self, spec, name, mailbox)
        self.rt.tally.untallied.append(slot)
        return slot

    def _forget(self, child: Child) -> None:
        """The child's spec is gone, and with it the slot."""
        self._delays.drop(child)
        self._names.forget(child.label, child)
        self._remove_all((child,))

    def remove(self) -> None:
        """Empty all slots below for good, as the spec is gone or the node has ended."""
        self.rt.tally.supervisors.pop(self, None)
        self._remove_all(self._plan.children)

    def _remove_all(self, children: Iterable[Child]) -> None:
        for child in children:
            child.remove()
            if isinstance(child, Slot):
                self.ids.free(child)
            self.rt.population.changed((child,))

    def _new_supervisor(self, spec: SupervisorSpec | Pool[Any]) -> Supervisor:
        made = self.kinds[type(spec)](self.rt, spec, self)
        self.rt.tally.supervisors[made] = None
        return made


def _made_from(child: Child) -> Spec:
    return child.spec if isinstance(child, Slot) else child.made_from
