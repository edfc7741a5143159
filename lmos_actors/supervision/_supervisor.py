"""`Supervisor` and `PoolRef`, the public side of a supervisor in a running tree: requests and look-ups.

A `Supervisor` is to its loop what a ref is to its slot: it has no further state, and any number of them may
lead to one loop. A request that needs no waiting, made while the loop has nothing to do, is carried out in
the asker's own task: starting an agent then costs no task switch. Others go through the loop's inbox.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import SHUTDOWN, Ref, Slot, awaited, needs_name, start_now, wait_kept
from lmos_actors.errors import ConfigError, DeadlineExceeded, NotFound, StartFailed, StopFailed, WrongState

from ._children import (
    ChildInfo,
    agent_class,
    check_beside,
    is_durable,
    mailbox_of,
    needs_waiting,
    read_states,
)
from ._loop import BUDGET
from ._members import BulkMembers, PoolMembers, start_new, take_back
from ._siblings import name_of
from ._spec import BulkSpec, ChildSpec, Pool, SupervisorSpec, UnnamedSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lmos_actors.actors import MailboxOptions, Runtime, Status

    from ._loop import Child, SupervisorLoop
    from ._plan import Counts
    from ._spec import Spec

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


@attrs.frozen
class SupervisorStatistics:
    """Counts of one supervisor: its children, those alive, its restarts, and its failed starts."""

    specs: int
    active: int
    supervisors: int
    workers: int
    restarts: int
    failed_starts: int


class Supervisor:
    """A supervisor in a running tree, over all its incarnations. Two objects for one supervisor are equal."""

    __slots__ = ("loop",)

    def __init__(self, loop: SupervisorLoop) -> None:
        self.loop = loop

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Supervisor) and self.loop is other.loop

    def __hash__(self) -> int:
        return hash(self.loop)

    def __repr__(self) -> str:
        return f"<Supervisor {self.path} {self.status} #{self.incarnation}>"

    # ---- starting children

    @awaited("supervisor.")
    async def start_child(self, spec: ChildSpec[A]) -> Ref[A]:
        """Start another child, last in order. If NameTaken or StartFailed is raised, it is not kept."""
        if type(spec) is not ChildSpec:
            _check_type(spec, ChildSpec)
        return Ref(await self._add(spec))

    @awaited("supervisor.")
    async def start_supervisor(self, spec: SupervisorSpec | BulkSpec) -> Supervisor:
        """Start another supervisor as a child. Raises NameTaken, StartFailed."""
        _check_type(spec, SupervisorSpec, BulkSpec)
        return Supervisor(await self._add(spec))

    @awaited("supervisor.")
    async def start_pool(self, spec: Pool[A]) -> PoolRef[A]:
        """Start a pool and its members as a child. Raises StartFailed, and NameTaken for a given name."""
        _check_type(spec, Pool)
        if spec.unnamed and is_durable(spec.member(1)):
            raise ConfigError(
                f"its agents are durable, and a name made up for it would not find their state again: "
                f"Pool(..., name={spec.name!r})",
                spec.name,
            )
        loop: SupervisorLoop = await self._add(spec, numbered=spec.unnamed)
        assert isinstance(loop.members, PoolMembers)
        return PoolRef(loop.members)

    @enable_ki_protection
    async def start_named(self, factory: Callable[..., A], made: Callable[[], A]) -> Ref[A]:
        """Start an agent under the first free name derived from its class: `echo`, `echo-2`, `echo-3`, …

        `made` is the factory, or a partial of it.
        """
        loop = self.loop
        if loop.rt.turns.durables:
            await wait_kept(loop.rt.turns)
        known = loop.specs_of_unnamed.get(factory) if isinstance(factory, type) else None
        if known is None:
            loop.members.check_addition()
            return Ref(await self._add(_spec_of_unnamed(loop, factory, made), numbered=True))
        # agents of a class may be started one by one by the thousand: this is `_add`, without what is known
        base, mailbox = known
        spec = base if made is factory else ChildSpec(base.name, made)
        loop.at_once = turn = (loop.at_once + 1) % BUDGET
        if turn:
            await checkpoint_if_cancelled()
        else:
            await checkpoint()
        number = loop.names.next_number(spec.name) if loop.idle else None
        if number is None:
            return Ref(await self._add(spec, numbered=True))
        if spec.references:
            check_beside(spec, loop.place_of, loop.rt.resolver)
        child = loop.new_slot(spec, number, mailbox)
        try:
            _begin(loop, child)
        except StartFailed:
            await _undo_start(loop, child)
            raise
        return Ref(child)

    @awaited("supervisor.")
    async def start_many(self, spec: ChildSpec[A], count: int) -> list[Ref[A]]:
        """Start `count` agents of one spec, named `name-1`, `name-2`, …; all, or none on StartFailed."""
        loop = self.loop
        await wait_kept(loop.rt.turns)
        _check_type(spec, ChildSpec)
        if count < 0:
            raise ValueError(f"start_many() needs a count of at least 0, not {count}")
        loop.spec.check_child(spec)
        if spec.id is not None:
            raise ConfigError("is one agent's alone, and start_many() starts several", f"{spec.name}.id")
        if spec.key is not None:
            raise ConfigError("is one agent's alone, and start_many() starts several", f"{spec.name}.key")
        check_beside(spec, loop.place_of, loop.rt.resolver)
        loop.members.check_addition()
        first = loop.names.reserve(spec.name, count)
        if loop.idle and not needs_waiting(spec):
            return await _many_now(loop, spec, first, count)
        refs: list[Ref[A]] = await loop.request(partial(_many, loop, spec, first, count), is_start=True)
        return refs

    @enable_ki_protection
    async def _add(self, spec: Spec, *, numbered: bool = False) -> Any:
        loop = self.loop
        loop.members.check_addition()
        if loop.rt.turns.durables:
            await wait_kept(loop.rt.turns)
        await loop.checkpoint_if_due()
        if loop.idle and isinstance(spec, ChildSpec) and not needs_waiting(spec):
            child = _reserved(loop, spec, numbered)
            try:
                _begin(loop, child)
            except StartFailed:
                await _undo_start(loop, child)
                raise
            return child
        return await loop.request(partial(_add_waiting, loop, spec, numbered), is_start=True)

    # ---- stopping, restarting and deleting children

    def terminate_child(self, name: str) -> Coroutine[Any, Any, None]:
        """Stop a child and keep its spec, unless it is temporary.

        Raises NotFound, and StopFailed if the child raised an exception while it ended.
        """
        turns = self.loop.rt.turns  # as `awaited` does, at less cost: this is done by the thousand
        if turns.slot is not None:
            raise turns.misuse("terminate_child", of="supervisor.")
        return self._terminate_child(name)

    @enable_ki_protection
    async def _terminate_child(self, name: str) -> None:
        loop = self.loop
        if loop.rt.turns.durables:
            await wait_kept(loop.rt.turns)
        await loop.checkpoint_if_due()
        if loop.idle:
            child = self._child(name)
            if isinstance(child, Slot) and child.at_rest:
                await loop.stop_one(child)
                return
        await loop.request(partial(self._terminate, name))

    async def _terminate(self, name: str) -> None:
        child = self._child(name)
        await self.loop.stop_one(child)
        error = self.loop.raised.pop(child, None)
        if error is not None:
            raise StopFailed(child.path) from error

    @awaited("supervisor.")
    async def restart_child(self, name: str) -> None:
        """Start a child that is stopped. Raises NotFound, WrongState, StartFailed (the spec is kept)."""
        await wait_kept(self.loop.rt.turns)
        await self.loop.request(partial(self._restart, name))

    async def _restart(self, name: str) -> None:
        child = self._child(name)
        if self.loop.is_away(child):
            raise WrongState(child.path, "away", "it starts with the machine that it was lost with")
        _check_verdict(child, self.loop.plan.check_restart(child), "only a stopped child is restarted")
        await self.loop.start_one(child)

    def postpone_restart(self, name: str, seconds: float) -> None:
        """Delay the restart after a child's next end by `seconds`, if that end leads to a restart.

        The limit of restarts counts that end at once, like any other. Never blocks. Raises NotFound,
        ValueError.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"must be a finite number of seconds of at least 0, not {seconds!r}")
        self.loop.plan.postpone(self._child(name), seconds)

    def set_limits(self, max_restarts: int, max_seconds: float) -> None:
        """Change the limits of restarts; restarts within the last `max_seconds` count. Never blocks.

        The limits remain in force when the supervisor itself is restarted. Raises ConfigError, as
        `SupervisorSpec` does.
        """
        loop = self.loop
        loop.spec = attrs.evolve(loop.spec, max_restarts=max_restarts, max_seconds=max_seconds)
        loop.plan.spec = loop.spec

    @awaited("supervisor.")
    async def delete_child(self, name: str) -> None:
        """Delete the spec of a stopped child. Raises NotFound, WrongState."""
        await wait_kept(self.loop.rt.turns)
        await self.loop.request(partial(self._delete, name))

    async def _delete(self, name: str) -> None:
        child = self._child(name)
        _check_verdict(child, self.loop.plan.check_delete(child), "only a stopped child is deleted")
        self.loop.plan.remove(child)
        self.loop.forget(child)

    # ---- looking

    @property
    def path(self) -> str:
        """The supervisor's path in the tree; `root` for the root."""
        return self.loop.path

    @property
    def label(self) -> str:
        """The supervisor's name as a child."""
        return self.loop.label

    @property
    def spec(self) -> SupervisorSpec:
        """The supervisor's spec; the spec of a pool has the pool's current members."""
        return self.loop.spec

    @property
    def status(self) -> Status:
        """The supervisor's status as a child; the root is always `starting`."""
        return self.loop.status

    @property
    def incarnation(self) -> int:
        """The number of the supervisor's incarnation, from 1; 0 before the first."""
        return self.loop.incarnation

    def _child(self, name: str) -> Child:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] # a ref, as often as not
            raise TypeError(f"a supervisor knows its children by name, such as 'weather', not by {name!r}")
        child = self.loop.members.find(name)
        if child is None:
            raise NotFound("child", name, where=self.path, known=self.loop.names)
        return child

    def child(self, name: str) -> Ref[Any]:
        """Return a ref to a child agent or pool. Raises NotFound."""
        child = self._child(name)
        ref = Ref[Any](child) if isinstance(child, Slot) else _pool_ref(child)
        if ref is None:
            raise NotFound("agent", name, where=self.path)
        return ref

    def supervisor(self, name: str) -> Supervisor:
        """Return a child supervisor. Raises NotFound."""
        child = self._child(name)
        if isinstance(child, Slot):
            raise NotFound("supervisor", name, where=self.path)
        return Supervisor(child)

    def pool(self, name: str) -> PoolRef[Any]:
        """Return the ref of a child pool. Raises NotFound."""
        ref = _pool_ref(self._child(name))
        if ref is None:
            raise NotFound("pool", name, where=self.path)
        return ref

    @property
    def children(self) -> tuple[Slot | Supervisor, ...]:
        """All children in start order, whatever their status."""
        return tuple(
            child if isinstance(child, Slot) else Supervisor(child) for child in self.loop.plan.children
        )

    def which_children(self) -> list[ChildInfo]:
        """Return all children in start order, each with its status."""
        return [
            ChildInfo(
                name=child.label,
                path=child.path,
                kind="agent" if isinstance(child, Slot) else "supervisor",
                status=status,
                incarnation=child.incarnation,
                restored=child.restored if isinstance(child, Slot) else None,
            )
            for child, status in self.loop.plan.which()
        ]

    def count_children(self) -> Counts:
        """Return the counts of OTP (specs, children alive, supervisors, workers) without visiting a child."""
        return self.loop.plan.count()

    def statistics(self) -> SupervisorStatistics:
        """Return counts of children, restarts and failed starts, without visiting any child."""
        loop = self.loop
        return SupervisorStatistics(
            *loop.plan.count(), restarts=loop.restarts, failed_starts=loop.failed_starts
        )

    # ---- for the runtime

    @property
    def rt(self) -> Runtime:
        """The state that all agents of the node share."""
        return self.loop.rt

    @property
    def idle(self) -> bool:
        """Whether the supervisor has nothing to do."""
        return self.loop.idle

    @property
    def is_root(self) -> bool:
        """Whether this supervisor is below no other supervisor and no agent."""
        return self.loop.above is None

    @property
    def numbered(self) -> tuple[Slot, ...] | None:
        """The slots of the agents of a `BulkSpec`, by number; None for any other supervisor."""
        members = self.loop.members
        return members.slots if isinstance(members, BulkMembers) else None

    async def settled(self) -> None:
        """Wait until every end of a child so far has been handled: restarts were carried out or given up.

        A restart that a back-off delays counts as handled. If this supervisor itself gives up, also wait
        until the supervisors above it, or the agent whose children these are, have handled that.
        """
        loop = self.loop
        ended = loop.ended
        try:
            await loop.request(_nothing)
            while any(c.status == "restarting" and not loop.is_delayed(c) for c in loop.plan.children):
                await loop.request(_nothing)
        except WrongState:
            await ended.wait()
            if loop.parent is not None:
                await Supervisor(loop.parent).settled()
        if loop.agent is not None and loop.above is not None and not loop.alive:
            if loop.agent.statistics().state == "ending":
                await loop.agent.wait_down()
            await Supervisor(loop.above).settled()

    async def stop(self) -> None:
        """Stop the children in reverse start order, then end."""
        await self.loop.stop()

    def kill(self) -> None:
        """Stop everything below immediately, without draining."""
        self.loop.kill()


