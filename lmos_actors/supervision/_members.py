"""The children of the three kinds of supervisors: listed in the spec, members of a pool, or numbered.

Each kind has an object (`Members` in `_loop.py`) from which the loop learns which children a new incarnation
begins with, how they start, and how to find one by its name. Everything else is the same for all supervisors.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.actors import SHUTDOWN, PoolLink, Slot, start_now, wait_kept
from lmos_actors.errors import NameTaken, StartFailed, StopFailed, WrongState

from ._children import mailbox_of, needs_waiting
from ._spec import BulkSpec, Pool
from ._stopping import stop_in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._loop import Child, Members, SupervisorLoop


def members_of(loop: SupervisorLoop) -> Members:
    """Return the members of a supervisor, of the kind that its spec asks for."""
    spec = loop.made_from
    if isinstance(spec, Pool):
        return PoolMembers(loop, spec)
    if isinstance(spec, BulkSpec):
        return BulkMembers(loop, spec)
    return ListedMembers(loop)


class ListedMembers:
    """The children that a `SupervisorSpec` lists, and those that are added while the supervisor runs."""

    def __init__(self, loop: SupervisorLoop) -> None:
        self._loop = loop

    def seat(self, before: Sequence[Child]) -> None:
        """See `Members`."""
        self._loop.seat_listed(before)

    async def start(self) -> None:
        """See `Members`."""
        loop = self._loop
        await loop.start_children()
        for child in tuple(loop.plan.children) if loop.reason is None else ():
            if child.spec.optional and not loop.is_away(child):
                await loop.carry_out(loop.plan.begin_later(child))

    def find(self, name: str) -> Child | None:
        """See `Members`."""
        return self._loop.names.find(name, self._loop.plan.children)

    def check_addition(self) -> None:
        """Do nothing: any child can be added."""

    def close(self) -> None:
        """Do nothing: only slots need closing."""


class BulkMembers:
    """The agents of a `BulkSpec`. All slots are made with the supervisor and always keep their number."""

    def __init__(self, loop: SupervisorLoop, spec: BulkSpec) -> None:
        self._loop = loop
        self._spec = spec
        mailbox = mailbox_of(spec.member)
        self.slots: tuple[Slot, ...] = tuple(
            loop.new_slot(spec.member, str(number), mailbox) for number in range(spec.count)
        )
        """The slots, by number, whatever has become of their agents."""

    def seat(self, before: Sequence[Child]) -> None:
        """Seat all slots; in later incarnations, all but the slots of temporary agents that have ended."""
        for slot in self.slots if self._loop.incarnation == 1 else before:
            slot.status = "stopped"
            self._loop.plan.add(slot)

    async def start(self) -> None:
        """See `Members`."""
        loop = self._loop
        if loop.incarnation > 1 or not self._spec.over:
            await loop.start_children()
            return
        loop.begun()
        if loop.nursery is not None:
            loop.nursery.start_soon(self._start_over_time, name=f"supervisor {loop.path} starts its agents")

    async def _start_over_time(self) -> None:
        count, begin = self._spec.count, trio.current_time()
        groups = min(count, 10_000)  # agents of one group are started at the same instant
        first = 0
        for group in range(groups):
            await trio.sleep_until(begin + self._spec.over * group / groups)
            last = count * (group + 1) // groups
            for slot in self.slots[first:last]:
                if not await self._start_slot(slot):
                    return
            first = last

    async def _start_slot(self, slot: Slot) -> bool:
        """Start an agent that is due; return whether to continue. A failed start ends the node."""
        loop = self._loop
        if slot.status != "stopped" or slot.incarnation or loop.is_away(slot):
            return True  # it was started on request before its time, or its machine is away
        try:
            if loop.idle and not needs_waiting(self._spec.member):
                start_now(slot)
                loop.plan.started(slot)
                loop.announce((slot,))
            else:
                await loop.request(partial(loop.start_one, slot))
        except (StartFailed, NameTaken) as error:
            loop.failed_starts += 1
            if loop.rt.fatal is not None:
                loop.rt.fatal(error)
            return False
        except WrongState:  # the supervisor is stopping
            return False
        return True

    def find(self, name: str) -> Child | None:
        """Return the agent with a number, written as `str` writes it, or None if there is none."""
        if not name.isascii() or not name.isdecimal() or len(name) > 9 or str(int(name)) != name:
            return None
        number = int(name)
        slot = self.slots[number] if number < len(self.slots) else None
        return slot if slot in self._loop.plan.children else None

    def check_addition(self) -> None:
        """Do nothing: added children have names, not numbers, and are removed with the incarnation."""

    def close(self) -> None:
        """Do nothing: only slots need closing."""


class PoolMembers:
    """The members of a pool, `name-1` to `name-n`, each restarted in its place, and the one link to them.

    A pool grows and shrinks in the loop's own task, which handles one message at a time. Only waiting for
    leaving members happens in separate tasks, so that a slow member delays no restart.
    """

    def __init__(self, loop: SupervisorLoop, spec: Pool[Any]) -> None:
        self._loop = loop
        self._spec = spec
        self.link = PoolLink(loop.rt, loop, spec.by, spec.key)
        self._resizing = trio.Lock()
        self._leaving: dict[Slot, trio.Event] = {}

    def seat(self, before: Sequence[Child]) -> None:
        """See `Members`."""
        self._loop.seat_listed(before)
        self.link.seat(cast("tuple[Slot, ...]", tuple(self._loop.plan.children)))

    async def start(self) -> None:
        """See `Members`."""
        await self._loop.start_children()

    def find(self, name: str) -> Child | None:
        """See `Members`."""
        return self._loop.names.find(name, self._loop.plan.children)

    def check_addition(self) -> None:
        """Raise WrongState: only the pool itself adds members."""
        raise WrongState(self._loop.path, "a pool", "its members come and go by resize()")

    def close(self) -> None:
        """Close the pool's link, which ends all subscriptions to the pool."""
        self.link.close()

    # ---- its size

    async def resize(self, size: int) -> None:
        """Grow or shrink to `size` members; see `PoolRef.resize`."""
        if type(size) is not int or size < 1:
            raise ValueError(f"a pool needs a whole number of members, at least 1, not {size!r}")
        await wait_kept(self._loop.rt.turns)
        async with self._resizing:
            await self._all_left()  # of a resize whose caller was cancelled
            leaving: list[Slot] = await self._loop.request(partial(self._have, size))
            await self._all_left()
            self._raise_from(leaving)

    async def _have(self, size: int) -> list[Slot]:
        """Grow or shrink the pool to `size` members in the loop's own task; return the leaving members."""
        missing = size - len(self.link.members)
        if missing > 0:
            await self._grow(missing)
        return self._shrink(-missing) if missing < 0 else []

    async def _grow(self, count: int) -> None:
        first, added = len(self.link.members) + 1, list[Any]()
        try:
            for number in range(first, first + count):
                child = self._loop.reserve(self._spec.member(number))
                await start_new(self._loop, child)
                added.append(child)
        except BaseException:
            await take_back(self._loop, added)
            raise
        self.link.join(added)
        self._keep_size()

    @enable_ki_protection
    def _shrink(self, count: int) -> list[Slot]:
        nursery = self._loop.nursery
        if nursery is None:
            raise WrongState(self._loop.path, "not running", "no member can leave it")
        leaving = self.link.leave(count)
        self._keep_size()
        for child in leaving:
            self._loop.plan.become(child, "stopping")
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
        self._loop.plan.stopped(child)
        self._loop.plan.remove(child)
        self.link.departed(child)
        self._loop.forget(child)

    def _keep_size(self) -> None:
        """Store the present members in the spec, so that the next incarnation has the same ones."""
        members = [member.spec for member in self.link.members]
        self._loop.spec = attrs.evolve(self._loop.spec, children=members)

    async def _all_left(self) -> None:
        while self._leaving:
            await next(iter(self._leaving.values())).wait()

    def _raise_from(self, leaving: list[Slot]) -> None:
        kept = self._loop.raised
        raised = [(child, kept.pop(child)) for child in leaving if child in kept]
        if raised:
            child, error = raised[0]
            errors = [error for _, error in raised]
            if len(errors) > 1:
                error = BaseExceptionGroup(f"raised while members of {self._loop.path} left", errors)
            raise StopFailed(child.path) from error


