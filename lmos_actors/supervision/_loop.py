"""The loop of a supervisor: children started in order, restarted as planned, stopped in reverse.

A supervisor is one task with one nursery. It handles one message at a time, as OTP's does: the end of a
child, a due restart, a request. So no decision is taken between the two halves of another, and a request
always sees the tree between two steps.

The work is divided among small parts, which this loop owns or receives:

- `Plan` decides, as pure functions over facts; `Inbox` and `Delays` hold what is to be handled, now or later.
- `Members` decides which children an incarnation begins with, and how they start: the children that
  the spec lists, the members of a pool, or the agents of a `BulkSpec` (`_members.py`).
- Slots carry out what happens to agents. The loop stops, starts and removes children, and waits for them.
- `Supervisor` is the public interface: it turns calls of users into requests (`_supervisor.py`).

The tasks of the children (runners, lifespans, supervisors below) are children of the loop's nursery, so that
a supervisor that has ended leaves none behind. The supervisor of an agent's children is such a loop too; the
agent begins and ends it (`_agent_supervisor.py`).

The invariants of this file:

- The end of a child that the supervisor itself is stopping is dropped (`exited`). Any other end waits in the
  inbox, which is never full: there is at most one end for each incarnation.
- A message about a child names its incarnation, so that a late message never affects the next incarnation.
- Children are stopped in reverse start order, a crowd at once (`_stopping.py`), under a shield; `kill` only
  shortens that and never skips a child.
- `kill` of a deep tree needs no deep stack: the supervisors to be killed are taken from a list.
- An exception that a child raises while it is being stopped restarts nothing. It is kept (`raised`), and
  reaches the caller of the stop, or becomes part of the supervisor's own end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, enable_ki_protection, reschedule

from lmos_actors.actors import (
    NORMAL,
    SHUTDOWN,
    AgentQuery,
    ExitReason,
    LookupLink,
    Ref,
    Runners,
    Slot,
    start_agent,
)
from lmos_actors.errors import (
    ConfigError,
    IdTaken,
    NameTaken,
    RestartIntensityExceeded,
    StartFailed,
    WrongState,
)

from ._children import Ids, Names, check_beside, check_top, mailbox_of, read_states
from ._inbox import Delays, Inbox, Request, merged_error, with_raised
from ._plan import Decision, Plan
from ._spec import ChildSpec, Pool, SupervisorSpec
from ._stopping import stop_in_order, stop_together

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from contextvars import Context

    from lmos_actors.actors import MailboxOptions, Runtime, Status

    from ._siblings import Sibling
    from ._spec import BulkSpec, Spec

Child: TypeAlias = "Slot | SupervisorLoop"

BUDGET = 64  # messages, or requests carried out in the asker's step, between checkpoints


class Members(Protocol):
    """The children of a kind of supervisor in each incarnation: how they are added, started and found."""

    def seat(self, before: Sequence[Child]) -> None:
        """Put a new incarnation's children into the plan; `before` are those of the previous one."""

    async def start(self) -> None:
        """Start the children of a new incarnation, and call the loop's `begun`."""

    def find(self, name: str) -> Child | None:
        """Return the child with this name, or None if there is none."""

    def check_addition(self) -> None:
        """Raise WrongState if children cannot be added one by one."""

    def close(self) -> None:
        """Release resources: all slots have been emptied permanently."""