# ---- requests to start children, as the loop or the asker's step carries them out


def _spec_of_unnamed(loop: SupervisorLoop, factory: Callable[..., A], made: Callable[[], A]) -> ChildSpec[A]:
    """Make the spec of an agent without a name; agents of a class that starts quickly may share it."""
    spec = ChildSpec(name_of(factory), made)
    if is_durable(spec):
        cls = agent_class(spec)
        raise needs_name(spec.name if cls is None else cls.__name__)
    if agent_class(spec) is None:
        return UnnamedSpec(spec.name, made)
    if isinstance(factory, type) and not needs_waiting(spec):
        shared = spec if made is factory else ChildSpec(spec.name, factory)
        loop.specs_of_unnamed[factory] = shared, mailbox_of(spec)
    return spec


def _reserved(loop: SupervisorLoop, spec: Spec, numbered: bool) -> Any:
    """Make a new child; with `numbered`, under the first free name of `echo`, `echo-2`, …

    A number is taken when the request is carried out, because earlier requests take numbers too.
    """
    if numbered and isinstance(spec, Pool):
        return loop.reserve(attrs.evolve(spec, name=loop.names.first_free(spec.name)))
    if not numbered or not isinstance(spec, ChildSpec):
        return loop.reserve(spec)
    loop.spec.check_child(spec)
    check_beside(spec, loop.place_of, loop.rt.resolver)
    number = loop.names.next_number(spec.name)
    return loop.reserve(spec) if number is None else loop.new_slot(spec, number, mailbox_of(spec))


