"""A server reached over HTTP, in the place of a peer: requests are tasks, connections come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import trio
from trio.lowlevel import checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.errors import (
    AgentDied,
    AgentError,
    AgentUnavailable,
    ConnectFailed,
    NotFound,
    OutcomeUnknown,
)

from ..lmos._peer import Peer
from ..lmos._peer_requests import OutboundRequest, PendingTell, wake_all
from ._calls import WebRun
from ._invocations import GOODBYE, HttpInvocation, InvocationContext
from ._listening import HttpSubscription, target_of_listening
from ._pool import origin_of
from ._tells import OutgoingTells

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lmos_actors.actors import TraceMembers

    from ..lmos._peer import Headers, PeerEnvironment
    from ..lmos._peer_listening import SharedListening
    from ..lmos._peer_requests import PendingRequest, SentTell
    from ..lmos._peer_things import RemoteThing
    from ._forms import HttpOperations
    from ._pool import WebPool

_ALWAYS: Final[Any] = object()
"""In the place of a session: there always is a way to ask."""

ENDED: Final = "the node has ended"


class WebPeer(Peer):
    """One thing, spoken to over HTTP; `url` is where its first form leads.

    `headers` go with every request to the server of `meant` and to no other.
    """

    way = "http"

    def __init__(
        self,
        node: PeerEnvironment,
        pool: WebPool,
        ways: HttpOperations,
        url: str,
        headers: Headers,
        meant: str,
    ) -> None:
        super().__init__(node, url, headers)
        self.url = url
        self.place = url.partition("?")[0]
        self.session = _ALWAYS
        self._owner = origin_of(meant)
        self._pool = pool
        self.describe(ways)
        self._carried: dict[PendingRequest, trio.CancelScope] = {}
        self._subscriptions: dict[SharedListening, HttpSubscription] = {}
        self._listens: dict[SharedListening, trio.CancelScope] = {}
        self._tells = OutgoingTells(
            lambda: self._start(self._tell_all), lambda error: self._node.failed(error)
        )
        self._nursery: trio.Nursery | None = None
        self._early: list[tuple[Callable[..., Awaitable[object]], tuple[Any, ...]]] = []

    @property
    def ways(self) -> HttpOperations:
        """The operations over HTTP, by its description."""
        return self._server.ways

    def describe(self, ways: HttpOperations) -> None:
        """Take a newer description of the same thing."""
        self._server = InvocationContext(self._pool, ways, self._own, self._end_run, self._is_ending)

    def _own(self, url: str) -> Headers:
        return self.headers if self.headers and origin_of(url) == self._owner else ()

    # ---- its tasks

    async def run(self) -> None:
        """Carry out what is asked, until cancelled or let go; to be run once."""
        try:
            with self.scope:
                async with trio.open_nursery() as self._nursery:
                    early, self._early = self._early, []
                    for fn, args in early:
                        self._nursery.start_soon(fn, *args)
                    await trio.sleep_forever()
        finally:
            self._end()

    def _start(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        if self.ended:
            return
        if self._nursery is None:
            self._early.append((fn, args))
        else:
            self._nursery.start_soon(fn, *args, name=f"{fn.__name__} over HTTP")

    def _end(self) -> None:
        self.ended = True
        for request in tuple(self._carried):
            self._fail(request, OutcomeUnknown(request.far.path, ENDED))
        self._tells.end(lambda sent: AgentUnavailable(sent.far.path, ENDED))
        for far in self.things.values():
            for listening in tuple(far.listenings.values()):
                listening.close()
        wake_all(self, self._waiting)

    # ---- requests

    def post(self, request: PendingRequest) -> None:
        """Ask, in a task. Raises AgentUnavailable at the end of the node, InvalidInput, NotAllowed."""
        self._check_there(request.far)
        assert request.outbound is not None
        invocation = HttpInvocation(
            self._server, request.far, request.outbound, one_way=isinstance(request, PendingTell)
        )
        if isinstance(request, PendingTell):
            self._tells.post(request, invocation)
            return
        if isinstance(request, WebRun):
            request.at.invocation = invocation
        self._carried[request] = trio.CancelScope()
        request.on_sent()
        self._start(self._carry, request, invocation)

    def _is_ending(self) -> bool:
        return self.ended or self.released or self.rt.ended

    def _check_there(self, far: RemoteThing) -> None:
        if self._is_ending():
            raise self.unavailable(far)

    @enable_ki_protection
    async def _carry(self, request: PendingRequest, invocation: HttpInvocation) -> None:
        scope = self._carried.get(request)
        if scope is None:  # withdrawn by now
            return
        outcome: Exception = OutcomeUnknown(request.far.path, ENDED)
        try:
            with scope:
                try:
                    value = await invocation.run(request if isinstance(request, WebRun) else None)
                except AgentError as error:
                    outcome = error
                except Exception as error:
                    self._node.failed(error)
                    outcome = OutcomeUnknown(request.far.path, f"{type(error).__name__} here")
                else:
                    if self._carried.pop(request, None) is not None:
                        request.far.unwell = False
                        request.answer(value)
        finally:
            self._fail(request, outcome)

    def _fail(self, request: PendingRequest, error: Exception) -> None:
        if self._carried.pop(request, None) is not None:
            request.far.unwell = _unwell(error)
            request.fail(error)

    def withdraw(self, request: PendingRequest) -> None:
        """Nobody waits for this any more: its connection is closed, or its run ended, without waiting."""
        scope = self._carried.pop(request, None)
        if scope is not None:
            self.rt.timers.woke = True
            scope.cancel("nobody waits for the answer")
        elif isinstance(request, PendingTell):
            self._tells.line.pop(request, None)

    @property
    def open_requests(self) -> int:
        """How many requests wait for an answer, or stand in line."""
        return len(self._carried) + len(self._tells.line)

    def is_waiting(self, request: PendingRequest) -> bool:
        """Whether a request stands in line."""
        return request in self._tells.line

    def unsent(self) -> Iterator[tuple[Literal["credit", "room"], PendingRequest]]:
        """Return what stands in line; see `Outbox`."""
        for request in self._tells.line:
            yield "room", request

    # ---- abandoned runs

    def _end_run(self, invocation: HttpInvocation, url: str) -> None:
        self._start(self._say_goodbye, invocation, url)

    @enable_ki_protection
    async def _say_goodbye(self, invocation: HttpInvocation, url: str) -> None:
        with trio.move_on_after(GOODBYE):
            try:
                await invocation.end(url)
            except AgentError:
                return  # the run is gone, or its server is not reached: nothing is left to end
            except Exception as error:
                self._node.failed(error)

    # ---- one way

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; False where there is no room. Raises as `post` does."""
        far = sent.far
        self._check_there(far)
        outbound = OutboundRequest("invoke", name, payload, None, trace)
        return self._tells.put(sent, HttpInvocation(self._server, far, outbound, one_way=True))

    def holds_up(self, far: RemoteThing) -> bool:
        """Whether one-way messages to a thing wait for room already."""
        return bool(self._tells.line)

    @enable_ki_protection
    async def _tell_all(self) -> None:
        await self._tells.run()

    # ---- listening

    def listen(self, listening: SharedListening) -> None:
        """Listen to something, in a task. Raises NotAllowed."""
        if listening not in self._subscriptions:
            self._subscriptions[listening] = self._subscription(listening)
        scope = self._listens[listening] = trio.CancelScope()
        self._start(self._hear, listening, self._subscriptions[listening], scope)

    def _subscription(self, listening: SharedListening) -> HttpSubscription:
        what = target_of_listening(listening)
        try:
            way = self.ways.needed(what.verb, what.name, listening.far.path)
            return HttpSubscription(self._server, listening, way, way.url({}), self.new_backoff())
        except AgentError:
            listening.far.listenings.pop((listening.kind, listening.name), None)
            listening.taps.clear()
            raise

    @enable_ki_protection
    async def _hear(
        self, listening: SharedListening, subscription: HttpSubscription, scope: trio.CancelScope
    ) -> None:
        with scope:
            try:
                await subscription.run()
            except Exception as error:
                self._node.failed(error)
                listening.on_refused(OutcomeUnknown(listening.far.path, f"{type(error).__name__} here"))

    def unlisten(self, listening: SharedListening) -> None:
        """Nobody here listens any more."""
        far, key = listening.far, (listening.kind, listening.name)
        if far.listenings.get(key) is listening:
            del far.listenings[key]
        self._subscriptions.pop(listening, None)
        scope = self._listens.pop(listening, None)
        if scope is not None:
            self.rt.timers.woke = True
            scope.cancel("nobody listens any more")

    # ---- being there

    def unavailable(self, far: RemoteThing) -> AgentUnavailable:
        """Make the error for a request that is not sent."""
        return AgentUnavailable(far.path, "it was released" if self.released else ENDED)

    async def first(self) -> None:
        """See that something can be connected to there. Raises ConnectFailed."""
        await checkpoint_if_cancelled()
        if self.ended:
            raise ConnectFailed(self.place, ENDED)
        self.tried = True
        try:
            await self._pool.warm(self.url)
        except ConnectFailed as error:
            self.failure = error
            raise
        self.failure = None

    async def connected(self, far: RemoteThing) -> None:
        """Wait until it can be connected to, however long that takes. Raises AgentUnavailable at the end."""
        backoff = self.new_backoff()
        while True:
            if self.ended:
                raise self.unavailable(far)
            try:
                await self.first()
            except ConnectFailed:
                await trio.sleep(backoff.next())
            else:
                return


def _unwell(error: Exception) -> bool:
    """Return whether an answer is one of an agent that does not run now, or is not reached."""
    gone = isinstance(error, NotFound) and error.kind == "agent"
    return gone or isinstance(error, AgentUnavailable | AgentDied)