class SupervisorLoop:
    """One supervisor of a running tree, over all its incarnations.

    `members_of` makes the `Members` of this loop and of the loops below it. `parent` is the supervisor that
    has this one as a child, None for the root. `agent` is the slot whose children these are: then there is no
    parent, and the loop has the agent's place in the tree, for one incarnation of the agent.
    """

    __slots__ = (  # CPython finds attributes quickly in slots, or in objects that have fewer than 30
        "__weakref__", "_delays", "_members_of", "_prefix", "_work", "above", "agent", "alive", "at_once",
        "away", "brutal", "ended", "failed_starts", "failure", "ids", "inbox", "incarnation",
        "label", "lives", "lives_lost", "made_from", "members", "names", "nursery", "on_end", "parent",
        "path", "plan", "raised", "reason", "restarts", "rt", "runners", "spec", "specs_of_unnamed",
        "started", "status",
    )  # fmt: skip

    def __init__(
        self,
        rt: Runtime,
        spec: SupervisorSpec | Pool[Any] | BulkSpec,
        members_of: Callable[[SupervisorLoop], Members],
        *,
        parent: SupervisorLoop | None = None,
        agent: Slot | None = None,
    ) -> None:
        self.rt = rt
        self.made_from: Spec = spec
        self.spec: SupervisorSpec = spec if isinstance(spec, SupervisorSpec) else spec.tree()
        self.parent = parent
        self.agent = agent
        self._stand_below(parent if agent is None else cast("SupervisorLoop", agent.owner))
        self.status: Status = "starting"
        self.incarnation: int = 0
        self.runners: Runners | None = None
        self.on_end: Callable[[ExitReason], None] | None = None
        self.plan: Plan[Child] = Plan(self.spec, tell=rt.starts.tell)
        self.names: Names[Child] = Names()
        self.inbox = Inbox(rt.timers)
        self.nursery: trio.Nursery | None = None
        self.alive = False
        self.ended: trio.Event = trio.Event()
        self.ended.set()
        self.started: trio.Event = trio.Event()
        self.failure: StartFailed | None = None
        self.reason: ExitReason | None = None
        self.raised: dict[Child, BaseException] = {}  # by children while they were being stopped
        self.restarts = self.failed_starts = self.lives_lost = 0
        self.specs_of_unnamed: dict[type, tuple[ChildSpec[Any], MailboxOptions]] = {}
        self._work = trio.CancelScope()
        self.brutal = False
        self._delays = Delays(rt.timers, self.inbox)
        self.away: dict[Child, None] = {}  # lost with their machine, in simulations
        self.at_once = 0  # requests carried out in the asker's step since the last checkpoint
        self._members_of = members_of
        self.members: Members = members_of(self)  # last: it may make slots of this loop

    # ---- where it is

    def _stand_below(self, above: SupervisorLoop | None) -> None:
        agent = self.agent
        self.above = above
        self.label: str = self.spec.name if agent is None else agent.label
        self.path: str = "root" if above is None else above.child_path(self.label)
        self._prefix = "" if above is None else f"{self.path}/"  # the root's children have their names alone
        self.lives: str = "" if above is None else above.lives  # of agents above it: chance differs in each
        if agent is not None:
            self.lives = f"{self.lives} {agent.incarnation}"
        self.ids: Ids = Ids() if above is None else above.ids  # of the whole node

    def child_path(self, name: str) -> str:
        """Return the path of a child with this name."""
        return self._prefix + name

    def place_of(self, sibling: Sibling) -> str:
        """Return the path, from the root, to which a child's reference leads. Raises ConfigError."""
        here: SupervisorLoop | None = self
        for _ in range(sibling.ups):
            here = None if here is None else here.above
        if here is None:
            raise ConfigError("leads above the root supervisor", repr(sibling))
        return here.child_path("/".join(sibling.names))

    def ref_to(self, sibling: Sibling) -> Ref[Any]:
        """Return a ref for the reference of a child: to the slot, if the slot exists already.

        Below a supervisor that has not started there are no slots, and the slots of temporary agents that
        have ended are removed. In both cases the ref looks up the path when it is used.
        """
        path, resolver = self.place_of(sibling), self.rt.resolver
        found = None if resolver is None else resolver.at(path)
        return Ref(LookupLink(self.rt, AgentQuery(None, path, is_place=True)) if found is None else found)

    @property
    def lineage(self) -> tuple[tuple[str, str], ...]:
        """The name and the strategy of each supervisor from the root down to this one."""
        above: list[SupervisorLoop] = [self]
        while (loop := above[-1].above) is not None:
            above.append(loop)
        return tuple((loop.label, loop.spec.strategy) for loop in reversed(above))

    # ---- what children ask of it

    def exited(self, child: Any, reason: ExitReason) -> None:
        """Queue the end of a child that has unwound, unless the supervisor itself is stopping it."""
        if child.status != "stopping" and self.alive:
            self.inbox.put((child, child.incarnation, reason))

    def raised_at_end(self, child: Any, error: BaseException) -> None:
        """Store an error that a child raised while it was being stopped; see the module docstring."""
        if child.status == "stopping":
            self.raised[child] = error

    def start_task(self, async_fn: Callable[..., Any], *args: Any, name: str, context: Context) -> None:
        """Start a task in the supervisor's nursery, in the given context."""
        if self.nursery is None:
            raise RuntimeError(f"supervisor {self.path} has no nursery")
        context.run(partial(self.nursery.start_soon, async_fn, *args, name=name))

    # ---- what users ask of it

    @property
    def idle(self) -> bool:
        """Whether the loop has nothing to do, so that the asker's task may carry out a request itself."""
        return self.inbox.idle and self.reason is None

    async def checkpoint_if_due(self) -> None:
        """Run a checkpoint once every `BUDGET` calls: work in the asker's task has no other checkpoint."""
        self.at_once = (self.at_once + 1) % BUDGET
        if self.at_once:
            await checkpoint_if_cancelled()
        else:
            await checkpoint()

    async def request(self, fn: Callable[[], Coroutine[Any, Any, Any]], *, is_start: bool = False) -> Any:
        """Run `fn` in the loop's own task, after the items that are already waiting; see `Request`.

        If an agent starts one of its own children and is cancelled meanwhile, the start is undone. Raises
        WrongState if the loop is not running, or StartFailed if it is not running because an agent's children
        could not start.
        """
        await checkpoint_if_cancelled()
        try:
            if not self.alive:
                raise WrongState(self.path, "not running", "nothing can be asked of it")
            return await self.inbox.ask(fn, cancellable=is_start and self.agent is not None)
        except WrongState:
            if self.agent is not None and self.failure is not None:
                raise self.failure from self.failure.__cause__
            raise

    # ---- its life

    @enable_ki_protection
    async def begin(self, start_soon: Callable[..., None]) -> None:
        """Start the loop's task by `start_soon`, and its children in order.

        Raises StartFailed once all children that had started have been stopped, in order. If this call is
        cancelled, call `stop`.
        """
        try:
            self.reset()
        except IdTaken as exc:
            raise StartFailed(self.path, str(exc), is_permanent=True) from exc
        start_soon(self.main, name=f"supervisor {self.path}")
        await self.started.wait()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def reset(self) -> None:
        """Begin a new incarnation and seat its first children; call `main` next. Raises IdTaken."""
        self.ids.check(self.spec.children, self)
        self.incarnation += 1
        self.reason = None
        self.brutal = False
        self.alive = True
        self.inbox.clear()
        self.started = trio.Event()
        self.ended = trio.Event()
        self._work = trio.CancelScope()
        before = tuple(self.plan.children)
        draw = self.rt.entropy.stream(f"backoff {self.path}{self.lives}").random
        self.plan = Plan(self.spec, draw, self.rt.starts.tell)
        self.names.clear()
        self.members.seat(before)

    def seat_listed(self, before: Sequence[Child]) -> None:
        """Seat the children that the spec lists in their former slots; remove children added later."""
        kept = {child.label: child for child in before}
        for spec in self.spec.children:
            child = kept.pop(spec.name, None)
            if child is None or spec is not (child.spec if isinstance(child, Slot) else child.made_from):
                child = self._new_child(spec, spec.name)
            child.status = "stopped"
            self.names.add(spec.name, child)
            self.plan.add(child)
        self._remove_all(kept.values())

    @enable_ki_protection
    async def main(self) -> None:
        """Run the supervisor, from the start of the first child to the end of the last."""
        self.failure = StartFailed(self.path, "it was stopped meanwhile")
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                self.runners = Runners(nursery)
                try:
                    with self._work:
                        await self.members.start()
                        await self._loop()
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop_children()
                    nursery.cancel_scope.cancel("the supervisor has ended")
        finally:
            self.nursery = None
            self.runners = None
            self.ended.set()
            started = self.started.is_set()
            self.started.set()
        if started and self.agent is None:  # for its children's supervisor, the agent does that
            self._report()

    def begun(self) -> None:
        """Record that the supervisor runs, and let `begin` return."""
        self.failure = None
        self.started.set()

    async def start_children(self) -> None:
        """Start the children of a new incarnation in order; a start that fails ends the supervisor."""
        children = tuple(self.plan.children)
        for place, child in enumerate(children):
            if not place % BUDGET:
                page = children[place : place + BUDGET]
                await read_states(self.rt, ((each.spec, each.path) for each in page))
            try:
                if not (self.is_away(child) or child.spec.optional):
                    await self.start_one(child)
            except (StartFailed, NameTaken) as exc:
                if self.is_away(child):
                    continue  # it was lost meanwhile
                self.failed_starts += 1
                self.failure = StartFailed(self.path, str(exc), is_permanent=exc.is_permanent)
                self.failure.__cause__ = exc.__cause__ or exc
                self.reason = SHUTDOWN
                return
        self.begun()

    async def start_one(self, child: Child) -> None:
        """Start a child and wait until it runs. Raises StartFailed, NameTaken, once it has fully ended."""
        self.plan.become(child, "starting")
        try:
            if isinstance(child, Slot):
                await start_agent(child)
            else:
                assert self.nursery is not None  # the loop runs, as only it starts children that need waiting
                await child.begin(self.nursery.start_soon)
        except BaseException:
            with trio.CancelScope(shield=True):
                await (child.wait_down() if isinstance(child, Slot) else child.stop())
            self.plan.become(child, "stopped")
            raise
        if not self.is_away(child):  # else it was lost in the same instant
            self.plan.started(child)
            self.announce((child,))

    async def start_again(self, child: Child) -> None:
        """See `Owner`."""
        await self.request(partial(self._start_suspended, child))

    async def _start_suspended(self, child: Child) -> None:
        # else it is being stopped, or has been started meanwhile
        if isinstance(child, Slot) and child.suspended and child.status == "running":
            failed = await self.try_to_start(child)
            if failed is not None:
                await self.carry_out(failed)

    def announce(self, children: Sequence[Child]) -> None:
        """Wake tasks that wait for an agent to appear, and start followings that wait for these children."""
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
        inbox = self.inbox
        while self.reason is None:
            for _ in range(BUDGET):
                if not inbox or self.reason is not None:
                    break
                await self._handle(inbox.take())
            if inbox:
                await checkpoint()
            elif self.reason is None:
                await inbox.park()

    async def _handle(self, item: Any) -> None:
        if isinstance(item, Request):
            await item.carry_out(self.path)
        elif self.rt.failed:  # the node ends with an exception: nothing is restarted any more
            return
        elif len(item) == 2:  # a restart that is due
            await self.carry_out(self.plan.try_again(item[1], trio.current_time()))
        else:
            child, incarnation, reason = item
            if child.incarnation == incarnation and not self.is_away(child):
                await self.carry_out(self.plan.exited(child, reason, trio.current_time()))

    async def carry_out(self, decision: Decision[Child]) -> None:
        """Carry out a decision of the plan, in the loop's own task."""
        while True:
            await stop_in_order(self, (child for child in decision.stop if not self.is_away(child)))
            for child in decision.forget:
                self.forget(child)
            failed = await self._start_all(decision.start) if decision.start else None
            if failed is None:
                break
            decision = failed
        if decision.again is not None:
            self._delays.put(decision.again, decision.delay)
        if decision.end == "intensity":
            spec = self.spec
            error = RestartIntensityExceeded(self.path, spec.max_restarts, spec.max_seconds, decision.causes)
            self.reason = ExitReason("shutdown", error=error)
        elif decision.end is not None:
            self.reason = SHUTDOWN

    async def _start_all(self, children: tuple[Child, ...]) -> Decision[Child] | None:
        for child in children:
            if self.is_away(child):
                continue
            self.restarts += bool(child.incarnation or not child.spec.optional)
            if self.rt.instrument is not None:
                self.rt.instrument.record("restarting", child.path, {})
            failed = await self.try_to_start(child)
            if failed is not None:
                return failed
        return None

    async def try_to_start(self, child: Child) -> Decision[Child] | None:
        """Start a child; return the next decision if it could not start, else None."""
        try:
            await self.start_one(child)
        except (StartFailed, NameTaken) as exc:
            if self.is_away(child):
                return None
            self.failed_starts += 1
            return self.plan.start_failed(child, exc.__cause__ or exc, trio.current_time())
        return None

    def is_away(self, child: Child) -> bool:
        """Return whether a child was lost with its machine, which is still away; see `lose` (`_tree.py`)."""
        return child in self.away

    def drop_delay(self, child: Child) -> None:
        """Cancel a delayed restart of the child."""
        self._delays.drop(child)

    def is_delayed(self, child: Child) -> bool:
        """Return whether a restart of the child is delayed."""
        return child in self._delays

    # ---- its end

    def interrupt(self, why: str) -> None:
        """End the loop, whatever it is doing; keep an earlier reason."""
        if self.reason is None:
            self.reason = SHUTDOWN
        self._work.cancel(why)
        self.inbox.wake()

    async def stop(self, shutdown: float | str = "infinity") -> None:
        """Stop the children in reverse order, then end; after `shutdown` seconds, kill all that is left."""
        if not self.alive:
            await self.ended.wait()
            return
        self.interrupt("the supervisor is stopping")
        if shutdown == "brutal":
            self.kill()
        elif shutdown != "infinity":
            with trio.move_on_after(float(shutdown)):
                await self.ended.wait()
                return
            self.kill()
        await self.ended.wait()

    @enable_ki_protection
    def kill(self) -> None:
        """Stop everything below immediately, without draining."""
        being_killed = self.rt.being_killed
        being_killed.append(self)
        if len(being_killed) == 1:  # else the call that works the list off comes to this one
            for loop in being_killed:  # it grows meanwhile
                loop._kill()
            being_killed.clear()

    def _kill(self) -> None:
        self.brutal = True
        if self.reason is None:
            self.reason = SHUTDOWN
        self._work.cancel("the supervisor was killed")
        for child in tuple(self.plan.children):
            if isinstance(child, Slot):
                child.stop(SHUTDOWN, "brutal")
            else:
                child.kill()

    async def _stop_children(self) -> None:
        await stop_in_order(self, self.plan.stop_order())
        self.plan.all_stopped()
        self.alive = False
        self._delays.clear()
        while self.inbox:
            item = self.inbox.take()
            if isinstance(item, Request):
                item.refuse(self.path)

    async def stop_one(self, child: Child) -> None:
        """Stop a child and wait until it has ended fully; a temporary child is forgotten."""
        await stop_together(self, (child,))

    def _report(self) -> None:
        reason = self.reason or NORMAL
        raised = self.take_raised()
        if raised and self.parent is not None and self.status == "stopping":
            self.parent.raised_at_end(self, merged_error(self.path, raised))
        elif raised:
            reason = with_raised(reason, self.path, raised)
        if self.parent is not None:
            self.parent.exited(self, reason)
        elif self.on_end is not None:
            self.on_end(reason)

    def take_raised(self) -> tuple[BaseException, ...]:
        """Return the errors that children raised while they were being stopped, and clear them."""
        raised = tuple(self.raised.values())
        self.raised.clear()
        return raised

    # ---- children come and go

    def _new_child(self, spec: Spec, name: str) -> Child:
        if isinstance(spec, ChildSpec):
            slot = self.new_slot(spec, name, mailbox_of(spec))
            self.ids.take(slot)
            return slot
        loop = SupervisorLoop(self.rt, spec, self._members_of, parent=self)
        self.rt.tally.supervisors[loop] = None
        return loop

    def new_slot(self, spec: ChildSpec[Any], name: str | int, mailbox: MailboxOptions) -> Slot:
        """Make the slot of a child, which is known by a name, or by its spec's name and a number."""
        slot: Slot = self.rt.link(self.rt, self, spec, name, mailbox)
        self.rt.tally.untallied.append(slot)
        return slot

    def reserve(self, spec: Spec) -> Child:
        """Make a new child and register its name; call `start_new` (`_members.py`) next.

        Raises NameTaken; IdTaken; ConfigError for a spec that does not fit this supervisor or its tree.
        """
        self.spec.check_child(spec)
        if not isinstance(spec, ChildSpec) or spec.references:
            check_beside(spec, self.place_of, self.rt.resolver)
        if isinstance(spec, ChildSpec) and spec.id is not None:
            self.ids.check((spec,), None)
        if self.above is None:
            check_top(spec)
        if self.plan.check_start(self.members.find(spec.name)) != "ok":
            raise NameTaken(spec.name, self.path)
        child = self._new_child(spec, spec.name)
        self.names.add(spec.name, child)
        return child

    def forget(self, child: Child) -> None:
        """Remove a child and its slot, because its spec is gone."""
        self._delays.drop(child)
        self.names.forget(child.label, child)
        self._remove_all((child,))

    def remove(self) -> None:
        """Empty all slots below permanently, as the spec is gone or the node has ended."""
        self.rt.tally.supervisors.pop(self, None)
        self._remove_all(self.plan.children)
        self.members.close()

    def _remove_all(self, children: Iterable[Child]) -> None:
        for child in children:
            child.remove()
            if isinstance(child, Slot):
                self.ids.free(child)
            self.rt.population.changed((child,))