def _begin(loop: SupervisorLoop, child: Slot) -> None:
    """Start a child whose start needs no waiting. If it raises StartFailed, call `_undo_start` next."""
    start_now(child)
    loop.plan.add(child)
    loop.plan.started(child)
    loop.announce((child,))


async def _undo_start(loop: SupervisorLoop, child: Slot) -> None:
    loop.failed_starts += 1
    with trio.CancelScope(shield=True):
        await child.wait_down()  # `started()` may have begun tasks
    loop.forget(child)


async def _add_waiting(loop: SupervisorLoop, spec: Spec, numbered: bool) -> Child:
    child: Child = _reserved(loop, spec, numbered)
    await start_new(loop, child)
    return child


@enable_ki_protection
async def _many_now(loop: SupervisorLoop, spec: ChildSpec[A], first: int, count: int) -> list[Ref[A]]:
    await checkpoint_if_cancelled()
    children: list[Slot] = []
    mailbox: MailboxOptions = mailbox_of(spec)
    add, started, rt = loop.plan.add, loop.plan.started, loop.rt
    try:
        for ordinal in range(first, first + count):
            child = rt.link(rt, loop, spec, ordinal, mailbox)
            children.append(child)
            start_now(child)
            add(child)
            started(child)
    except StartFailed:
        loop.failed_starts += 1
        rt.tally.untallied.extend(children)
        for child in reversed(children):
            loop.plan.become(child, "stopping")
            child.stop(SHUTDOWN, "brutal")
            loop.plan.stopped(child)
            loop.plan.remove(child)
            loop.names.forget(child.label, child)
            child.remove()
        raise
    rt.tally.untallied.extend(children)
    loop.announce(children)
    return [Ref(child) for child in children]


