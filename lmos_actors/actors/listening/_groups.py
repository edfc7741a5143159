"""Groups: agents that have joined a name, as processes do in OTP's pg.

A membership belongs to the incarnation: it ends when the agent is stopped, stops or crashes, and a restarted
agent joins again in its `started()`. A group consists of its members alone: it has no process, and a name
without members and watchers leaves nothing behind.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar

import attrs
from trio.lowlevel import checkpoint, enable_ki_protection

from lmos_actors.errors import AgentError, MailboxFull, NotFound

from .._trace_context import current_mark
from ..messages._gates import DRAINING
from ..messages._invocation import CURRENT, running_gate
from ..messages._mailbox import DONE, Tell
from ..messages._observers import Feed
from ..refs._ref import Ref
from ._names import name_on

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable
    from contextlib import AbstractAsyncContextManager

    from .._runtime import Runtime
    from ..declaration._affordances import Action, Turn
    from ..messages._operation import Operation
    from ..slot._slot import Slot

A = TypeVar("A")
P = ParamSpec("P")


@attrs.frozen
class Joined(Generic[A]):
    """A change of a group: an agent has become a member."""

    group: str
    member: Ref[A]


@attrs.frozen
class Left(Generic[A]):
    """A change of a group: an agent has left, or takes no more messages."""

    group: str
    member: Ref[A]


Change: TypeAlias = Joined[A] | Left[A]


class Roll:
    """The members of a group in the order of joining, how often each has joined, and the watchers."""

    __slots__ = ("_feeds", "_key", "_rt", "members", "name")

    def __init__(self, rt: Runtime, name: str, key: str) -> None:
        self._rt = rt
        self.name = name
        self._key = key  # the key by which the node knows it
        self.members: dict[Slot, int] = {}
        self._feeds: dict[Feed[Any], type] = {}

    def add(self, slot: Slot) -> None:
        """Add an agent, or count one more joining of a member."""
        times = self.members.get(slot, 0)
        self.members[slot] = times + 1
        if not times:
            self._tell(Joined, slot)

    def remove(self, slot: Slot) -> bool:
        """Undo one joining of an agent; return whether it was the last one."""
        self.members[slot] -= 1
        if self.members[slot]:
            return False
        self.lose(slot)
        return True

    def lose(self, slot: Slot) -> None:
        """Remove an agent that is no longer a member."""
        del self.members[slot]
        self._tell(Left, slot)
        self._tidy()

    def _tell(self, kind: type[Any], slot: Slot) -> None:
        for feed, cls in tuple(self._feeds.items()):
            if isinstance(slot.agent, cls):
                feed.push(kind(self.name, Ref(slot)))

    def watch(self, feed: Feed[Any], cls: type) -> None:
        """Push every change from now on to a feed."""
        self._feeds[feed] = cls

    def unwatch(self, feed: Feed[Any]) -> None:
        """Stop pushing changes to a feed, if that has not been done already."""
        self._feeds.pop(feed, None)
        self._tidy()

    def _tidy(self) -> None:
        if not self.members and not self._feeds:
            self._rt.groups.pop(self._key, None)

    def close(self) -> None:
        """Close all feeds, as the node has ended."""
        feeds, self._feeds = self._feeds, {}
        for feed in feeds:
            feed.close()


def _roll(rt: Runtime, name: str, node: str | None) -> Roll:
    key = name_on(node, name)
    roll: Roll | None = rt.groups.get(key)
    if roll is None:
        roll = rt.groups[key] = Roll(rt, name, key)
    return roll


class Group(Generic[A]):
    """The members of class `A` in a group: `node.group("desks", Desk)`, or `self.group(...)`."""

    __slots__ = ("_cls", "_node", "_rt", "name")

    def __init__(self, rt: Runtime, name: str, cls: type[A], node: str | None = None) -> None:
        _check_name(name)
        if not isinstance(cls, type):  # pyright: ignore[reportUnnecessaryIsInstance] # what users write
            raise TypeError(f"a group is asked for with the class of its members, not {cls!r}")
        self._rt = rt
        self._cls = cls
        self._node = node  # of a simulated network
        self.name = name

    def __repr__(self) -> str:
        return f"<group {self.name!r} of {self._cls.__name__}>"

    def members(self) -> list[Ref[A]]:
        """Return refs to the members, one for each, in the order of joining."""
        return [Ref(slot) for slot in self._slots()]

    def _slots(self) -> list[Slot]:
        roll: Roll | None = self._rt.groups.get(name_on(self._node, self.name))
        cls = self._cls
        return [slot for slot in roll.members if isinstance(slot.agent, cls)] if roll is not None else []

    @enable_ki_protection
    def broadcast(
        self, handle: Turn[A, P, Any] | Action[A, P, Any, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> int:
        """Send a one-way message to every member, without waiting; return how many members accepted it.

        Legal in turns. The arguments are checked once for all members of a class; immutable values are
        shared, and each member gets a copy of others. A full mailbox does not delay the sender: it drops by
        its policy, and under `wait` and `reject` the message is counted as refused and becomes a dead letter.

        A message of a durable agent reaches the present members once the agent's state is kept; their number
        is returned.

        Raises InvalidInput and NotFound for arguments and an action that members do not take.
        """
        key = handle.name
        self._check(key, args, kwargs)
        turns, run = self._rt.turns, CURRENT.get()
        sender: Any = turns.slot if run is None else run.slot
        members = self._slots()
        if turns.durables and (gate := running_gate(turns)) is not None:
            gate.hold(_HeldBroadcast(sender, members, key, *deepcopy((args, kwargs))))
            return len(members)
        return _broadcast(sender, members, key, args, kwargs)

    def _check(self, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        contract: Any = getattr(self._cls, "__contract__", None)
        table: dict[str, Operation] = {} if contract is None else contract.table
        if key not in table:
            known = () if contract is None else contract.actions
            raise NotFound("action", key, where=self._cls.__name__, known=known)
        table[key].bind(args, kwargs)

    def watch(self, *, size: int = 64) -> AbstractAsyncContextManager[Feed[Change[A]]]:
        """Yield a feed of a `Joined` or `Left` for every change from now on, until the node ends.

        Call `members()` first in the block: the changes continue from there. If more than `size` wait, the
        oldest is dropped and counted: when `missed` grows, call `members()` again.
        """
        return self._watched(size)

    @asynccontextmanager
    @enable_ki_protection
    async def _watched(self, size: int) -> AsyncGenerator[Feed[Any]]:
        feed: Feed[Any] = Feed(self._rt.timers, size=size)
        await checkpoint()
        if self._rt.ended:
            feed.close()
            yield feed
            return
        roll = _roll(self._rt, self.name, self._node)
        roll.watch(feed, self._cls)
        try:
            yield feed
        finally:
            roll.unwatch(feed)
            feed.close()


def group_for(slot: Slot, name: str, cls: type[A]) -> Group[A]:
    """Return the group of agents that have a given class and are on the same node as an agent."""
    return Group(slot.rt, name, cls, slot.rt.node_of(slot))


def _broadcast(
    sender: Any, members: Iterable[Slot], key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int:
    """Send a one-way message to agents, without waiting; return how many agents accepted it."""
    shared: dict[Operation, tuple[Any, ...]] = {}
    taken = 0
    for slot in members:
        op = slot.table.get(key)
        if op is None:  # of a class that took the action back, or renamed it
            slot.rt.dead_letter(str(slot.unknown(key)), slot, sender, key, args)
            continue
        try:
            if slot is sender:
                slot.send_from(slot, key, args, kwargs)
                taken += 1
            else:
                taken += _give(slot, op, _bound(op, args, kwargs, shared), sender)
        except AgentError as exc:
            slot.rt.dead_letter(str(exc), slot, sender, key, args)
    return taken


class _HeldBroadcast:
    """A message of a durable agent to a group's members, sent once the agent's state is kept.

    While it is being sent, it stands in for the sender's current turn.
    """

    __slots__ = ("_args", "_key", "_kwargs", "_members", "sender", "trace")

    def __init__(
        self, sender: Any, members: list[Slot], key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.sender = sender
        self.trace = current_mark(sender.rt) if sender.traced else None
        self._members = members
        self._key = key
        self._args = args
        self._kwargs = kwargs

    def release(self) -> None:
        """See `Output`."""
        turns = self.sender.turns
        turns.slot, turns.current = self.sender, self
        try:
            _broadcast(self.sender, self._members, self._key, self._args, self._kwargs)
        finally:
            turns.slot, turns.leave = None, False

    def drop(self, why: str) -> None:
        """See `Output`."""
        for slot in self._members:
            slot.rt.dead_letter(why, slot, self.sender, self._key, self._args)


def _bound(
    op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], shared: dict[Operation, tuple[Any, ...]]
) -> tuple[Any, ...]:
    """Check and convert the arguments: once if they are immutable, otherwise for each member anew."""
    bound = shared.get(op)
    if bound is None:
        bound = op.bind(args, kwargs)
        if all(p.shape.immutable for p in op.params):
            shared[op] = bound
    return bound


def _give(slot: Slot, op: Operation, args: tuple[Any, ...], sender: Any) -> bool:
    """Post a one-way message without waiting; return whether the mailbox accepted it. Raises AgentError."""
    if not op.kind and slot.accepted - slot.begun < slot.size:
        slot.seat(op, args, sender)
        return True
    if slot.mailbox.when_full == "wait" and slot.full():
        slot.ensure_extra().refused += 1  # it is full, so it is in no sums
        raise MailboxFull(slot.path, slot.mailbox.size)
    op.check_one_way()
    tell = Tell(slot, op, args, sender)
    slot.post(tell)
    return tell.phase != DONE


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a group's name is a str, not {name!r}")


@enable_ki_protection
def join(slot: Slot, name: str) -> None:
    """Add an agent to a group; do nothing if the agent is being stopped."""
    _check_name(name)
    if slot.state >= DRAINING:
        return
    roll = _roll(slot.rt, name, slot.rt.node_of(slot))
    more = slot.ensure_extra()
    if more.groups is None:
        more.groups = {}
    more.groups[roll] = None
    roll.add(slot)


@enable_ki_protection
def leave(slot: Slot, name: str) -> bool:
    """Undo one joining of an agent; return whether it was a member."""
    _check_name(name)
    roll: Roll | None = slot.rt.groups.get(name_on(slot.rt.node_of(slot), name))
    if roll is None or slot not in roll.members:
        return False
    if roll.remove(slot):
        groups = slot.ensure_extra().groups
        if groups is not None:
            groups.pop(roll, None)
    return True
