"""Several agents of a class taken together: who they are, what they count, and who listens to all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

import attrs
from trio.lowlevel import reschedule

from lmos_actors.errors import AgentUnavailable, NotFound

from ._gates import EMPTY, GONE, RUNNING, STATES
from ._mailbox import AgentStatistics, MailboxStatistics
from ._observers import Sinks
from ._operation import named
from ._parking import park_among

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._observers import Sink
    from ._operation import Operation
    from ._runtime import Runtime, Turns
    from ._slot import Slot


class Placed(Protocol):
    """Where a pool is in the tree: its supervisor."""

    @property
    def path(self) -> str:
        """Names from the root's children down."""
        ...


class _Spout:
    """A listener of the whole pool, as one member sees it: it does not end with that member."""

    __slots__ = ("gap", "only_reads", "push")

    def __init__(self, sink: Sink) -> None:
        self.only_reads: bool = getattr(sink, "only_reads", False)
        self.push = sink.push
        self.gap = sink.gap

    def close(self) -> None:
        """This member is gone for good; the others are not."""


class PoolSinks(Sinks):
    """The listeners of a pool: each hears every member, those who come later too."""

    __slots__ = ("_members", "_spouts")

    def __init__(self, members: Members) -> None:
        super().__init__()
        self._members = members
        self._spouts: dict[tuple[str, Sink], _Spout] = {}

    def add(self, key: str, sink: Sink) -> None:
        """Let a sink hear what any member pushes under `key` from now on."""
        if (key, sink) in self._spouts:
            return
        super().add(key, sink)
        spout = self._spouts[key, sink] = _Spout(sink)
        for member in self._members.everybody():
            member.sinks().add(key, spout)

    def remove(self, key: str, sink: Sink) -> None:
        """Take a sink out; it may be gone already."""
        super().remove(key, sink)
        spout = self._spouts.pop((key, sink), None)
        if spout is not None:
            for member in self._members.everybody():
                member.sinks().remove(key, spout)

    def join(self, member: Slot) -> None:
        """Let everybody hear a new member."""
        for (key, _), spout in self._spouts.items():
            member.sinks().add(key, spout)

    def close(self) -> None:
        """The pool is gone for good."""
        for member in self._members.everybody():
            for (key, _), spout in self._spouts.items():
                member.sinks().remove(key, spout)
        self._spouts.clear()
        super().close()


class Members:
    """The members of one pool, by number, and their counts, over all who have ever been members."""

    __slots__ = (
        "_departed", "_leaving", "_refused", "_sinks", "gone", "identity", "members", "placed", "rt", "turns",
    )  # fmt: skip

    def __init__(self, rt: Runtime, placed: Placed) -> None:
        self.rt = rt
        self.turns: Turns = rt.turns
        self.placed = placed
        rt.slots_made += 1
        self.identity: tuple[object, int] = (rt, rt.slots_made)
        self.members: list[Slot] = []
        self.gone = False
        self._leaving: list[Slot] = []
        self._departed: Counter[str] = Counter()
        self._refused = 0  # by the pool itself: they reached no member
        self._sinks = PoolSinks(self)

    @property
    def path(self) -> str:
        """The pool's place in the tree."""
        return self.placed.path

    # ---- who belongs to it, as its supervisor says

    def everybody(self) -> list[Slot]:
        """Return the members and those who still handle what they had when they were removed."""
        return [*self.members, *self._leaving]

    def seat(self, members: Iterable[Slot]) -> None:
        """Let these be the members, and nobody else."""
        wanted, present = list(members), self.everybody()
        for former in present:
            if former not in wanted:
                self.departed(former)
        self.members = []
        self._leaving = []
        for member in wanted:
            if member not in present:
                self._sinks.join(member)
            self.members.append(member)

    def join(self, members: Iterable[Slot]) -> None:
        """Let these be members too, after all others."""
        for member in members:
            self._sinks.join(member)
            self.members.append(member)

    def leave(self, count: int) -> list[Slot]:
        """Choose none of the last `count` members from now on, and return them, the last one first."""
        leaving = [self.members.pop() for _ in range(count)]
        self._leaving.extend(leaving)
        return leaving

    def departed(self, former: Slot) -> None:
        """Keep the counts of one who has ended and whose slot is emptied for good."""
        if former in self._leaving:
            self._leaving.remove(former)
        self._departed.update(_numbers(former.statistics()))

    def close(self) -> None:
        """The pool is gone for good."""
        self.gone = True
        self._sinks.close()
        waiting, self.rt.appeared = self.rt.appeared, []
        self.rt.timers.woke = True
        for task in waiting:
            reschedule(task)

    # ---- what they are together

    def sinks(self) -> Sinks:
        """Return the listeners of the pool."""
        return self._sinks

    def operation(self, key: str) -> Operation:
        """Return the operation of that key. Raises `NotFound`, `AgentUnavailable`."""
        if self.gone or not self.members:
            raise self.nobody()
        return self.members[0].operation(key)

    def nobody(self) -> AgentUnavailable | NotFound:
        """Make the error for a message that no member can take, and count it."""
        if self.gone:
            return NotFound("agent", self.path)
        self._refused += 1
        return AgentUnavailable(self.path, self.unready())

    def statistics(self) -> AgentStatistics:
        """Add up the counts of all members, present and former; `running` if at least one of them is."""
        numbers = Counter(self._departed)
        for member in self.everybody():
            numbers.update(_numbers(member.statistics()))
        numbers["refused"] += self._refused
        names = [a.name for a in attrs.fields(AgentStatistics) if a.name != "state"]
        return AgentStatistics(**{name: numbers[name] for name in names}, state=self._state())

    def _state(self) -> str:
        states = [member.state for member in self.members]
        if self.gone:
            return STATES[GONE]
        return STATES[RUNNING if RUNNING in states else min(states, default=EMPTY)]

    def mailbox_statistics(self) -> MailboxStatistics:
        """Add up how full the mailboxes of the members are."""
        each = [member.mailbox_statistics() for member in self.everybody()]
        return MailboxStatistics(
            depth=sum(one.depth for one in each),
            size=sum(one.size for one in each),
            when_full=each[0].when_full if each else "wait",
            parked=sum(one.parked for one in each),
            displaced=sum(one.displaced for one in each),
        )

    # ---- waiting

    @named("ref.ready")
    async def wait_running(self) -> None:
        """Wait until a member takes messages. Raises NotFound when the pool is gone for good."""
        while not any(member.state == RUNNING for member in self.members):
            if self.gone or self.rt.ended:
                raise NotFound("agent", self.path)
            await park_among(self.rt.appeared)

    def unready(self) -> str:
        """Return why no member takes messages now."""
        return f"none of its {len(self.members)} members is running"


def _numbers(statistics: AgentStatistics) -> dict[str, int]:
    return {name: value for name, value in attrs.asdict(statistics).items() if isinstance(value, int)}
