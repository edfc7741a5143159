"""Pools in a running tree: a supervisor whose children are the members, and the one ref that leads to them.

A pool grows and shrinks as its supervisor's own task says, which handles one message at a time. Only the
waiting for those who leave is a task of its own, so that a long goodbye delays no restart.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.actors import SHUTDOWN, PoolLink, Ref
from lmos_actors.errors import DeadlineExceeded, StopFailed, WrongState

from ._spec import Pool
from ._supervisor import Supervisor
from ._supervisor_loop import SupervisorLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lmos_actors.actors import Runtime, Slot

    from ._spec import ChildSpec, Spec

A_co = TypeVar("A_co", covariant=True)


class PoolSupervisor(Supervisor):
    """The supervisor of a pool's members, `name-1` to `name-n`, each restarted in its place."""

    def __init__(self, rt: Runtime, pool: Pool[Any], parent: SupervisorLoop | None) -> None:
        super().__init__(rt, pool.tree(), parent)
        self.made_from = self.pool_spec = pool
        self.link = PoolLink(rt, self, pool.by, pool.key)
        self._resizing = trio.Lock()
        self._leaving: dict[Slot, trio.Event] = {}

    @property
    def ref(self) -> PoolRef[Any]:
        """The ref that leads to the members."""
        return PoolRef(self)

    def _reset(self) -> None:
        super()._reset()
        self.link.seat(cast("tuple[Slot, ...]", self.children))

    def remove(self) -> None:
        """Empty all slots for good, and end what listens to the pool."""
        super().remove()
        self.link.close()

    # ---- its size

    async def _add(self, spec: Spec, *, numbered: bool = False) -> Any:
        raise self._by_resize()

    async def _many_now(self, spec: ChildSpec[Any], first: int, count: int) -> Any:
        raise self._by_resize()

    async def _many(self, spec: ChildSpec[Any], first: int, count: int) -> Any:
        raise self._by_resize()

    def _by_resize(self) -> WrongState:
        return WrongState(self.path, "a pool", "its members come and go by resize()")

    async def resize(self, size: int) -> None:
        """Have so many members; see `PoolRef.resize`."""
        if type(size) is not int or size < 1:
            raise ValueError(f"a pool needs a whole number of members, at least 1, not {size!r}")
        async with self._resizing:
            await self._all_left()  # of a resize that nobody waits for any more
            leaving: list[Slot] = await self.request(partial(self._have, size))
            await self._all_left()
            self._raise_from(leaving)

    async def _have(self, size: int) -> list[Slot]:
        """Grow or shrink to a size, once it is this request's turn; return who leaves."""
        missing = size - len(self.link.members)
        if missing > 0:
            await self._grow(missing)
        return self._shrink(-missing) if missing < 0 else []

    async def _grow(self, count: int) -> None:
        first, added = len(self.link.members) + 1, list[Any]()
        try:
            for number in range(first, first + count):
                child = self._reserve_child(self.pool_spec.member(number), False)
                await self._start_new(child)
                added.append(child)
        except BaseException:
            await self._take_back(added)
            raise
        self.link.join(added)
        self._keep_size()

    @enable_ki_protection
    def _shrink(self, count: int) -> list[Slot]:
        nursery = self._nursery
        if nursery is None:
            raise WrongState(self.path, "not running", "nobody can leave it")
        leaving = self.link.leave(count)
        self._keep_size()
        for child in leaving:
            child.status = "stopping"
            if child.stop(SHUTDOWN, child.spec.shutdown):
                self._part(child)
            else:
                self._leaving[child] = trio.Event()
                nursery.start_soon(self._see_off, child, name=f"{child.path} leaves")
        return leaving

    @enable_ki_protection
    async def _see_off(self, child: Slot) -> None:
        """Wait until a removed member has ended, and forget it."""
        left = self._leaving[child]
        try:
            await child.wait_down()
            self._part(child)
        finally:
            self._leaving.pop(child, None)
            left.set()

    def _part(self, child: Slot) -> None:
        self._plan.stopped(child)
        self._plan.remove(child)
        self.link.departed(child)
        self._forget(child)

    def _keep_size(self) -> None:
        """Let the pool have the same members in its next life."""
        self.spec = attrs.evolve(self.spec, children=[member.spec for member in self.link.members])

    async def _all_left(self) -> None:
        while self._leaving:
            await next(iter(self._leaving.values())).wait()

    def _raise_from(self, leaving: list[Slot]) -> None:
        raised = [(child, self._raised.pop(child)) for child in leaving if child in self._raised]
        if raised:
            child, error = raised[0]
            errors = [error for _, error in raised]
            if len(errors) > 1:
                error = BaseExceptionGroup(f"raised while members of {self.path} left", errors)
            raise StopFailed(child.path) from error


SupervisorLoop.kinds[Pool] = PoolSupervisor


class PoolRef(Ref[A_co]):
    """The address of a pool: each message goes to one member, each statistic is the sum over all.

    `subscribe` and `monitor` hear all members, also those who come later. Properties are those of each
    member: `read`, `write` and `observe` raise NotAllowed. AgentUnavailable while no member runs, or, by
    key, while the one that the message is for does not.
    """

    __slots__ = ("_pool",)

    def __init__(self, pool: PoolSupervisor, seconds: float | None = None) -> None:
        super().__init__(pool.link, seconds)
        self._pool = pool

    @property
    def size(self) -> int:
        """How many members messages are shared among, whether they run at present or not."""
        return len(self._pool.link.members)

    @property
    def members(self) -> tuple[Ref[A_co], ...]:
        """Refs to the members, by number."""
        return tuple(Ref(member) for member in self._pool.link.members)

    def within(self, seconds: float, /) -> PoolRef[A_co]:
        """Return a view of the ref whose calls raise `DeadlineExceeded` after so many seconds."""
        return PoolRef(self._pool, super().within(seconds)._seconds)

    def resize(self, size: int) -> Coroutine[Any, Any, None]:
        """Have `size` members from now on, at least 1; the pool keeps the size if it is restarted.

        New ones get messages once all have started. Of those too many the last get none from the first
        moment, handle what they have within their `shutdown`, and are gone; returns then. One resize is
        carried out after another. Cancelling it gives up waiting, not what has begun.

        Raises ValueError; StartFailed (the size is what it was); StopFailed when a member has left, but
        raised while it ended; WrongState when the pool is not running; DeadlineExceeded on a ref made by
        `within`, as if it were cancelled then.
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
