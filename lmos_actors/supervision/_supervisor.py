"""The requests that a supervisor takes: starting, stopping and deleting children at run time; looking around.

A request that needs no waiting, made while the supervisor has nothing to do, is carried out in the
asker's own step: starting an agent then costs no task switch. Any other goes through its inbox.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import attrs
import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import SHUTDOWN, Ref, Slot, awaited
from lmos_actors.errors import ConfigError, NameTaken, NotFound, StartFailed, StopFailed, WrongState

from ._children import ChildInfo, mailbox_of, needs_waiting
from ._ids import check_top
from ._siblings import class_of, name_of
from ._spec import ChildSpec, Pool, SupervisorSpec
from ._supervisor_loop import BUDGET, SupervisorLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lmos_actors.actors import MailboxOptions, Runtime

    from ._plan import Counts
    from ._pool import PoolRef
    from ._spec import Spec
    from ._supervisor_loop import Child

A = TypeVar("A")


@attrs.frozen
class SupervisorStatistics:
    """Counts of one supervisor: its children, how many are alive, restarts carried out, failed starts."""

    specs: int
    active: int
    supervisors: int
    workers: int
    restarts: int
    failed_starts: int


class Supervisor(SupervisorLoop):
    """A supervisor in a running tree, over all its incarnations."""

    starts_are_cancellable: ClassVar[bool] = False
    """Whether a start is undone whose asker is cancelled meanwhile."""

    def __init__(self, rt: Runtime, spec: SupervisorSpec, parent: SupervisorLoop | None) -> None:
        super().__init__(rt, spec, parent)
        self._at_once = 0
        self._unnamed: dict[type, tuple[ChildSpec[Any], MailboxOptions]] = {}

    # ---- requests

    async def _checkpoint_if_due(self) -> None:
        """Let others run every so often, as what is done in the asker's step would not."""
        self._at_once = (self._at_once + 1) % BUDGET
        if self._at_once:
            await checkpoint_if_cancelled()
        else:
            await checkpoint()

    async def request(self, fn: Callable[[], Coroutine[Any, Any, Any]], *, cancellable: bool = False) -> Any:
        """Have the supervisor's own task carry something out, after what it is about; see `Request`."""
        await checkpoint_if_cancelled()
        if not self._alive:
            raise WrongState(self.path, "not running", "nothing can be asked of it")
        return await self._inbox.ask(fn, cancellable=cancellable)

    async def settled(self) -> None:
        """Wait until every end of a child so far has been dealt with: restarts carried out or given up.

        A restart that a back-off delays counts as dealt with. If this supervisor itself gives up, wait until
        those above it have dealt with that.
        """
        ended, parent = self._ended, self.parent
        try:
            await self.request(_nothing)
            while any(c.status == "restarting" and c not in self._delays for c in self.children):
                await self.request(_nothing)
        except WrongState:
            await ended.wait()
            if isinstance(parent, Supervisor):
                await parent.settled()

    @property
    def idle(self) -> bool:
        """It waits for something to do: what needs no waiting may be done in the asker's step."""
        return self._inbox.idle and self._reason is None

    @awaited("supervisor.")
    async def start_child(self, spec: ChildSpec[A]) -> Ref[A]:
        """Start one more child, last in order. Raises NameTaken, StartFailed: then nothing is kept."""
        _check_type(spec, ChildSpec)
        return Ref(await self._add(spec))

    @awaited("supervisor.")
    async def start_supervisor(self, spec: SupervisorSpec) -> Supervisor:
        """Start one more supervisor as a child. Raises NameTaken, StartFailed."""
        _check_type(spec, SupervisorSpec)
        child: Supervisor = await self._add(spec)
        return child

    @awaited("supervisor.")
    async def start_pool(self, spec: Pool[A]) -> PoolRef[A]:
        """Start a pool and its members as a child. Raises NameTaken (if it was named), StartFailed."""
        _check_type(spec, Pool)
        child = await self._add(spec, numbered=spec.unnamed)
        ref: PoolRef[A] = child.ref
        return ref

    @enable_ki_protection
    async def start_named(self, factory: Callable[..., A], made: Callable[[], A]) -> Ref[A]:
        """Start an agent under the first free name that its class yields: `echo`, `echo-2`, `echo-3`, …

        `made` is the factory, or a partial of it.
        """
        known = self._unnamed.get(factory) if isinstance(factory, type) else None
        if known is None:
            return Ref(await self._add(self._spec_of_unnamed(factory, made), numbered=True))
        # agents of a class may be started one by one by the thousand: this is `_add`, without what is known
        base, mailbox = known
        spec = base if made is factory else ChildSpec(base.name, made)
        self._at_once = turn = (self._at_once + 1) % BUDGET
        if turn:
            await checkpoint_if_cancelled()
        else:
            await checkpoint()
        number = self._names.next_number(spec.name) if self.idle else None
        if number is None:
            return Ref(await self._add(spec, numbered=True))
        if spec.references:
            self._check_references(spec)
        child = self._new_slot(spec, number, mailbox)
        try:
            self._begin(child)
        except StartFailed:
            await self._undo_start(child)
            raise
        return Ref(child)

    def _spec_of_unnamed(self, factory: Callable[..., A], made: Callable[[], A]) -> ChildSpec[A]:
        """Make the spec of an agent that nobody named; those of a class that starts quickly may share one."""
        spec = ChildSpec(name_of(factory), made)
        if isinstance(factory, type) and not needs_waiting(spec):
            shared = spec if made is factory else ChildSpec(spec.name, factory)
            self._unnamed[factory] = shared, mailbox_of(spec)
        return spec

    @awaited("supervisor.")
    async def start_many(self, spec: ChildSpec[A], count: int) -> list[Ref[A]]:
        """Start `count` agents of one spec, named `name-1`, `name-2`, …; all or, on StartFailed, none."""
        _check_type(spec, ChildSpec)
        if count < 0:
            raise ValueError(f"start_many() needs a count of at least 0, not {count}")
        self.spec.check_child(spec)
        if spec.id is not None:
            raise ConfigError("is one agent's alone, and start_many() starts several", f"{spec.name}.id")
        self._check_references(spec)
        first = self._names.reserve(spec.name, count)
        if self.idle and not needs_waiting(spec):
            return await self._many_now(spec, first, count)
        refs: list[Ref[A]] = await self.request(
            partial(self._many, spec, first, count), cancellable=self.starts_are_cancellable
        )
        return refs

    @enable_ki_protection
    async def _many_now(self, spec: ChildSpec[A], first: int, count: int) -> list[Ref[A]]:
        await checkpoint_if_cancelled()
        children: list[Slot] = []
        mailbox = mailbox_of(spec)
        add, started, rt = self._plan.add, self._plan.started, self.rt
        try:
            for ordinal in range(first, first + count):
                child = rt.link(rt, self, spec, ordinal, mailbox)
                children.append(child)
                child.start_now()
                add(child)
                started(child)
        except StartFailed:
            self._failed_starts += 1
            rt.tally.untallied.extend(children)
            self._undo_many(children)
            raise
        rt.tally.untallied.extend(children)
        self._announce(children)
        return [Ref(child) for child in children]

    def _undo_many(self, children: list[Slot]) -> None:
        for child in reversed(children):
            child.status = "stopping"
            child.stop(SHUTDOWN, "brutal")
            self._plan.stopped(child)
            self._plan.remove(child)
            self._names.forget(child.label, child)
            child.remove()

    async def _many(self, spec: ChildSpec[A], first: int, count: int) -> list[Ref[A]]:
        children: list[Slot] = []
        try:
            for ordinal in range(first, first + count):
                child = self._new_slot(spec, ordinal, mailbox_of(spec))
                await self._start_new(child)
                children.append(child)
        except BaseException:
            await self._take_back(children)
            raise
        return [Ref(child) for child in children]

    async def _take_back(self, children: list[Slot]) -> None:
        with trio.CancelScope(shield=True):
            for started in reversed(children):
                await self._stop_one(started)
                self._plan.remove(started)
                self._forget(started)

    @enable_ki_protection
    async def _add(self, spec: Spec, *, numbered: bool = False) -> Any:
        await self._checkpoint_if_due()
        if self.idle and isinstance(spec, ChildSpec) and not needs_waiting(spec):
            child = self._reserve_child(spec, numbered)
            try:
                self._begin(child)
            except StartFailed:
                await self._undo_start(child)
                raise
            return child
        return await self.request(
            partial(self._add_waiting, spec, numbered), cancellable=self.starts_are_cancellable
        )

    def _begin(self, child: Slot) -> None:
        """Start a child whose start needs no waiting. Raises StartFailed: `_undo_start` is next."""
        child.start_now()
        self._plan.add(child)
        self._plan.started(child)
        self._announce((child,))

    async def _undo_start(self, child: Slot) -> None:
        self._failed_starts += 1
        with trio.CancelScope(shield=True):
            await child.wait_down()  # `started()` may have begun tasks
        self._forget(child)

    async def _add_waiting(self, spec: Spec, numbered: bool) -> Child:
        child: Child = self._reserve_child(spec, numbered)
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

    def _reserve_child(self, spec: Spec, numbered: bool) -> Any:
        self.spec.check_child(spec)
        if not isinstance(spec, ChildSpec) or spec.references:
            self._check_references(spec)
        if numbered:  # not before it is its turn, as others in line take names too
            if isinstance(spec, ChildSpec):
                number = self._names.next_number(spec.name)
                if number is not None:
                    return self._new_slot(spec, number, mailbox_of(spec))
            else:
                spec = attrs.evolve(spec, name=self._names.first_free(spec.name))
        name = spec.name
        self.ids.check((spec,), None)
        if self.above is None:
            check_top(spec)
        taken = self.named(name)
        if self._plan.check_start(taken) != "ok":
            raise NameTaken(name, self.path)
        child = self._new_child(spec, name)
        self._names.give(name, child)
        return child

    def _check_references(self, spec: Spec) -> None:
        """Raise ConfigError unless what a new child refers to beside it is there, and of the right class."""
        for reference in spec.outward if isinstance(spec, SupervisorSpec) else spec.references:
            sibling = reference.sibling
            if isinstance(spec, SupervisorSpec):
                sibling = reference.from_above(spec.name).sibling
            path = self.place_of(sibling)
            found = None if self.rt.resolver is None else self.rt.resolver.at(path)
            if found is None:
                raise ConfigError(f"there is no agent {path!r} in this node", reference.place)
            placed = found if isinstance(found, Slot) else found.placed
            made_from = placed.spec if isinstance(placed, Slot) else placed.made_from
            reference.check_class(class_of(made_from.factory))

    def terminate_child(self, name: str) -> Coroutine[Any, Any, None]:
        """Stop a child and keep its spec, unless it is temporary.

        Raises NotFound; StopFailed when the child has stopped, but raised while it ended.
        """
        turns = self.rt.turns  # as `awaited` does, at less cost: this is done by the thousand
        if turns.slot is not None:
            raise turns.misuse("terminate_child", of="supervisor.")
        return self._terminate_child(name)

    @enable_ki_protection
    async def _terminate_child(self, name: str) -> None:
        await self._checkpoint_if_due()
        if self.idle:
            child = self._child(name)
            if isinstance(child, Slot) and child.at_rest:
                await self._stop_one(child)
                return
        await self.request(partial(self._terminate, name))

    async def _terminate(self, name: str) -> None:
        child = self._child(name)
        await self._stop_one(child)
        error = self._raised.pop(child, None)
        if error is not None:
            raise StopFailed(child.path) from error

    @awaited("supervisor.")
    async def restart_child(self, name: str) -> None:
        """Start a child that is stopped. Raises NotFound, WrongState, StartFailed (the spec is kept)."""
        await self.request(partial(self._restart, name))

    async def _restart(self, name: str) -> None:
        child = self._child(name)
        self._check(child, self._plan.check_restart(child), "only a stopped child is restarted")
        await self._start_one(child)

    def postpone_restart(self, name: str, seconds: float) -> None:
        """Have a child that ends next be restarted so many seconds later, if it is restarted then at all.

        Its end counts towards the limit at once, as any other. Never blocks. Raises NotFound, ValueError.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"must be a finite number of seconds of at least 0, not {seconds!r}")
        self._plan.postpone(self._child(name), seconds)

    @awaited("supervisor.")
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
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] # a ref, as often as not
            raise TypeError(f"a supervisor knows its children by name, such as 'weather', not by {name!r}")
        child = self.named(name)
        if child is None:
            raise NotFound("child", name, where=self.path, known=self._names)
        return child

    def named(self, name: str) -> Child | None:
        """Return the child of that name, None if there is none."""
        return self._names.find(name, self._plan.children)

    @property
    def ref(self) -> PoolRef[Any] | None:
        """What leads to its children as to one agent, if anything does."""
        return None

    def child(self, name: str) -> Ref[Any]:
        """Return a ref to a child agent or pool. Raises NotFound."""
        child = self._child(name)
        ref = Ref[Any](child) if isinstance(child, Slot) else child.ref
        if ref is None:
            raise NotFound("agent", name, where=self.path)
        return ref

    def supervisor(self, name: str) -> Supervisor:
        """Return a supervisor among the children. Raises NotFound."""
        child = self._child(name)
        if not isinstance(child, Supervisor):
            raise NotFound("supervisor", name, where=self.path)
        return child

    def pool(self, name: str) -> PoolRef[Any]:
        """Return the ref of a pool among the children. Raises NotFound."""
        child = self._child(name)
        ref = None if isinstance(child, Slot) else child.ref
        if ref is None:
            raise NotFound("pool", name, where=self.path)
        return ref

    @property
    def children(self) -> tuple[Child, ...]:
        """All children in start order, whatever their status."""
        return tuple(self._plan.children)

    def which_children(self) -> list[ChildInfo]:
        """Return which children there are, in start order, and how each stands."""
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


SupervisorLoop.kinds[SupervisorSpec] = Supervisor


async def _nothing() -> None:
    """Take a place in line: once it is done, so is what came before."""


def _check_type(spec: object, kind: type) -> None:
    if not isinstance(spec, kind):
        raise ConfigError(f"must be a {kind.__name__}, not {spec!r}", "spec")