async def _many(loop: SupervisorLoop, spec: ChildSpec[A], first: int, count: int) -> list[Ref[A]]:
    children: list[Slot] = []
    try:
        for ordinal in range(first, first + count):
            if not (ordinal - first) % BUDGET:
                page = range(ordinal, min(ordinal + BUDGET, first + count))
                paths = (loop.child_path(f"{spec.name}-{number}") for number in page)
                await read_states(loop.rt, ((spec, path) for path in paths))
            child = loop.new_slot(spec, ordinal, mailbox_of(spec))
            await start_new(loop, child)
            children.append(child)
    except BaseException:
        await take_back(loop, children)
        raise
    return [Ref(child) for child in children]


async def _nothing() -> None:
    """Do nothing: once this request is done, all earlier items of the inbox are done too."""


def _check_type(spec: object, *types: type) -> None:
    if not isinstance(spec, types):
        raise ConfigError(f"must be a {types[0].__name__}, not {spec!r}", "spec")


def _check_verdict(child: Child, verdict: str, needs: str) -> None:
    if verdict != "ok":
        raise WrongState(child.path, verdict, needs)


def _pool_ref(child: Child) -> PoolRef[Any] | None:
    members = None if isinstance(child, Slot) else child.members
    return PoolRef(members) if isinstance(members, PoolMembers) else None


