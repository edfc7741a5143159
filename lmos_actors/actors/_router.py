"""One address for several agents of a class: who of them gets a message, and what all of them count together.

A message is handed on to one member as its sender sent it: nothing waits here and no task stands between.
What a member is, and how many there are, is decided above (`supervision/_members.py`).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import trio
from msgspec import json, to_builtins
from trio.lowlevel import checkpoint, enable_ki_protection

from lmos_actors.errors import AgentUnavailable, DeadlineExceeded, InvalidInput, NotAllowed, NotFound

from ._gates import RUNNING
from ._members import Members
from ._observers import MONITORS, Feed
from ._operation import ASKING, MISSING, named

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from ._members import Placed
    from ._monitor import Down
    from ._operation import Parameter
    from ._runtime import Runtime
    from ._slot import Slot

By: TypeAlias = Literal["round_robin", "least_loaded", "key"]
BY: Final[tuple[str, ...]] = get_args(By)

_PROPERTIES: Final = "?="  # how the keys of reading and writing begin
_encode: Final = json.Encoder(order="deterministic").encode
_MASK: Final = (1 << 64) - 1
_FACTOR: Final = 2862933555777941757  # of a linear congruential generator of full period


def key_text(key: object) -> bytes:
    """Return a key as text, the same in every process; equal plain data are one key."""
    try:
        return _encode(key)
    except TypeError:  # a mapping whose keys are not text
        return _encode(to_builtins(key, str_keys=True, order="deterministic"))


def place_of(key: object, size: int) -> int:
    """Return the place from 0 to `size - 1` where a key belongs, the same in every process.

    With one place more, one key in `size + 1` moves, all of them to the new place; with one less, those of
    the last place alone (jump consistent hashing, Lamping and Veach 2014). Equal plain data are one key.
    """
    state = int.from_bytes(blake2b(key_text(key), digest_size=8).digest(), "big")
    place, following = 0, 0
    while following < size:
        place = following
        state = (state * _FACTOR + 1) & _MASK
        following = int((place + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return place


def load_of(member: Slot) -> int:
    """Count what waits and runs at an agent: in its mailbox, in front of it, in its turn and its runs."""
    load = member.accepted - member.begun
    extra = member.extra
    if extra is not None:
        load += len(extra.runs) + len(extra.parked or ())
    return load + 1 if member.turns.slot is member else load


class PoolLink(Members):
    """A link to whichever member is chosen, message by message; see `Link`."""

    __slots__ = ("_key", "_next", "_pick", "_places", "_sticky")

    def __init__(self, rt: Runtime, placed: Placed, by: By, key: str | None) -> None:
        super().__init__(rt, placed)
        self._next = 0
        self._key = key
        self._places: dict[str, tuple[int, Parameter]] = {}
        picks: dict[By, Callable[[str, tuple[Any, ...], Mapping[str, Any]], Slot]] = {
            "round_robin": self._in_turn,
            "least_loaded": self._least_loaded,
            "key": self._by_key,
        }
        self._pick = picks[by]
        self._sticky = by == "key"  # what is for one member is for no other

    # ---- choosing

    def _in_turn(self, key: str, _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> Slot:
        """Return the next member that runs."""
        if key[0] in _PROPERTIES:
            raise self._no_property()
        members = self.members
        place = self._next if self._next < len(members) else 0
        try:
            member = members[place]
        except IndexError:  # the pool has not begun to start
            raise self.nobody() from None
        self._next = place + 1
        return member if member.state == RUNNING else self._next_running(place)

    def _next_running(self, place: int) -> Slot:
        members = self.members
        for step in range(1, len(members)):
            there = (place + step) % len(members)
            if members[there].state == RUNNING:
                self._next = there + 1
                return members[there]
        raise self.nobody()

    def _least_loaded(self, key: str, _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> Slot:
        """Return the running member that has the least to do; of several the next in turn."""
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
            raise self.nobody()
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
            if self._key is None or param.name == self._key:
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

    def choose(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Slot:
        """Return the member that is to have a message. Raises AgentUnavailable, NotAllowed, NotFound."""
        return self._pick(key, args, kwargs)

    def replaces(self, member: Slot) -> bool:
        """Return whether another member may take what this one has not begun and does not take any more."""
        return member.state != RUNNING and not self._sticky

    # ---- handing on

    # A member is chosen when the coroutine runs, not when it is made: by then it may be another's turn.

    @named(ASKING)
    async def ask(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """See `Link`."""
        while True:
            member = self._pick(key, args, kwargs)
            try:
                return await member.ask(key, args, kwargs)
            except AgentUnavailable:  # so it has not begun, and another member may take it
                if member.state == RUNNING or self._sticky:
                    raise

    @named(ASKING)
    async def ask_within(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
    ) -> Any:
        """See `Link`: the deadline is one for all members that are tried."""
        ends = trio.current_time() + seconds
        while True:
            member = self._pick(key, args, kwargs)
            left = ends - trio.current_time()
            if left <= 0:
                raise DeadlineExceeded(self.path, seconds)
            try:
                return await member.ask_within(key, args, kwargs, left)
            except AgentUnavailable:
                if member.state == RUNNING or self._sticky:
                    raise
            except DeadlineExceeded as error:
                raise DeadlineExceeded(error.agent, seconds) from None

    @named("ref.tell")
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        while True:
            member = self._pick(key, args, kwargs)
            try:
                return await member.tell(key, args, kwargs)
            except AgentUnavailable:
                if member.state == RUNNING or self._sticky:
                    raise

    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self._pick(key, args, kwargs).tell_nowait(key, args, kwargs)

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`. While no member runs, the message is a dead letter, as with a single agent."""
        try:
            member = self._pick(key, args, kwargs)
        except AgentUnavailable as exc:
            pool: Any = self  # of whom the record needs the path alone
            self.rt.dead_letter(str(exc), pool, sender, key, args)
            return
        member.send_from(sender, key, args, kwargs)

    @asynccontextmanager
    @enable_ki_protection
    async def begin(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float | None
    ) -> AsyncGenerator[Any]:
        """See `Link`."""
        async with self._pick(key, args, kwargs).begin(key, args, kwargs, seconds) as call:
            yield call

    @asynccontextmanager
    @enable_ki_protection
    async def stream(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float | None
    ) -> AsyncGenerator[Any]:
        """See `Link`."""
        async with self._pick(key, args, kwargs).stream(key, args, kwargs, seconds) as items:
            yield items

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
        """Refuse: a link joins two lives, and a pool has many."""
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
