"""Carries plans out: ordered start, reverse stop, restarts, children started at run time.

A supervisor is one task. It handles one message at a time, as OTP's does: the end of a child, a restart
that is due, a request. What decides is `_plan.py`; what happens to the agents is theirs. The tasks of its
children (runners, holders, supervisors below) are children of its nursery.

A request that needs no waiting, made while the supervisor has nothing to do, is carried out in the
asker's own step: starting an agent then costs no task switch.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs
import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from lmos_actors._errors import (
    NameTaken,
    NotFound,
    RestartIntensityExceeded,
    StartFailed,
    WrongState,
)
from lmos_actors.actors import (
    DEFAULT_MAILBOX,
    NORMAL,
    SHUTDOWN,
    ExitReason,
    LocalLink,
    Ref,
    Runners,
)

from ._plan import Decision, Plan
from ._spec import ChildSpec, SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from lmos_actors._timers import Timer
    from lmos_actors.actors import Runtime

    from ._plan import Counts, Status

A = TypeVar("A")
Child: TypeAlias = "LocalLink | Supervisor"

BUDGET = 64  # messages between checkpoints


@attrs.frozen
class ChildInfo:
    """One child, as `which_children` shows it; `kind` is `agent` or `supervisor`."""

    name: str
    path: str
    kind: str
    status: Status
    incarnation: int


@attrs.frozen
class SupervisorStatistics:
    """Counts of one supervisor: its children, how many are alive, restarts carried out, failed starts."""

    specs: int
    active: int
    supervisors: int
    workers: int
    restarts: int
    failed_starts: int


class _Request:
    """A request to the supervisor; its asker waits, the supervisor carries it out whether or not."""

    __slots__ = ("done", "error", "fn", "task", "value")

    def __init__(self, fn: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.fn = fn
        self.task: trio.lowlevel.Task | None = None
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None


class Supervisor:
    """A supervisor in a running tree, over all its incarnations."""

    def __init__(self, rt: Runtime, spec: SupervisorSpec, parent: Supervisor | None) -> None:
        self.rt = rt
        self.spec = spec
        self.parent = parent
        self.status: Status = "starting"
        self.incarnation = 0
        self.runners: Runners | None = None
        self.on_end: Callable[[ExitReason], None] | None = None
        self._plan: Plan[Child] = Plan(spec)
        self._names: dict[str, Child] = {}
        self._ordinals: dict[str, int] = {}
        self._counted: dict[str, int] = {}  # of those: the last that `start_many` gave
        self._inbox: deque[Any] = deque()
        self._task: trio.lowlevel.Task | None = None
        self._nursery: trio.Nursery | None = None
        self._work = trio.CancelScope()
        self._reason: ExitReason | None = None
        self._brutal = False
        self._alive = False
        self._ended: trio.Event = trio.Event()
        self._ended.set()
        self._delayed: dict[Child, Timer] = {}
        self._restarts = 0
        self._failed_starts = 0

    # ---- where it is

    @property
    def path(self) -> str:
        """Its place in the tree; `root` for the root."""
        return "root" if self.parent is None else self.parent.child_path(self.spec.name)

    @property
    def label(self) -> str:
        """Its name as a child."""
        return self.spec.name

    def child_path(self, name: str) -> str:
        """Give the path of a child of that name: the root's children have their names alone."""
        return name if self.parent is None else f"{self.path}/{name}"

    # ---- what children ask of it

    def exited(self, child: Child, reason: ExitReason) -> None:
        """A child has ended and unwound; unless the supervisor itself is stopping it, that is news."""
        if child.status != "stopping" and self._alive:
            self._inbox.append((child, child.incarnation, reason))
            self._wake()

    def start_task(self, async_fn: Callable[..., Any], *args: Any, name: str, context: Context) -> None:
        """Start a task in the supervisor's nursery, in the given context."""
        nursery = self._nursery
        if nursery is None:
            raise RuntimeError(f"supervisor {self.path} has no nursery")
        context.run(partial(nursery.start_soon, async_fn, *args, name=name))

    def _wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self.rt.timers.woke = True
            reschedule(task)

    # ---- life

    async def start(self) -> None:
        """Start it and its children in order. Raises StartFailed; then nothing of it runs."""
        parent = self.parent
        if parent is None or parent._nursery is None:
            raise RuntimeError("a supervisor is started by its parent")
        await parent._nursery.start(self.main)

    @enable_ki_protection
    async def main(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be the supervisor, from the start of the first child to the end of the last."""
        self._reset()
        started = False
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.runners = Runners(nursery)
                try:
                    await self._start_children()
                    started = True
                    task_status.started()
                    await self._loop()
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop_children()
                    nursery.cancel_scope.cancel("the supervisor has ended")
        except BaseExceptionGroup as exc:
            if not started and len(exc.exceptions) == 1:
                only = exc.exceptions[0]
                raise only from only.__cause__
            raise
        finally:
            self._nursery = None
            self.runners = None
            self._ended.set()
        self._report()

    def _reset(self) -> None:
        self.incarnation += 1
        self._reason = None
        self._brutal = False
        self._alive = True
        self._inbox.clear()
        self._ended = trio.Event()
        self._work = trio.CancelScope()
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        kept = {child.label: child for child in self._plan.children}
        self._plan = Plan(self.spec, self.rt.entropy.stream(f"backoff {self.path}").random)
        self._names = {}
        for spec in self.spec.children:
            child = kept.pop(spec.name, None)
            if child is None or child.spec is not spec:
                child = self._new_child(spec, spec.name)
            child.status = "stopped"
            self._names[spec.name] = child
            self._plan.add(child)
        for child in kept.values():
            self._bury(child)

    async def _start_children(self) -> None:
        for child in tuple(self._plan.children):
            try:
                await self._start_one(child)
            except StartFailed as exc:
                self._failed_starts += 1
                raise StartFailed(self.path, str(exc)) from (exc.__cause__ or exc)

    async def _start_one(self, child: Child) -> None:
        child.status = "starting"
        try:
            await child.start()
        except BaseException:
            if isinstance(child, LocalLink):
                with trio.CancelScope(shield=True):
                    await child.wait_down()
            child.status = "stopped"
            raise
        self._plan.started(child)
        self._announce()

    def _announce(self) -> None:
        waiting = self.rt.appeared
        if waiting:
            self.rt.appeared = []
            for task in waiting:
                reschedule(task)

    async def _loop(self) -> None:
        with self._work:
            while self._reason is None:
                for _ in range(BUDGET):
                    if not self._inbox or self._reason is not None:
                        break
                    await self._handle(self._inbox.popleft())
                if self._inbox:
                    await checkpoint()
                elif self._reason is None:
                    await self._park()

    async def _park(self) -> None:
        self._task = current_task()

        def abort(_: object) -> Abort:
            self._task = None
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    async def _handle(self, item: Any) -> None:
        if isinstance(item, _Request):
            await self._answer(item)
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
            failed = await self._start_all(decision.start)
            if failed is None:
                break
            decision = failed
        if decision.again is not None:
            self._try_later(decision.again, decision.delay)
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

    def _try_later(self, child: Child, delay: float) -> None:
        def due() -> None:
            if self._alive:
                self._inbox.append(("again", child))
                self._wake()

        earlier = self._delayed.pop(child, None)
        if earlier is not None:
            earlier.cancel()
        if delay:
            self._delayed[child] = self.rt.timers.call_at(trio.current_time() + delay, due)
        else:
            due()

    # ---- end

    async def stop(self, reason: ExitReason = SHUTDOWN, shutdown: float | str = "infinity") -> None:
        """Stop the children in reverse order, then end; past `shutdown` seconds, at once."""
        if not self._alive:
            await self._ended.wait()
            return
        if self._reason is None:
            self._reason = reason
        self._work.cancel("the supervisor is stopping")
        self._wake()
        if shutdown == "brutal":
            self.kill()
        elif shutdown != "infinity":
            with trio.move_on_after(float(shutdown)):
                await self._ended.wait()
                return
            self.kill()
        await self._ended.wait()

    def kill(self) -> None:
        """Give nobody below any more time."""
        self._brutal = True
        if self._reason is None:
            self._reason = SHUTDOWN
        self._work.cancel("the supervisor was killed")
        for child in tuple(self._plan.children):
            if isinstance(child, Supervisor):
                child.kill()
            else:
                child.stop(SHUTDOWN, "brutal")

    async def _stop_children(self) -> None:
        for count, child in enumerate(self._plan.stop_order(), start=1):
            await self._stop_one(child)
            if not count % BUDGET:
                await checkpoint()
        self._alive = False
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, _Request):
                self._refuse(item)

    async def _stop_one(self, child: Child) -> None:
        child.status = "stopping"
        shutdown = "brutal" if self._brutal else child.spec.shutdown
        if isinstance(child, Supervisor):
            await child.stop(SHUTDOWN, shutdown)
        elif not child.stop(SHUTDOWN, shutdown):
            await child.wait_down()
        if self._plan.stopped(child):
            self._forget(child)

    def _report(self) -> None:
        reason = self._reason or NORMAL
        if self.parent is not None:
            self.parent.exited(self, reason)
        elif self.on_end is not None:
            self.on_end(reason)

    def _forget(self, child: Child) -> None:
        """The child's spec is gone, and with it the slot."""
        if self._names.get(child.label) is child:
            del self._names[child.label]
        self._bury(child)

    def _bury(self, child: Child) -> None:
        if isinstance(child, Supervisor):
            for below in tuple(child._plan.children):
                child._bury(below)
        else:
            child.bury()

    # ---- requests

    async def request(self, fn: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Have the supervisor's own task carry something out, after what it is about."""
        await checkpoint_if_cancelled()
        if not self._alive:
            raise WrongState(self.path, "not running", "nothing can be asked of it")
        request = _Request(fn)
        self._inbox.append(request)
        self._wake()
        request.task = current_task()

        def abort(_: object) -> Abort:
            request.task = None
            return Abort.SUCCEEDED

        try:
            await wait_task_rescheduled(abort)
        except BaseException:
            if request in self._inbox:
                self._inbox.remove(request)
            raise
        if request.error is not None:
            raise request.error
        return request.value

    async def _answer(self, request: _Request) -> None:
        try:
            request.value = await request.fn()
        except Exception as exc:
            request.error = exc
        except trio.Cancelled:
            request.error = WrongState(self.path, "stopping", "it does nothing more")
            self._finish(request)
            raise
        self._finish(request)

    def _refuse(self, request: _Request) -> None:
        request.error = WrongState(self.path, "stopping", "it does nothing more")
        self._finish(request)

    def _finish(self, request: _Request) -> None:
        task, request.task = request.task, None
        if task is not None:
            self.rt.timers.woke = True
            reschedule(task)

    @property
    def idle(self) -> bool:
        """It waits for something to do: what needs no waiting may be done in the asker's step."""
        return self._task is not None and not self._inbox and self._reason is None

    async def start_child(self, spec: ChildSpec[A]) -> Ref[A]:
        """Start one more child, last in order. Raises NameTaken, StartFailed: then nothing is kept."""
        return Ref(await self._add(spec, spec.name))

    async def start_supervisor(self, spec: SupervisorSpec) -> Supervisor:
        """Start one more supervisor as a child. Raises NameTaken, StartFailed."""
        child: Supervisor = await self._add(spec, spec.name)
        return child

    async def start_named(self, factory: Callable[[], A], base: str) -> Ref[A]:
        """Start an agent under the first free of the names `base`, `base-2`, `base-3`, …"""
        name = base
        while name in self._names:
            self._ordinals[base] = self._ordinals.get(base, 1) + 1
            name = f"{base}-{self._ordinals[base]}"
        return await self.start_child(ChildSpec(name, factory))

    async def start_many(self, spec: ChildSpec[A], count: int) -> list[Ref[A]]:
        """Start `count` agents of one spec, named `name-1`, `name-2`, …; all or, on StartFailed, none."""
        if count < 0:
            raise ValueError(f"start_many() needs a count of at least 0, not {count}")
        self.spec.check_child(spec)
        first = self._first_free(spec.name)
        self._ordinals[spec.name] = self._counted[spec.name] = first + count - 1
        if self.idle and not _needs_waiting(spec):
            return await self._many_now(spec, first, count)
        refs: list[Ref[A]] = await self.request(partial(self._many, spec, first, count))
        return refs

    def _first_free(self, base: str) -> int:
        """Give the first number after all that children called `base-n` have had."""
        taken = [int(name[len(base) + 1 :]) for name in self._names if _is_numbered(name, base)]
        return max(self._ordinals.get(base, 0), *taken, 0) + 1

    async def _many_now(self, spec: ChildSpec[A], first: int, count: int) -> list[Ref[A]]:
        await checkpoint_if_cancelled()
        refs: list[Ref[A]] = []
        mailbox = _mailbox(spec)
        add, started, rt = self._plan.add, self._plan.started, self.rt
        try:
            for ordinal in range(first, first + count):
                child = rt.link(rt, self, spec, ordinal, mailbox)
                child.start_now()
                add(child)
                started(child)
                refs.append(Ref(child))
        except StartFailed:
            self._failed_starts += 1
            self._undo(refs)
            raise
        self._announce()
        return refs

    def _undo(self, refs: list[Ref[Any]]) -> None:
        for ref in reversed(refs):
            child: Any = ref._link
            child.status = "stopping"
            child.stop(SHUTDOWN, "brutal")
            self._plan.stopped(child)
            self._plan.remove(child)
            child.bury()

    async def _many(self, spec: ChildSpec[A], first: int, count: int) -> list[Ref[A]]:
        children: list[LocalLink] = []
        try:
            for ordinal in range(first, first + count):
                child = self.rt.link(self.rt, self, spec, ordinal, _mailbox(spec))
                await self._start_new(child)
                children.append(child)
        except BaseException:
            with trio.CancelScope(shield=True):
                for started in reversed(children):
                    await self._stop_one(started)
                    self._plan.remove(started)
                    self._forget(started)
            raise
        return [Ref(child) for child in children]

    async def _add(self, spec: ChildSpec[Any] | SupervisorSpec, name: str) -> Any:
        if self.idle and isinstance(spec, ChildSpec) and not _needs_waiting(spec):
            await checkpoint_if_cancelled()
            child = self._claim(spec, name)
            try:
                child.start_now()
            except StartFailed:
                self._failed_starts += 1
                self._plan.remove(child)
                self._forget(child)
                raise
            self._plan.add(child)
            self._plan.started(child)
            self._announce()
            return child
        return await self.request(partial(self._add_waiting, spec, name))

    async def _add_waiting(self, spec: ChildSpec[Any] | SupervisorSpec, name: str) -> Child:
        child: Child = self._claim(spec, name)
        await self._start_new(child)
        return child

    async def _start_new(self, child: Child) -> None:
        self._plan.add(child)
        try:
            await self._start_one(child)
        except BaseException:
            self._failed_starts += 1
            self._plan.remove(child)
            self._forget(child)
            raise

    def _claim(self, spec: ChildSpec[Any] | SupervisorSpec, name: str) -> Any:
        self.spec.check_child(spec)
        taken = self._names.get(name) or self._numbered(name)
        if self._plan.check_start(taken) != "ok":
            raise NameTaken(name, self.path)
        child = self._names[name] = self._new_child(spec, name)
        return child

    def _new_child(self, spec: ChildSpec[Any] | SupervisorSpec, name: str) -> Child:
        if isinstance(spec, SupervisorSpec):
            return Supervisor(self.rt, spec, self)
        slot: LocalLink = self.rt.link(self.rt, self, spec, name, _mailbox(spec))
        return slot

    async def terminate_child(self, name: str) -> None:
        """Stop a child and keep its spec, unless it is temporary. Raises NotFound."""
        await self.request(partial(self._terminate, name))

    async def _terminate(self, name: str) -> None:
        await self._stop_one(self._child(name))

    async def restart_child(self, name: str) -> None:
        """Start a child that is stopped. Raises NotFound, WrongState, StartFailed (the spec is kept)."""
        await self.request(partial(self._restart, name))

    async def _restart(self, name: str) -> None:
        child = self._child(name)
        self._check(child, self._plan.check_restart(child), "only a stopped child is restarted")
        await self._start_one(child)

    async def delete_child(self, name: str) -> None:
        """Forget the spec of a child that is stopped. Raises NotFound, WrongState."""
        await self.request(partial(self._delete, name))

    async def _delete(self, name: str) -> None:
        child = self._child(name)
        self._check(child, self._plan.check_delete(child), "only a stopped child is deleted")
        self._plan.remove(child)
        self._forget(child)

    @staticmethod
    def _check(child: Child, verdict: str, needs: str) -> None:
        if verdict != "ok":
            raise WrongState(child.path, verdict, needs)

    # ---- looking

    def _child(self, name: str) -> Child:
        child = self._names.get(name) or self._numbered(name)
        if child is None:
            raise NotFound("child", name, where=self.path, known=self._names)
        return child

    def _numbered(self, name: str) -> Child | None:
        base, _, ordinal = name.rpartition("-")
        if not ordinal.isdecimal() or not 0 < int(ordinal) <= self._counted.get(base, 0):
            return None
        return next((child for child in self._plan.children if child.label == name), None)

    def _agent(self, name: str) -> LocalLink:
        child = self._child(name)
        if not isinstance(child, LocalLink):
            raise NotFound("agent", name, where=self.path)
        return child

    def child(self, name: str) -> Ref[Any]:
        """Give a ref to a child agent. Raises NotFound."""
        return Ref(self._agent(name))

    def supervisor(self, name: str) -> Supervisor:
        """Give a supervisor among the children. Raises NotFound."""
        child = self._child(name)
        if not isinstance(child, Supervisor):
            raise NotFound("supervisor", name, where=self.path)
        return child

    @property
    def children(self) -> tuple[Child, ...]:
        """All children in start order, whatever their status."""
        return tuple(self._plan.children)

    def which_children(self) -> list[ChildInfo]:
        """Say which children there are, in start order, and how each stands."""
        return [
            ChildInfo(
                name=child.label,
                path=child.path,
                kind="supervisor" if isinstance(child, Supervisor) else "agent",
                status=status,
                incarnation=child.incarnation,
            )
            for child, status in self._plan.which()
        ]

    def count_children(self) -> Counts:
        """Count specs, children alive, supervisors and workers, as OTP does."""
        return self._plan.count()

    def statistics(self) -> SupervisorStatistics:
        """Count children, restarts and failed starts."""
        counts = self._plan.count()
        return SupervisorStatistics(*counts, restarts=self._restarts, failed_starts=self._failed_starts)


def _is_numbered(name: str, base: str) -> bool:
    head, _, ordinal = name.rpartition("-")
    return head == base and ordinal.isdecimal()


def _mailbox(spec: ChildSpec[Any]) -> Any:
    if spec.mailbox is not None:
        return spec.mailbox
    contract = _contract_of(spec)
    return (contract.mailbox if contract is not None else None) or DEFAULT_MAILBOX


def agent_class(spec: ChildSpec[Any]) -> type | None:
    """Give the agent class a spec makes, through partials; None when only a call would tell."""
    factory: Any = spec.factory
    while isinstance(factory, partial):
        factory = factory.func  # pyright: ignore[reportUnknownMemberType]
    return factory if isinstance(factory, type) and hasattr(factory, "__contract__") else None


def _contract_of(spec: ChildSpec[Any]) -> Any:
    return getattr(agent_class(spec), "__contract__", None)


def _needs_waiting(spec: ChildSpec[Any]) -> bool:
    contract = _contract_of(spec)
    return contract is None or contract.has_lifespan
