"""Links that lead to agents that were looked for: to one elsewhere, or to all of them in turn.

A request goes to one agent. To another it goes only where the first has not begun with it, so that there is
exactly one answer.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn
from zlib import crc32

import trio
from attrs import evolve
from trio.lowlevel import checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import park_among
from lmos_actors.errors import AgentDied, AgentUnavailable, DeadlineExceeded, NotAllowed, NotFound

from ._candidates import Candidates
from ._lookup import FRESH, NEVER, PAUSE, Replica

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.actors import (
        AgentQuery,
        AgentStatistics,
        Attempt,
        Down,
        Feed,
        Invocation,
        MailboxStatistics,
        Operation,
        Runtime,
        Spread,
        Turns,
    )
    from lmos_actors.errors import AgentError

    from ._lookup import Lookup

WAITS: Final = (0.5, 1.0, 2.0, 5.0)
"""Seconds between the look-ups of one who waits until there is such an agent; the last for ever."""


class Choice:
    """A link to whichever of the agents that are sought is chosen, request by request; see `Link`."""

    def __init__(
        self,
        rt: Runtime,
        lookup: Lookup | None,
        id_of: Callable[[Any], str],
        sought: AgentQuery,
        by: Spread | None,
        key: str | None,
    ) -> None:
        self.rt = rt
        self.turns: Turns = rt.turns
        self._candidates = Candidates(rt, lookup, id_of, sought, by, key)
        self._known = self._candidates.known
        self._sought = sought
        self._by = by
        self._key = key
        self._why = ""  # why the last one refused that a waiting task has tried

    @property
    def path(self) -> str:
        """The path of the agent that it leads to; until then, and of several, what is sought."""
        return self._candidates.path

    @property
    def is_settled(self) -> bool:
        """Whether it leads to one agent elsewhere, which has been found."""
        return self._candidates.is_settled

    def settled(self) -> Any:
        """Return the link that it leads to; see `Candidates.settled`."""
        return self._candidates.settled()

    def operation(self, key: str) -> Operation:
        """Return the operation of that key, as the class has it. Raises NotFound."""
        return self._candidates.operation(key)

    def repeatable(self, key: str) -> bool:
        """Return whether asking twice does no more than asking once."""
        return self._candidates.repeatable(key)

    # ---- carrying

    async def _next_one(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tried: dict[Replica, None],
        error: AgentError | None,
    ) -> Replica:
        """Choose whom to ask next, looking up first where that is needed. Raises `error`, or NotFound."""
        known = self._known
        if known is not None and known.is_older_than(FRESH) and self._by is not None:
            known.look_soon()
        chosen = self._candidates.choose(key, args, kwargs, tried)
        if chosen is None and known is not None and known.is_older_than(PAUSE if tried else 0.0):
            await known.look()
            chosen = self._candidates.choose(key, args, kwargs, tried)
        if chosen is None:
            raise error or self._candidates.missing()
        tried[chosen] = None
        return chosen

    def _goes_on(self, replica: Replica, error: AgentError) -> bool:
        """Return whether another may be asked instead, which is only where this one has not begun."""
        if isinstance(error, NotFound):
            if error.kind != "agent":
                return False
            if self._known is not None:
                self._known.gone(replica)
            return True
        if isinstance(error, AgentDied) and error.started:
            return False
        return self._by is not None or replica.is_down  # of one alone: it may be between two lives

    async def _carry(
        self,
        send: Callable[[Replica, float | None], Awaitable[Any]],
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
    ) -> Any:
        self._candidates.check(key)
        await checkpoint_if_cancelled()
        ends = inf if seconds is None else trio.current_time() + seconds
        tried: dict[Replica, None] = {}
        error: AgentError | None = None
        while True:
            replica: Replica | None = None
            with trio.CancelScope(deadline=ends):  # not around what is entered: that is left later than this
                replica = await self._reached(key, args, kwargs, tried, error)
            left = None if seconds is None else ends - trio.current_time()
            if replica is None or (left is not None and left <= 0):
                raise DeadlineExceeded(self.path, seconds or 0.0, why=self.unready())
            try:
                with replica.counted():
                    return await send(replica, left)
            except DeadlineExceeded as late:
                raise DeadlineExceeded(late.agent, seconds or late.seconds, why=late.why) from None
            except (AgentUnavailable, AgentDied, NotFound) as failure:
                if not self._goes_on(replica, failure):
                    raise
                error = failure

    async def _reached(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tried: dict[Replica, None],
        error: AgentError | None,
    ) -> Replica:
        """Return the next one that can be reached. Raises `error` where there is none any more, or why."""
        while True:
            self._candidates.check_node()
            replica = await self._next_one(key, args, kwargs, tried, error)
            try:
                await replica.reached()
            except AgentUnavailable as unavailable:
                error = unavailable
            else:
                return replica

    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """See `Link`: looking, and connecting, count."""
        return await self._carry(
            lambda each, left: each.link.ask(key, args, kwargs, left, attempt), key, args, kwargs, seconds
        )

    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        await self._carry(lambda each, _: each.link.tell(key, args, kwargs), key, args, kwargs)

    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`: raises `trio.WouldBlock` also where it has to be looked for, or connected, first."""
        self._candidates.check(key)
        replica = self._at_once(key, args, kwargs)
        if replica is None:
            raise trio.WouldBlock
        replica.link.tell_nowait(key, args, kwargs)

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`. While none is known that can take it at once, the message is a dead letter."""
        self._candidates.check(key)
        replica = self._at_once(key, args, kwargs)
        if replica is None:
            place: Any = self  # of whom the record needs the path alone
            why = "nobody who could take it has been found yet: await ref.ready() comes first"
            self.rt.dead_letter(why, place, sender, self.operation(key).name, args)
            return
        replica.link.send_from(sender, key, args, kwargs)

    def _at_once(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Replica | None:
        """Choose without waiting; what would have to be waited for is begun."""
        self._candidates.check_node()
        if self._known is not None and self._known.is_older_than(FRESH):
            self._known.look_soon()
        tried: dict[Replica, None] = {}
        while (chosen := self._candidates.choose(key, args, kwargs, tried)) is not None:
            if chosen.usable_link is not None:
                return chosen
            tried[chosen] = None
        return None

    # ---- calls

    @asynccontextmanager
    @enable_ki_protection
    async def open(self, invocation: Invocation) -> AsyncGenerator[Any]:
        """See `Link`: who could not be reached is passed over, who was is not."""
        key, args, kwargs, seconds = invocation.key, invocation.args, invocation.kwargs, invocation.seconds
        async with AsyncExitStack() as stack:
            enter = _entering(stack, lambda link, left: link.open(evolve(invocation, seconds=left)))
            yield await self._carry(enter, key, args, kwargs, seconds)

    # ---- listening

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """See `Link`: of one agent alone."""
        self._check_one()
        async with AsyncExitStack() as stack:
            enter = _entering(
                stack, lambda link, _: link.listen(key, conflate=conflate, gaps=gaps, size=size)
            )
            yield await self._carry(enter, key[1:], (), {})

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self) -> AsyncGenerator[Feed[Down]]:
        """See `Link`: of one agent alone."""
        self._check_one()
        async with AsyncExitStack() as stack:
            yield await self._carry(_entering(stack, lambda link, _: link.watch()), "!", (), {})

    def _check_one(self) -> None:
        if self._by is not None:
            raise NotAllowed(f"{self.path!r} is several agents: listen to each, see node.search(...)")

    def sinks(self) -> Any:
        """Return the listeners of the agent that it leads to."""
        return self.settled().sinks()

    def link(self) -> NoReturn:
        """Refuse: a link joins two lives."""
        raise NotAllowed(f"{self.path!r} may be of another process, or several: it cannot be linked")

    def statistics(self) -> AgentStatistics:
        """See `Link`: of one agent alone, and that is elsewhere."""
        found: AgentStatistics = self.settled().statistics()
        return found

    def mailbox_statistics(self) -> MailboxStatistics:
        """See `Link`: of one agent alone, and that is elsewhere."""
        found: MailboxStatistics = self.settled().mailbox_statistics()
        return found

    # ---- who it is

    @property
    def identity(self) -> tuple[object, int]:
        """What makes two refs equal: the agent, or, of several, what is sought and how it is chosen."""
        if self._by is None:
            if not self.is_settled:
                raise NotFound(
                    "agent", self._sought.shown, where="this node, and elsewhere none is known yet"
                )
            found: tuple[object, int] = self.settled().identity
            return found
        return (self.rt, self._sought, self._by, self._key), crc32(self._sought.shown.encode())

    # ---- waiting

    async def wait_running(self) -> None:
        """Wait until one of them takes messages. Raises NotFound at the end of the node."""
        await self.settle_unless(lambda: None)

    async def settle_unless(self, near: Callable[[], Any]) -> Choice | None:
        """Wait until one can be asked, None once `near` gives one. Raises NotFound at the node's end."""
        waits = iter(WAITS)
        wait = next(waits)
        while True:
            if near() is not None:
                return None
            self._candidates.check_node()
            if await self._is_there_first(near):
                return self
            if near() is None:
                with trio.move_on_after(wait):
                    await park_among(self.rt.appeared)
            wait = next(waits, wait)

    async def _is_there_first(self, near: Callable[[], Any]) -> bool:
        """Look whether there is one that runs, for as long as `near` gives none: a directory may be slow."""
        found = False
        async with trio.open_nursery() as nursery:

            async def look_here() -> None:
                while near() is None and not self.rt.ended:
                    await park_among(self.rt.appeared)
                nursery.cancel_scope.cancel("an agent has appeared here")

            nursery.start_soon(look_here, name=f"{self._sought.shown} may appear here")
            found = await self._is_there()
            nursery.cancel_scope.cancel("the others have been looked at")
        return found

    def unready(self) -> str:
        """Return why nobody takes messages: nobody was found, or those that were do not run."""
        known = self._known
        if not self._candidates.members():
            if known is not None and known.at == NEVER:
                return f"no answer yet from {known.asked}"
            missing = self._candidates.missing()
            return missing.why if isinstance(missing, AgentUnavailable) else str(missing)
        return self._why or "none of those that were found runs"

    async def _is_there(self) -> bool:
        """Look whether there is one that runs."""
        if self._known is not None and self._known.is_older_than(PAUSE):
            await self._known.look()
        for replica in self._candidates.members():
            try:
                link = await replica.reached()
                if replica.is_down:
                    continue
                if not replica.is_near:
                    await link.wait_running()
            except (AgentUnavailable, NotFound) as error:
                self._why = str(error)
                continue
            if self._by is None:
                self._candidates.current = replica
            return True
        return False

    def then(self, found: Callable[[Any], None]) -> None:
        """Have somebody told of the link that it leads to, once that is found, if the next look-up does."""
        if self._known is not None:
            self._known.when_looked(lambda: self._tell(found))

    def _tell(self, found: Callable[[Any], None]) -> None:
        replica = self._candidates.choose("", (), {}, {})
        if replica is not None and replica.some_link is not None:
            found(replica.link)


def _entering(
    stack: AsyncExitStack, enter: Callable[[Any, float | None], AbstractAsyncContextManager[Any]]
) -> Callable[[Replica, float | None], Awaitable[Any]]:
    """Return what enters a block at whom it is sent to, who counts as asked until the block is left."""

    async def send(replica: Replica, left: float | None) -> Any:
        entered = await stack.enter_async_context(enter(replica.link, left))
        stack.enter_context(replica.counted())
        return entered

    return send
