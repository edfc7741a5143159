"""One address for several agents of a class: the choice of a member for each message, and total counts.

A message is passed on to one member unchanged: it does not wait here, and no task is in between. The members
and their number are decided above (`supervision/_members.py`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from hashlib import blake2b
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

import attrs
import trio
from msgspec import json, to_builtins
from trio.lowlevel import checkpoint, enable_ki_protection, reschedule

from lmos_actors.errors import AgentUnavailable, DeadlineExceeded, InvalidInput, NotAllowed, NotFound

from .._parking import park_among
from ..messages._gates import EMPTY, GONE, RUNNING, STATES
from ..messages._mailbox import AgentStatistics, MailboxStatistics
from ..messages._observers import MONITORS, Feed
from ..messages._operation import ASKING, MISSING, named
from ..refs._forwarding import ForwardingLink

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from .._runtime import Runtime
    from ..messages._monitor import Down
    from ..messages._observers import Sink, SinkTable
    from ..messages._operation import Operation, Parameter
    from ..refs._link import Attempt
    from ..slot._slot import Slot

By: TypeAlias = Literal["round_robin", "least_loaded", "key"]
BY: Final[tuple[str, ...]] = get_args(By)

_PROPERTIES: Final = "?="  # how the keys of reading and writing begin
_encode: Final = json.Encoder(order="deterministic").encode
_MASK: Final = (1 << 64) - 1


def key_text(key: object) -> bytes:
    """Return a key as bytes of text, the same in every process; equal plain data give the same text."""
    try:
        return _encode(key)
    except TypeError:  # a mapping whose keys are not text
        return _encode(to_builtins(key, str_keys=True, order="deterministic"))


def place_of(key: object, size: int) -> int:
    """Return the place, from 0 to `size - 1`, where a key belongs: the same in every process.

    With one place more, one key in `size + 1` moves, all of them to the new place; with one less, those of
    the last place alone (jump consistent hashing, Lamping and Veach 2014). Equal plain data are the same key.
    """
    state = int.from_bytes(blake2b(key_text(key), digest_size=8).digest(), "big")
    place, following = 0, 0
    while following < size:
        place = following
        state = (state * 2862933555777941757 + 1) & _MASK  # a linear congruential generator of full period
        following = int((place + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return place


def load_of(member: Slot) -> int:
    """Count the messages that wait or run at an agent: in and before its mailbox, in its turn and runs."""
    load = member.accepted - member.begun
    extra = member.extra
    if extra is not None:
        load += len(extra.runs) + len(extra.parked or ())
    return load + 1 if member.turns.slot is member else load


class Placed(Protocol):
    """The supervisor of a pool, as seen by the link of the pool."""

    @property
    def path(self) -> str:
        """The names from a child of the root down to the pool."""
        ...


class _Forwarder:
    """A sink on one member that passes values to a listener of the pool, which outlives the member."""

    __slots__ = ("gap", "only_reads", "push")

    def __init__(self, sink: Sink) -> None:
        self.only_reads: bool = getattr(sink, "only_reads", False)
        self.push = sink.push
        self.gap = sink.gap

    def close(self) -> None:
        """Do nothing, as only this member has ended permanently, and not the pool."""


class PoolSinks:
    """The listeners of a pool, a `SinkTable`; each listens to all present and later members."""

    __slots__ = ("_forwarders", "_members")

    def __init__(self, members: PoolLink) -> None:
        self._members = members
        self._forwarders: dict[str, dict[Sink, _Forwarder]] = {}

    def add(self, key: str, sink: Sink) -> None:
        """Add a sink for the values that any member pushes under `key` from now on."""
        forwarders = self._forwarders.setdefault(key, {})
        if sink not in forwarders:
            forwarders[sink] = forwarder = _Forwarder(sink)
            for member in self._members.present_slots():
                member.sinks().add(key, forwarder)

    def remove(self, key: str, sink: Sink) -> None:
        """Remove a sink, if it has not been removed already."""
        forwarders = self._forwarders.get(key)
        if forwarders is not None and sink in forwarders:
            forwarder = forwarders.pop(sink)
            if not forwarders:
                del self._forwarders[key]
            for member in self._members.present_slots():
                member.sinks().remove(key, forwarder)

    def count(self, key: str) -> int:
        """Return how many sinks are under `key`."""
        return len(self._forwarders.get(key, ()))

    def join(self, member: Slot) -> None:
        """Add all listeners of the pool to a new member."""
        for key, forwarders in self._forwarders.items():
            for forwarder in forwarders.values():
                member.sinks().add(key, forwarder)

    def close(self) -> None:
        """Remove and close all listeners, as the pool has ended permanently."""
        listening = [(key, sink) for key, forwarders in self._forwarders.items() for sink in forwarders]
        for key, sink in listening:
            self.remove(key, sink)
        for _, sink in listening:
            sink.close()


class PoolLink(ForwardingLink):
    """A link that chooses a member for each message; see `Link`.

    `choose` returns the member that gets a message, and raises AgentUnavailable, NotAllowed, NotFound.
    The link keeps the counts of present and former members.
    """

    __slots__ = (
        "_departed", "_key", "_leaving", "_next", "_number", "_places", "_refused", "_sinks", "_sticky",
        "choose", "gone", "members", "placed",
    )  # fmt: skip

    choose: Callable[..., Slot]

    def __init__(self, rt: Runtime, placed: Placed, by: By, key: str | None) -> None:
        super().__init__(rt)
        self.placed = placed
        rt.slots_made += 1
        self._number: int = rt.slots_made
        self.members: list[Slot] = []
        self.gone = False
        self._leaving: list[Slot] = []
        self._departed: Counter[str] = Counter()
        self._refused = 0  # by the pool itself: they reached no member
        self._sinks = PoolSinks(self)
        self._next = 0
        self._key = key
        self._places: dict[str, tuple[int, Parameter]] = {}
        picks: dict[By, Callable[[str, tuple[Any, ...], Mapping[str, Any]], Slot]] = {
            "round_robin": self._in_turn,
            "least_loaded": self._least_loaded,
            "key": self._by_key,
        }
        self.choose = picks[by]
        self._sticky = by == "key"  # a message for one member is for no other

    @property
    def path(self) -> str:
        """The pool's path in the tree."""
        return self.placed.path

    @property
    def identity(self) -> tuple[object, int]:
        """The value by which refs are compared."""
        return self.rt, self._number

    # ---- the members, as the supervisor sets them

    def present_slots(self) -> list[Slot]:
        """Return the members, and removed members that still handle messages accepted before."""
        return [*self.members, *self._leaving]

    def seat(self, members: Iterable[Slot]) -> None:
        """Replace the members of the pool."""
        wanted, present = list(members), self.present_slots()
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
        """Add members, after all others."""
        for member in members:
            self._sinks.join(member)
            self.members.append(member)

    def leave(self, count: int) -> list[Slot]:
        """Remove the last `count` members from the choice, and return them, the last one first."""
        leaving = [self.members.pop() for _ in range(count)]
        self._leaving.extend(leaving)
        return leaving

    def departed(self, former: Slot) -> None:
        """Keep the counts of a former member that has ended and whose slot is removed."""
        if former in self._leaving:
            self._leaving.remove(former)
        self._departed.update(_numbers(former.statistics()))

    def close(self) -> None:
        """Mark the pool as ended permanently, and wake all tasks that wait for a member."""
        self.gone = True
        self._sinks.close()
        waiting, self.rt.appeared = self.rt.appeared, []
        self.rt.timers.woke = True
        for task in waiting:
            reschedule(task)

    # ---- all members taken together

    def sinks(self) -> SinkTable:
        """Return the listeners of the pool."""
        return self._sinks

    def operation(self, key: str) -> Operation:
        """Return the operation with a key. Raises `NotFound`, `AgentUnavailable`."""
        if self.gone or not self.members:
            raise self.no_member()
        return self.members[0].operation(key)

    def no_member(self) -> AgentUnavailable | NotFound:
        """Make the error for a message that no member can take, and count the message."""
        if self.gone:
            return NotFound("agent", self.path)
        self._refused += 1
        return AgentUnavailable(self.path, self.unready())

    def statistics(self) -> AgentStatistics:
        """Add up the counts of all members, present and former; `running` if at least one member runs."""
        numbers = Counter(self._departed)
        for member in self.present_slots():
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
        """Add up the mailbox statistics of the members."""
        each = [member.mailbox_statistics() for member in self.present_slots()]
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
        """Wait until a member takes messages. Raises NotFound if the pool or the node has ended."""
        while not any(member.state == RUNNING for member in self.members):
            if self.gone or self.rt.ended:
                raise NotFound("agent", self.path)
            await park_among(self.rt.appeared)

    def unready(self) -> str:
        """Return why no member takes messages now."""
        return f"none of its {len(self.members)} members is running"

    # ---- choosing

    def _in_turn(self, key: str, _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> Slot:
        """Return the next running member in rotation."""
        if key[0] in _PROPERTIES:
            raise self._no_property()
        members = self.members
        place = self._next if self._next < len(members) else 0
        try:
            member = members[place]
        except IndexError:  # the pool has not begun to start
            raise self.no_member() from None
        self._next = place + 1
        if member.state == RUNNING:
            return member
        for step in range(1, len(members)):
            there = (place + step) % len(members)
            if members[there].state == RUNNING:
                self._next = there + 1
                return members[there]
        raise self.no_member()

    def _least_loaded(self, key: str, _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> Slot:
        """Return the running member with the smallest load; among equals, the next in rotation."""
        if key[0] in _PROPERTIES:
            raise self._no_property()
        members, least = self.members, -1
        size, chosen = len(members), 0
        for place in chain(range(self._next, size), range(min(self._next, size))):
            member = members[place]
            if member.state == RUNNING:
                load = load_of(member)
                if least < 0 or load < least:
                    least, chosen = load, place
                if not load:
                    break
        if least < 0:
            raise self.no_member()
        self._next = chosen + 1
        return members[chosen]

    def _by_key(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Slot:
        """Return the member to which the key belongs, whether it runs or not."""
        if key[0] in _PROPERTIES:
            raise self._no_property()
        place, param = self._places.get(key) or self._place_of_key(key)
        value: Any = kwargs.get(param.name, MISSING)
        if place < len(args) and not param.keyword_only:
            value = args[place]
        if value is MISSING:
            value = param.default
        else:
            try:
                value = param.shape.take(value)
            except InvalidInput:
                value = MISSING
        if value is MISSING:  # the member refuses it as any agent would
            return self._in_turn(key, args, kwargs)
        return self.members[place_of(value, len(self.members))]

    def _place_of_key(self, key: str) -> tuple[int, Parameter]:
        op = self.operation(key)
        for place, param in enumerate(op.params):
            if not param.is_stream and (self._key is None or param.name == self._key):
                self._places[key] = found = place, param
                return found
        self._refused += 1
        name = self._key or "key"
        lacks = f"parameter {self._key!r}" if self._key else "parameter"
        raise InvalidInput(
            f"{op.label} has no {lacks} by which the pool {self.path!r} could choose", f"$.{name}"
        )

    def _no_property(self) -> NotAllowed:
        return NotAllowed(
            f"{self.path!r} is a pool: each of its members has its own properties, see pool.members"
        )

    def replaces(self, member: Slot) -> bool:
        """Return whether another member may take a message that `member` will never begin."""
        return member.state != RUNNING and not self._sticky

    # ---- handing on

    # A member is chosen when the coroutine runs, not when it is made: by then it may be another's turn.

    @named(ASKING)
    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """Ask a member, as `Link` defines; one deadline covers all members that are tried."""
        ends = inf if seconds is None else trio.current_time() + seconds
        left = seconds
        while True:
            member = self.choose(key, args, kwargs)
            try:
                return await member.ask(key, args, kwargs, left)
            except AgentUnavailable:  # so it has not begun, and another member may take it
                if member.state == RUNNING or self._sticky:
                    raise
            except DeadlineExceeded as error:
                raise DeadlineExceeded(error.agent, seconds or error.seconds, why=error.why) from None
            if seconds is not None:
                left = ends - trio.current_time()
                if left <= 0:
                    raise DeadlineExceeded(self.path, seconds, why=self.unready())

    @named("ref.tell")
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        while True:
            member = self.choose(key, args, kwargs)
            try:
                return await member.tell(key, args, kwargs)
            except AgentUnavailable:
                if member.state == RUNNING or self._sticky:
                    raise

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`. While no member runs, the message is a dead letter, as with a single agent."""
        try:
            member = self.choose(key, args, kwargs)
        except AgentUnavailable as exc:
            pool: Any = self  # the record needs its path alone
            self.rt.dead_letter(str(exc), pool, sender, key, args)
            return
        member.send_from(sender, key, args, kwargs)

    # ---- listening to all

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """Subscribe to the events of all members until the block is left."""
        await checkpoint()
        if key[1] in _PROPERTIES:
            raise self._no_property()
        self.operation(key)
        feed: Feed[Any] = Feed(self.rt.timers, size=size, conflate=conflate, gaps=gaps)
        self._sinks.add(key[1:], feed)
        try:
            yield feed
        finally:
            self._sinks.remove(key[1:], feed)
            feed.close()

    def link(self) -> Any:
        """Raise NotAllowed, as a link joins exactly two agents and a pool has several."""
        raise NotAllowed(f"{self.path!r} is a pool, a link takes one agent: use the refs of pool.members")

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self) -> AsyncGenerator[Feed[Down]]:
        """Monitor all members until the block is left."""
        await checkpoint()
        if self.gone:
            raise NotFound("agent", self.path)
        feed: Feed[Down] = Feed(self.rt.timers)
        self._sinks.add(MONITORS, feed)
        try:
            yield feed
        finally:
            self._sinks.remove(MONITORS, feed)
            feed.close()


def _numbers(statistics: AgentStatistics) -> dict[str, int]:
    return {name: value for name, value in attrs.asdict(statistics).items() if isinstance(value, int)}
