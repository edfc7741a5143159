"""Many agents of one spec, named by their numbers, under a supervisor of their own.

Unlike children that `start_many` adds to a supervisor, these keep their number: all slots exist
before the first agent starts, so that they can be passed to each other, and in every life of the supervisor.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.errors import ConfigError, StartFailed, WrongState

from ._children import mailbox_of, needs_waiting
from ._plan import Plan
from ._spec import ChildSpec, SupervisorSpec
from ._supervisor import Supervisor
from ._supervisor_loop import SupervisorLoop

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime, Slot

    from ._supervisor_loop import Child

INSTANTS: Final = 10_000
"""The number of instants, at most, at which agents are started that are to start over a time."""


@attrs.frozen(weakref_slot=False)
class BulkSpec(SupervisorSpec):
    """`count` agents of one spec, called `0`, `1`, …, below a supervisor of the strategy `one_for_one`.

    In its first life they are started one after the other, evenly over `over` seconds, from the moment on at
    which the supervisor runs; with 0, and in later lives, all before that.
    Raises ConfigError naming the field.
    """

    member: ChildSpec[Any] = attrs.field(kw_only=True)
    count: int = attrs.field(kw_only=True)
    over: float = attrs.field(default=0.0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        SupervisorSpec.__attrs_post_init__(self)
        if not isinstance(self.member, ChildSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be a ChildSpec, not {self.member!r}", f"{self.name}.member")
        self.check_child(self.member)
        if self.member.id is not None:
            where = f"{self.member.name}.id"
            raise ConfigError("is one agent's alone: that of many would be nobody's", where)
        if self.children:
            raise ConfigError("a crowd has its members and no other children", f"{self.name}.children")
        if self.strategy != "one_for_one":
            raise ConfigError(
                f"a crowd's is one_for_one, not {self.strategy}: no member minds another",
                f"{self.name}.strategy",
            )
        if type(self.count) is not int or self.count < 0:
            raise ConfigError(f"must be an int of at least 0, not {self.count!r}", f"{self.name}.count")
        if not 0 <= self.over < float("inf"):
            raise ConfigError(f"must be finite and at least 0, not {self.over!r}", f"{self.name}.over")


class BulkSupervisor(Supervisor):
    """The supervisor of a `BulkSpec`."""

    def __init__(self, rt: Runtime, bulk_spec: BulkSpec, parent: SupervisorLoop | None) -> None:
        super().__init__(rt, bulk_spec, parent)
        self.bulk_spec = bulk_spec
        mailbox = mailbox_of(bulk_spec.member)
        self.members: tuple[Slot, ...] = tuple(
            self._new_slot(bulk_spec.member, str(number), mailbox) for number in range(bulk_spec.count)
        )
        """The slots, by number, whatever has become of their agents."""

    def _reset(self) -> None:
        kept = self.members if self.incarnation == 0 else tuple(self._plan.children)
        self._plan = Plan(self.spec)  # else the members would go, as children added at run time do
        super()._reset()
        for member in kept:
            member.status = "stopped"
            self._plan.add(member)

    async def _start_children(self) -> None:
        if self.incarnation > 1 or not self.bulk_spec.over:
            await super()._start_children()
            return
        self._failure = None
        self._begun.set()
        if self._nursery is not None:
            self._nursery.start_soon(self._start_over_time, name=f"supervisor {self.path} starts its agents")

    async def _start_over_time(self) -> None:
        count, begin = self.bulk_spec.count, trio.current_time()
        groups = min(count, INSTANTS)
        first = 0
        for group in range(groups):
            await trio.sleep_until(begin + self.bulk_spec.over * group / groups)
            last = count * (group + 1) // groups
            for member in self.members[first:last]:
                if not await self._start_member(member):
                    return
            first = last

    async def _start_member(self, member: Slot) -> bool:
        """Start one whose time has come; return whether to go on. A start that fails ends the node."""
        if member.status != "stopped" or member.incarnation:
            return True  # somebody has started it before its time
        try:
            if self.idle and not needs_waiting(self.bulk_spec.member):
                member.start_now()
                self._plan.started(member)
                self._announce((member,))
            else:
                await self.request(partial(self._start_one, member))
        except StartFailed as error:
            self._failed_starts += 1
            if self.rt.fatal is not None:
                self.rt.fatal(error)
            return False
        except WrongState:
            return False
        return True

    def named(self, name: str) -> Child | None:
        """Return the member of that number, None if there is none."""
        if not name.isascii() or not name.isdecimal() or len(name) > 9 or str(int(name)) != name:
            return None
        number = int(name)
        member = self.members[number] if number < len(self.members) else None
        return member if member in self._plan.children else None


SupervisorLoop.kinds[BulkSpec] = BulkSupervisor