def supervisor_of(slot: Slot) -> Supervisor:
    """Return the supervisor of which an agent is a child."""
    owner: Any = slot.owner
    return Supervisor(owner)


# ---- pools


class PoolRef(Ref[A_co]):
    """The address of a pool: each message goes to one member, each statistic is the sum over all members.

    `subscribe` and `monitor` include all members, even those added later. Each member has its own properties,
    so `read`, `write` and `observe` raise NotAllowed. Messages raise AgentUnavailable while no member runs,
    or, with `by="key"`, while the responsible member does not run.
    """

    __slots__ = ("_pool",)

    def __init__(self, pool: PoolMembers, seconds: float | None = None) -> None:
        super().__init__(pool.link, seconds)
        self._pool = pool

    @property
    def size(self) -> int:
        """The number of members that share the messages, running or not."""
        return len(self._pool.link.members)

    @property
    def members(self) -> tuple[Ref[A_co], ...]:
        """Refs to the members, by number."""
        return tuple(Ref(member) for member in self._pool.link.members)

    def within(self, seconds: float, /) -> PoolRef[A_co]:
        """Return a view of the ref whose calls raise `DeadlineExceeded` after `seconds`."""
        return PoolRef(self._pool, super().within(seconds)._seconds)

    def resize(self, size: int) -> Coroutine[Any, Any, None]:
        """Grow or shrink to `size` members, at least 1; the pool keeps the size if it is restarted.

        New members get messages once all of them have started. If there are too many members, the last ones
        receive no more messages from now on, handle the messages that they have within their `shutdown`, and
        are removed; then the call returns. Resizes are carried out one after another. Cancelling the call
        ends the wait, not the resize.

        Raises ValueError; StartFailed (the size is as before); StopFailed when a member has left, but raised
        while it ended; WrongState when the pool is not running; DeadlineExceeded on a ref made by `within`,
        as if it were cancelled then.
        """
        turns = self._pool.link.turns
        if turns.slot is not None:
            raise turns.misuse("resize")
        if self._seconds is None:
            return self._pool.resize(size)
        return self._resized_within(size, self._seconds)

    async def _resized_within(self, size: int, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._pool.resize(size)
            return
        raise DeadlineExceeded(self.path, seconds)
