"""Links to the agents that match a query: to one elsewhere, or to all of them, chosen for each request.

What it keeps true:

- **At most one agent begins with a request.** Another replica is tried only where the first certainly has
  not begun (`_may_try_another`): not reachable, not found, or dead before the turn started. An error of the
  turn itself is the answer. With an unknown outcome there is no second attempt, as it could run twice; a
  repeat with a key goes to the agent that may have begun, and to no other one (`Attempt.begun_by`).
- **Time counts from the first attempt.** Looking up, connecting and all attempts share one deadline; each
  attempt gets what is left of it.
- **Choosing never waits for a directory** where replicas are known: what is older than `FRESH_SECONDS` is
  looked up in the background. A request waits only where none is known, or all known ones failed.
- **A node that is cut off refuses nothing.** So the agent of an id is looked up again, in the background,
  when a request to it was given up or has an unknown outcome: the next one goes to the node that now runs it.
  It is also looked up while a request waits for long; the wait ends once another node runs it (`answer_of`).
- **Replicas that are known to be down come last, not never**, as they may be back.
- **Keys stay with their replica.** By `key`, rendezvous hashing (Thaler and Ravishankar 1998) ranks all
  replicas for each key, the same in every process and whatever their order, so that one that comes or goes
  moves only its own keys.

Without `by` the link leads to a single agent elsewhere, and stays with it for as long as that is known.
The class is one file because every verb chooses first, and the choice depends on the failures of the verbs.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn
from zlib import crc32

import trio
from attrs import evolve
from trio.lowlevel import checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import (
    MISSING,
    ForwardingLink,
    key_text,
    near_links,
    no_answers,
    park_among,
    wrong_operation,
)
from lmos_actors.errors import (
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    InvalidInput,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
)

from ._lookup import FRESH_SECONDS, MIN_INTERVAL, NEVER, KnownReplicas, Replica

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.actors import (
        AgentQuery,
        Attempt,
        Down,
        Feed,
        Invocation,
        Operation,
        Runtime,
        Spread,
    )
    from lmos_actors.errors import AgentError

    from ._lookup import Lookup

WAITS: Final = (0.5, 1.0, 2.0, 5.0)
"""Seconds between the look-ups while a caller waits for an agent to appear; the last value repeats."""

RUNNING_SECONDS: Final = 2.0
"""Seconds to wait for an agent that was reached and does not run, before other replicas are tried again."""

_PROPERTIES: Final = "?="  # first characters of the keys that read and write properties


class ReplicaLink(ForwardingLink):
    """Link to a replica that is chosen for each request; see `Link`.

    Without `by`, it leads to one agent elsewhere for as long as that agent can be reached. `id_of` returns
    the id by which other nodes address an agent of this node.
    """

    def __init__(
        self,
        rt: Runtime,
        lookup: Lookup | None,
        id_of: Callable[[Any], str],
        query: AgentQuery,
        by: Spread | None,
        key: str | None,
    ) -> None:
        super().__init__(rt)
        self._query = query
        self._table: Any = getattr(getattr(query.cls, "__contract__", None), "table", {})
        self._by = by
        self._key = key
        self._known = None if lookup is None else KnownReplicas(lookup, query)
        self._id_of = id_of
        self._near: list[Replica] = []
        self._population_version = -1
        self._next_place = 0
        self._current: Replica | None = None
        self._last_refusal = ""  # failure of the last replica that a waiting caller tried

    # ---- replicas

    def _members(self) -> list[Replica]:
        """Return all known replicas: the ones of this node in start order, then the others by id."""
        if self._by is not None and self._population_version != self.rt.population.version:
            self._population_version = self.rt.population.version
            kept = {each.link: each for each in self._near}
            links = near_links(self.rt, self._query)
            self._near = [kept.get(link) or Replica.near(self._id_of(link), link) for link in links]
        return [*self._near, *self._known.replicas.values()] if self._known is not None else self._near

    @property
    def is_settled(self) -> bool:
        """Whether the link leads to a single agent elsewhere that has been found."""
        current, known = self._current, self._known
        return current is not None and known is not None and known.replicas.get(current.id) is current

    def choose(self, *_request: object) -> Any:
        """Return the link of the single agent, which keeps the counts. Raises as `settled`."""
        return self.settled()

    def settled(self) -> Any:
        """Return the link of the single agent. Raises AgentUnavailable, and NotAllowed for several."""
        if self._by is not None:
            raise NotAllowed(f"{self.path!r} stands for several agents, this needs one: use node.search(...)")
        if self._current is None or not self.is_settled:
            raise AgentUnavailable(self.path, "it has not been found yet: await ref.ready()")
        return self._current.link

    @property
    def address(self) -> dict[str, str]:
        """Raise TypeError, as an agent found by a search need not exist after a restart; see `RemoteLink`."""
        raise TypeError("which is found in directories: make the field ephemeral, and find it in started()")

    @property
    def path(self) -> str:
        """Path of the single agent; the text of the query until it is found, or if there are several."""
        if self._by is None and self._current is not None and self.is_settled:
            path: str = self._current.link.path
            return path
        return self._query.shown

    def _not_found(self) -> AgentError:
        if self._known is not None:
            return self._known.missing()
        return self._query.missing("this node")

    def _check_node(self) -> None:
        """Raise NotFound once the node has ended, as it then opens no connection and queries no directory."""
        if self.rt.ended:
            raise self._query.missing("this node, which has ended")

    # ---- choosing

    def _choose(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tried: Mapping[Replica, None],
        only: str | None = None,
    ) -> Replica | None:
        """Return the next replica to try, None if all were tried; replicas known to be down are last.

        With `only`, return only a replica of that agent.
        """
        if self._query.id is not None:
            self._current = self._newest()
            return None if self._current in tried else self._current
        members = [each for each in self._members() if each not in tried and only in (None, each.agent)]
        usable = [each for each in members if not each.is_down] or members
        if not usable:
            return None
        if self._by is None:
            if self._current not in usable:
                self._current = usable[0]
            return self._current
        if self._by == "key":
            text = self._key_of(key, args, kwargs)
            if text is not None:
                return max(usable, key=lambda each: _rendezvous_weight(text, each.id))
        if self._by == "least_loaded":
            return self._least_loaded(usable)
        place = self._next_place if self._next_place < len(usable) else 0  # round robin
        self._next_place = place + 1
        return usable[place]

    def _newest(self) -> Replica | None:
        """Return the replica with the newest epoch, for an agent that only one node runs at a time."""
        return max(self._members(), key=lambda each: each.epoch, default=None)

    def _least_loaded(self, usable: list[Replica]) -> Replica:
        """Return the replica with the least load; replicas with equal load take turns."""
        first = self._next_place % len(usable)
        turned = [*usable[first:], *usable[:first]]
        chosen = min(turned, key=Replica.load)
        self._next_place = usable.index(chosen) + 1
        return chosen

    def _key_of(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
        """Return the key of a request; None for an invalid value, which any replica will refuse."""
        op = self.operation(key)
        for place, param in enumerate(op.params):
            if not param.is_stream and (self._key is None or param.name == self._key):
                value: Any = kwargs.get(param.name, MISSING)
                if place < len(args) and not param.keyword_only:
                    value = args[place]
                if value is MISSING:
                    value = param.default
                try:
                    return None if value is MISSING else key_text(param.shape.take(value))
                except InvalidInput:
                    return None
        lacks = f"parameter {self._key!r}" if self._key else "parameter"
        raise InvalidInput(f"{op.label} has no {lacks} to choose an agent by", f"$.{self._key or 'key'}")

    def operation(self, key: str) -> Operation:
        """Return the operation of a key, from the class, or for any class from the agent. Raises NotFound."""
        if not self._table and self.is_settled:
            return self.settled().operation(key)  # type: ignore[no-any-return]
        op: Operation | None = self._table.get(key)
        if op is None:
            raise NotFound("affordance", key, where=self.path)
        return op

    def repeatable(self, key: str) -> bool:
        """Return whether repeating the operation has no further effect."""
        if not self._table and self.is_settled:
            return bool(self.settled().repeatable(key))
        return bool(getattr(self._table.get(key), "repeatable", False))

    def keeps_answers(self, key: str) -> bool:
        """Return whether answers to requests with a key are kept, as by a single durable agent."""
        if self._query.id is not None:
            return not self.operation(key).streams
        contract: Any = getattr(self._query.cls, "__contract__", None)
        op = None if contract is None or contract.state is None else contract.table.get(key)
        return self._by is None and op is not None and wrong_operation(op) is None

    @property
    def takes_named_keys(self) -> bool:
        """Whether a caller's key reaches the same agent each time: a search may find another one next."""
        return self._query.id is not None

    def _check(self, key: str) -> None:
        if self._by is not None and key[0] in _PROPERTIES:
            raise NotAllowed(
                f"{self.path!r} stands for several agents, each with its own properties: use node.search(...)"
            )

    # ---- requests

    async def _next_replica(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tried: dict[Replica, None],
        error: AgentError | None,
        only: str | None,
    ) -> Replica:
        """Return the next replica, after a look-up if none is left.

        Raises `error`; or, if no agent is registered now, AgentUnavailable or NotFound, which says so.
        """
        known = self._known
        refreshed = self._by is not None or self._query.id is not None
        if known is not None and known.is_older_than(FRESH_SECONDS) and refreshed:
            known.start_look_up()
        chosen = self._choose(key, args, kwargs, tried, only)
        if chosen is None and known is not None and (known.is_due or not tried):
            await known.look_up()
            chosen = self._choose(key, args, kwargs, tried, only)
        if chosen is None:
            if self._query.id is not None and isinstance(error, NotFound):  # it has gone from there
                why = "the node that ran it runs it no more, and no other is known yet"
                raise AgentUnavailable(self.path, why, retry_in=MIN_INTERVAL)
            if only is not None and error is None:
                why = "the agent that may have begun with it is not registered now"
                raise AgentUnavailable(self.path, why, retry_in=MIN_INTERVAL)
            if error is None or not self._members():
                raise self._not_found() from error
            raise error
        tried[chosen] = None
        return chosen

    def _may_try_another(self, replica: Replica, error: AgentError) -> bool:
        """Return whether another replica may be tried: only if this one has certainly not begun."""
        if isinstance(error, NotFound):
            if error.kind != "agent":
                return False
            if self._known is not None:
                self._known.forget(replica)
            return True
        if isinstance(error, AgentDied) and error.started:
            return False
        if self._query.id is not None:  # another node may run it by now
            return True
        return self._by is not None or replica.is_down  # a single agent may just be restarting

    async def _carry(
        self,
        send: Callable[[Replica, float | None], Awaitable[Any]],
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        only: str | None = None,
    ) -> Any:
        self._check(key)
        await checkpoint_if_cancelled()
        ends = inf if seconds is None else trio.current_time() + seconds
        tried: dict[Replica, None] = {}
        error: AgentError | None = None
        while True:
            replica: Replica | None = None
            # not around `send`: the block that it may enter is left after this scope
            with trio.CancelScope(deadline=ends):
                replica = await self._reachable(key, args, kwargs, tried, error, only)
            left = None if seconds is None else ends - trio.current_time()
            if replica is None or (left is not None and left <= 0):
                raise DeadlineExceeded(self.path, seconds or 0.0, why=self.unready())
            try:
                with replica.counted():
                    return await send(replica, left)
            except (trio.Cancelled, OutcomeUnknown):
                self._got_no_answer()
                raise
            except DeadlineExceeded as late:
                self._got_no_answer()
                raise DeadlineExceeded(late.agent, seconds or late.seconds, why=late.why) from None
            except (AgentUnavailable, AgentDied, NotFound) as failure:
                if not self._may_try_another(replica, failure):
                    raise
                error = failure

    def _got_no_answer(self) -> None:
        """Look up an agent with an id again, as its node may be cut off and another may run it by now."""
        known = self._known
        if self._query.id is not None and known is not None and known.is_due:
            known.start_look_up()

    async def _reachable(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tried: dict[Replica, None],
        error: AgentError | None,
        only: str | None,
    ) -> Replica:
        """Return the next replica that can be reached. Raises as `_next_replica` when none is left."""
        while True:
            self._check_node()
            replica = await self._next_replica(key, args, kwargs, tried, error, only)
            try:
                await replica.wait_reached()
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
        """See `Link`: looking up and connecting count as part of `seconds`."""

        async def ask_it(replica: Replica, link: Any, left: float | None) -> Any:
            if self._known is None or replica.key is None or replica.is_near:
                return await link.ask(key, args, kwargs, left, attempt)
            return await self._known.answer_of(replica, lambda: link.ask(key, args, kwargs, left, attempt))

        async def send(replica: Replica, left: float | None) -> Any:
            link = replica.link
            if attempt is None or attempt.key is None:
                return await ask_it(replica, link, left)
            if not link.keeps_answers(key):
                if self.takes_named_keys or attempt.begun_by is not None:
                    raise NotAllowed(no_answers(self.path))
                attempt.key = None  # that node keeps none, so this is the only attempt
            try:
                return await ask_it(replica, link, left)
            except OutcomeUnknown:
                if self._query.id is None:  # an id finds only one agent
                    attempt.begun_by = replica.agent
                raise

        only = None if attempt is None else attempt.begun_by
        return await self._carry(send, key, args, kwargs, seconds, only)

    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        await self._carry(lambda each, _: each.link.tell(key, args, kwargs), key, args, kwargs)

    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`. Also raises `trio.WouldBlock` if a look-up or a connection is needed first."""
        self._check(key)
        replica = self._choose_nowait(key, args, kwargs)
        if replica is None:
            raise trio.WouldBlock
        replica.link.tell_nowait(key, args, kwargs)

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`. If no known replica can take the message at once, it becomes a dead letter."""
        self._check(key)
        replica = self._choose_nowait(key, args, kwargs)
        if replica is None:
            place: Any = self  # the record needs only the path
            why = "no agent that could take it has been found yet: await ref.ready() first"
            self.rt.dead_letter(why, place, sender, self.operation(key).name, args)
            return
        replica.link.send_from(sender, key, args, kwargs)

    def _choose_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Replica | None:
        """Return a connected replica without waiting, or None; start a look-up if the last one is old."""
        self._check_node()
        if self._known is not None and self._known.is_older_than(FRESH_SECONDS):
            self._known.start_look_up()
        tried: dict[Replica, None] = {}
        while (chosen := self._choose(key, args, kwargs, tried)) is not None:
            if chosen.usable_link is not None:
                return chosen
            tried[chosen] = None
        return None

    # ---- calls

    @asynccontextmanager
    @enable_ki_protection
    async def open(self, invocation: Invocation) -> AsyncGenerator[Any]:
        """See `Link`. Replicas that cannot be reached are skipped."""
        key, args, kwargs, seconds = invocation.key, invocation.args, invocation.kwargs, invocation.seconds
        async with AsyncExitStack() as stack:
            enter = _enterer(stack, lambda link, left: link.open(evolve(invocation, seconds=left)))
            yield await self._carry(enter, key, args, kwargs, seconds)

    # ---- listening

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """See `Link`. Raises NotAllowed if the link stands for several agents."""
        self._check_single()
        async with AsyncExitStack() as stack:
            enter = _enterer(stack, lambda link, _: link.listen(key, conflate=conflate, gaps=gaps, size=size))
            yield await self._carry(enter, key[1:], (), {})

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self) -> AsyncGenerator[Feed[Down]]:
        """See `Link`. Raises NotAllowed if the link stands for several agents."""
        self._check_single()
        async with AsyncExitStack() as stack:
            yield await self._carry(_enterer(stack, lambda link, _: link.watch()), "!", (), {})

    def _check_single(self) -> None:
        if self._by is not None:
            raise NotAllowed(f"{self.path!r} stands for several agents: listen to each, use node.search(...)")

    def sinks(self) -> Any:
        """Return the listeners of the single agent."""
        return self.settled().sinks()

    def link(self) -> NoReturn:
        """Raise NotAllowed, as only agents of one process can be linked."""
        raise NotAllowed(f"{self.path!r} may be in another process, or several agents: it cannot be linked")

    # ---- identity

    @property
    def identity(self) -> tuple[object, int]:
        """Key by which two refs are equal: the agent, or for several agents the query and the choice rule."""
        if self._by is None:
            if not self.is_settled:
                raise self._query.missing("this node, and elsewhere none is known yet")
            found: tuple[object, int] = self.settled().identity
            return found
        return (self.rt, self._query, self._by, self._key), crc32(self._query.shown.encode())

    # ---- waiting

    async def wait_running(self) -> None:
        """Wait until a replica takes messages. Raises NotFound at the end of the node."""
        await self.settle_unless(lambda: None)

    async def settle_unless(self, near: Callable[[], Any]) -> ReplicaLink | None:
        """Wait until a replica takes messages, and return self; None once `near` returns an agent.

        Raises NotFound at the end of the node.
        """
        waits = iter(WAITS)
        wait = next(waits)
        while True:
            if near() is not None:
                return None
            self._check_node()
            if await self._is_there_first(near):
                return self
            if near() is None:
                with trio.move_on_after(wait):
                    await park_among(self.rt.appeared)
            wait = next(waits, wait)

    async def _is_there_first(self, near: Callable[[], Any]) -> bool:
        """Return whether a replica runs; stop once `near` returns an agent, as directories may be slow."""
        found = False
        async with trio.open_nursery() as nursery:

            async def look_here() -> None:
                while near() is None and not self.rt.ended:
                    await park_among(self.rt.appeared)
                nursery.cancel_scope.cancel("an agent has appeared here")

            nursery.start_soon(look_here, name=f"{self._query.shown} may appear here")
            found = await self.look_once()
            nursery.cancel_scope.cancel("the others have been looked at")
        return found

    def unready(self) -> str:
        """Return the reason why no replica takes messages, as a text for errors."""
        known = self._known
        if not self._members():
            if known is not None and known.at == NEVER:
                return f"no answer yet from {known.asked}"
            missing = self._not_found()
            return missing.why if isinstance(missing, AgentUnavailable) else str(missing)
        return self._last_refusal or "none of those that were found runs"

    async def look_once(self) -> bool:
        """Return whether a replica runs, after a look-up if the last one is old."""
        if self._known is not None and self._known.is_due:
            await self._known.look_up()
        newest = None if self._query.id is None else self._newest()
        for replica in self._members() if newest is None else [newest]:
            try:
                link = await replica.wait_reached()
                if replica.is_down:
                    continue
                if not replica.is_near:  # its node may end meanwhile, and it may run at another address then
                    with trio.fail_after(RUNNING_SECONDS):
                        await link.wait_running()
            except (AgentUnavailable, NotFound) as error:
                self._last_refusal = str(error)
                continue
            except trio.TooSlowError:
                self._last_refusal = f"{replica.id} has not run for {RUNNING_SECONDS:g} s"
                continue
            if self._by is None:
                self._current = replica
            return True
        return False

    def then(self, found: Callable[[Any], None]) -> None:
        """Call `found` with the chosen link after the next look-up, if that finds a replica."""

        def deliver() -> None:
            replica = self._choose("", (), {}, {})
            if replica is not None and replica.link_or_none is not None:
                found(replica.link)

        if self._known is not None:
            self._known.on_looked_up(deliver)


def _enterer(
    stack: AsyncExitStack, enter: Callable[[Any, float | None], AbstractAsyncContextManager[Any]]
) -> Callable[[Replica, float | None], Awaitable[Any]]:
    """Return a function that enters a context at a replica, and counts an open request until its exit."""

    async def send(replica: Replica, left: float | None) -> Any:
        entered = await stack.enter_async_context(enter(replica.link, left))
        stack.enter_context(replica.counted())
        return entered

    return send


def _rendezvous_weight(key: bytes, id: str) -> bytes:
    """Return the weight of a replica for a key; the replica with the greatest weight serves the key."""
    return blake2b(key, digest_size=16, key=blake2b(id.encode("utf-8", "replace")).digest()).digest()