# ---- children whose machine ends


@enable_ki_protection
def lose_children(loop: SupervisorLoop, children: Iterable[Child]) -> None:
    """End children at once because their machine has ended; see `lose` (`_tree.py`)."""
    for child in children:
        if child not in loop.plan.children:
            continue
        loop.away[child] = None
        loop.drop_delay(child)
        loop.plan.lost(child)
        if isinstance(child, Slot):
            child.stop(SHUTDOWN, "brutal")
        else:
            child.kill()


async def regain_children(loop: SupervisorLoop, children: Iterable[Child]) -> None:
    """Restart children when their machine is back, in the loop's own task; see `regain` (`_tree.py`)."""
    for child in children:
        if loop.away.pop(child, loop) is loop or child not in loop.plan.children:  # values are None
            continue
        loop.plan.lost(child, has_ended=True)
        failed = await loop.try_to_start(child)
        if failed is not None:
            await loop.carry_out(failed)


# ---- children that are added to a running supervisor


async def start_new(loop: SupervisorLoop, child: Child) -> None:
    """Add a new child to the plan and start it; if the start fails, the child is removed again.

    An optional child is started later, and stays even if that start fails.
    """
    loop.plan.add(child)
    if child.spec.optional:
        await loop.carry_out(loop.plan.begin_later(child))
        return
    try:
        await loop.start_one(child)
    except BaseException:
        loop.failed_starts += 1
        loop.plan.remove(child)
        loop.forget(child)
        raise


async def take_back(loop: SupervisorLoop, children: Sequence[Child]) -> None:
    """Stop and forget children that were just started, because another of their group failed to start."""
    with trio.CancelScope(shield=True):
        await stop_in_order(loop, reversed(children))
        for started in children:
            loop.plan.remove(started)
            loop.forget(started)
