"""A thing on an HTTP server, as a peer: each request is a task, and connections belong to the pool.

There is no connection to keep: `WebPeer` always counts as connected, and the pool opens and closes sockets as
requests need them. So each request and each listening has a task here, where the peer over LMOS has a table.

If the server answers with a URL for the run (`CarriedRequest.url`), the run goes on after its request, and is
queried and cancelled by that URL. A query that comes before the URL waits for it. Without a URL a run is
cancelled by closing its connection, and cannot be queried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

import attrs
import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import park_among, wake_all
from lmos_actors.errors import (
    AgentError,
    AgentUnavailable,
    ConnectFailed,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
)
from lmos_actors.protocol import lmos
from lmos_actors.transport import endpoint_of

from ..lmos._near_errors import means_unwell
from ..lmos._peer import PeerEnvironment
from ..lmos._peer_backoff import Backoff
from ..lmos._peer_requests import PendingTell, RemoteThing
from ._bodies import essence
from ._invocations import GOODBYE, HttpInvocation, InvocationContext
from ._listening import HttpSubscription, target_of_listening
from ._pool import origin_of
from ._request_body import CONTENT_TYPES, RequestBody
from ._tells import OutgoingTells

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lmos_actors._core import SecretBytes
    from lmos_actors.actors import ItemTarget, TraceMembers, UnsentKind, UnsentMessage

    from ..lmos._peer import Headers
    from ..lmos._peer_listening import SharedListening, Variables
    from ..lmos._peer_requests import PendingRequest, RemotePeer, SentTell
    from ._forms import HttpOperations
    from ._pool import WebPool

ENDED: Final = "the node has ended"

QUERIES: Final = 16
"""The largest number of open queries of one call."""

AHEAD: Final = 16
"""Items of a stream that are read ahead of its consumer."""


class PeerRegistry(PeerEnvironment, Protocol):
    """The peers of a node, as far as links over HTTP and their peers need them."""

    def web_pool(self) -> WebPool:
        """Return the HTTP connections of the node."""
        ...

    def kept(self, place: str, headers: Headers, make: Callable[[], RemotePeer]) -> RemotePeer:
        """Return the peer with this address and these headers, made and started if there is none."""
        ...

    def key_for(self, url: str) -> SecretBytes | None:
        """Return the API key of the node for a URL; None if there is none."""
        ...

    def hold(self, peer: RemotePeer) -> None:
        """Count one more user of a peer."""
        ...


def _no_tasks() -> list[trio.lowlevel.Task]:
    return []


@attrs.define(eq=False)
class CarriedRequest:
    """A request that is being carried out: the scope of its task and, for a run, its URL.

    Its invocation reports to it (`InvocationObserver`).
    """

    request: PendingRequest
    invocation: HttpInvocation
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    url: str | None = None
    """The URL of the run, once it is known."""
    queries: int = 0
    ahead: int = 0
    """Items that the consumer has not taken yet."""
    waiting: list[trio.lowlevel.Task] = attrs.field(factory=_no_tasks)
    """Tasks that wait for the URL, or for the end."""
    reading: list[trio.lowlevel.Task] = attrs.field(factory=_no_tasks)
    """The task that waits before it reads another item."""

    @property
    def expects_url(self) -> bool:
        """Whether the server is expected to answer with a URL at which the run goes on."""
        return self.invocation.server.ways.can_query(self.request.name)

    def on_status(self, status: str, progress: Any, waits: dict[str, Any] | None) -> None:
        """Note a new status or progress of the run, or the question to a person that the run waits for."""
        self.request.on_status(status, progress, waits)

    def began(self, url: str) -> None:
        """Note the URL at which the run goes on."""
        self.url = url
        self._wake(self.waiting)

    async def took(self, output: Any) -> None:
        """Keep an item of the output for the consumer; wait while too many have not been taken."""
        self.ahead += 1
        self.request.item(output)
        await checkpoint()
        while self.ahead >= AHEAD and not self.request.ended:
            await park_among(self.reading)

    def taken(self) -> None:
        """Note that the consumer has taken an item."""
        self.ahead -= 1
        self._wake(self.reading)

    def ended(self) -> None:
        """Wake the tasks that wait for the end."""
        self._wake(self.waiting)
        self._wake(self.reading)

    def _wake(self, tasks: list[trio.lowlevel.Task]) -> None:
        wake_all(self.request.far.rt.timers, tasks)

    async def open_url(self) -> str | None:
        """Wait until the URL of the run is known, and return it; None once the run has ended."""
        while self.url is None and not self.request.ended:
            await park_among(self.waiting)
        return None if self.request.ended else self.url

    async def standing(self) -> lmos.RunStatus | None:
        """Query the status of the run at its URL; None once it has ended. Raises NotAllowed without a URL."""
        request = self.request
        if self.url is None and not self.expects_url:
            raise NotAllowed(f"{request.far.path!r} has no form to query runs of {request.name!r} by")
        url = await self.open_url()
        if url is None:
            return None
        try:
            standing, _ = await self.invocation.standing(url)
        except NotFound:  # it may have ended, and been forgotten
            if request.ended:
                return None
            raise
        return lmos.RunStatus(standing.status, cancelled=standing.status == "cancelled")

    async def end(self) -> None:
        """Cancel the run on the server, if it has a URL. Raises the exception for its answer."""
        url = await self.open_url() if self.expects_url else self.url
        if url is None:
            return
        try:
            await self.invocation.end(url)
        except NotFound:  # it has ended: its final answer is on its way
            while not self.request.ended:
                await park_among(self.waiting)


class WebPeer:
    """One thing, reached over HTTP; `url` is the address of its first form. See `RemotePeer`.

    `headers` go with every request to the server of `meant` and to no other.
    """

    way = "http"
    """The binding's name in metrics and traces."""

    is_connected = True
    """Whether a request can be sent now: always, as each opens a connection."""

    takes_keys = True
    """Whether requests with keys can be sent: by the field `Idempotency-Key`."""

    def __init__(
        self,
        node: PeerRegistry,
        ways: HttpOperations,
        url: str,
        headers: Headers,
        meant: str,
    ) -> None:
        endpoint = endpoint_of(url)
        self.rt = node.rt
        self.budget = node.budget
        self.url = url
        self.headers = headers
        self.place = url.partition("?")[0]
        self.origin = (endpoint.secure, endpoint.authority)
        self.failure: ConnectFailed | None = None
        self.ended = False
        self.tried = False
        self.named = False
        """Whether code of this node has named the server, not only a directory."""
        self.things: WeakValueDictionary[tuple[str, Variables], RemoteThing] = WeakValueDictionary()
        self._node = node
        self._released = False
        self._scope = trio.CancelScope()
        self._random = node.rt.entropy.stream(f"peer {endpoint.url.partition('?')[0]}")
        self._owner = origin_of(meant)
        self._pool = node.web_pool()
        self.describe(ways)
        self._carried: dict[PendingRequest, CarriedRequest] = {}
        self._subscriptions: dict[SharedListening, HttpSubscription] = {}
        self._listens: dict[SharedListening, trio.CancelScope] = {}
        self._tells = OutgoingTells(
            lambda request: HttpInvocation(self._server, request),
            lambda: self._start(self._tell_all),
            lambda error: self._node.failed(error),
        )
        self._nursery: trio.Nursery | None = None
        self._early: list[tuple[Callable[..., Awaitable[object]], tuple[Any, ...]]] = []

    @property
    def heeds(self) -> bool:
        """Whether deadlines stand still while an agent at this server reports that it asks a person."""
        return self.named or bool(self.headers) or self._node.heeds(self.url)

    def thing(self, thing_id: str, variables: Variables = ()) -> RemoteThing:
        """Return the thing with an id; the same id and URL variables give the same object."""
        found = self.things.get((thing_id, variables))
        if found is None:
            found = RemoteThing(self, thing_id, variables=variables)
            self.things[thing_id, variables] = found
        return found

    def new_backoff(self) -> Backoff:
        """Return a new backoff that draws from this peer's random stream."""
        return Backoff(self._random, self._node.reconnect_seconds)

    @property
    def ways(self) -> HttpOperations:
        """The operations over HTTP that the description offers."""
        return self._server.ways

    def describe(self, ways: HttpOperations) -> None:
        """Replace the description by a newer one of the same thing."""
        self._server = InvocationContext(
            self._pool, ways, self._own, self._end_run, self._is_ending, self._node.key_for
        )

    def _own(self, url: str) -> Headers:
        return self.headers if self.headers and origin_of(url) == self._owner else ()

    # ---- its tasks

    async def run(self) -> None:
        """Carry out requests until cancelled or stopped. Runs once."""
        try:
            with self._scope:
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
        self._tells.end(lambda unsent: AgentUnavailable(unsent.far.path, ENDED))
        for far in self.things.values():
            for listening in tuple(far.listenings.values()):
                listening.close()

    def stop(self) -> None:
        """Stop this peer, because its last ref has been released."""
        self._released = True
        self._scope.cancel("no ref uses this peer")

    def release(self) -> None:
        """Count one user fewer; when none is left, stop the peer."""
        self._node.release_peer(self)

    # ---- requests

    def post(self, request: PendingRequest) -> None:
        """Start a task that sends a request.

        Raises AgentUnavailable at the end of the node, InvalidInput, NotAllowed.
        """
        self._check_there(request.far)
        invocation = HttpInvocation(self._server, request)  # it may raise: so before it stands in line
        if request.sent is not None:
            self._tells.line.post(request)
            return
        self._carried[request] = CarriedRequest(request, invocation)
        self._start(self._carry, request)

    def _is_ending(self) -> bool:
        return self.ended or self._released or self.rt.ended

    def _check_there(self, far: RemoteThing) -> None:
        if self._is_ending():
            raise self.unavailable(far.path)

    @enable_ki_protection
    async def _carry(self, request: PendingRequest) -> None:
        carried = self._carried.get(request)
        if carried is None:  # withdrawn by now
            return
        outcome: Exception = OutcomeUnknown(request.far.path, ENDED)
        try:
            with carried.scope:
                try:
                    value = await carried.invocation.run(carried)
                except AgentError as error:
                    outcome = error
                except Exception as error:
                    self._node.failed(error)
                    outcome = OutcomeUnknown(request.far.path, f"{type(error).__name__} here")
                else:
                    if self._carried.pop(request, None) is not None:
                        request.far.unwell = False
                        request.answer(value)
                        carried.ended()
        finally:
            self._fail(request, outcome)

    def _fail(self, request: PendingRequest, error: Exception) -> None:
        carried = self._carried.pop(request, None)
        if carried is not None:
            request.far.unwell = means_unwell(error)
            request.fail(error)
            carried.ended()

    def withdraw(self, request: PendingRequest) -> None:
        """Close the connection of a request whose caller is gone, or end its run, without waiting."""
        carried = self._carried.pop(request, None)
        if carried is not None:
            self.rt.timers.woke = True
            carried.scope.cancel("no caller waits for the answer")
            carried.ended()
        elif request.sent is not None:
            self._tells.line.leave(request)

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or stand in line."""
        return len(self._carried) + len(self._tells.line)

    @property
    def tell_credit(self) -> tuple[lmos.Credit, lmos.Credit] | None:
        """Return None: over HTTP each one-way message is a separate request, without credit."""
        return None

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the messages in line; see `Outbox` of the actors."""
        return self._tells.line.unsent()

    # ---- runs

    def follow(
        self, request: PendingRequest, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None]
    ) -> None:
        """Report that nothing is known, because HTTP cannot ask what a request waits for."""
        then({})

    async def query(self, request: PendingRequest) -> lmos.RunStatus | None:
        """Query the status of a run by its URL; see `RemotePeer`. Raises NotAllowed if it has none."""
        carried = self._carried.get(request)
        if carried is None:
            return None
        if carried.queries >= QUERIES:
            raise MailboxFull(request.far.path, QUERIES)
        carried.queries += 1
        try:
            return await carried.standing()
        finally:
            carried.queries -= 1

    async def cancel(self, request: PendingRequest, reason: str | None) -> lmos.RunStatus | None:
        """Cancel a request; see `RemotePeer`. If its run has no URL, close its connection."""
        carried = self._carried.get(request)
        if carried is not None:
            await carried.end()
        request.far.cancel(request, reason)
        return None

    def taken(self, request: PendingRequest) -> None:
        """Note that the consumer has taken an item of a run, so that another may be read."""
        carried = self._carried.get(request)
        if carried is not None:
            carried.taken()

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
        """Send a one-way message; return False if too many wait already. Raises the same errors as `post`."""
        far = sent.far
        self._check_there(far)
        request = PendingTell(far, "invoke", name, payload, None, trace, sent=sent)
        return not self._tells.line and self._tells.put(request)

    def holds_up(self, far: RemoteThing) -> bool:
        """Return whether one-way messages to a thing already wait to be sent."""
        return self._tells.line.holds_up(far.thing_id)

    @enable_ki_protection
    async def _tell_all(self) -> None:
        await self._tells.run()

    # ---- listening

    def target(self, request: PendingRequest, name: str) -> ItemTarget:
        """Return the target for a source's items: a request body. Raises NotAllowed if no form takes one."""
        way = self.ways.way("invoke", request.name)
        if way is None or essence(way.form.content_type) not in CONTENT_TYPES:
            raise NotAllowed(
                f"{request.name!r} of {request.path!r} has no form over HTTP that carries the input stream "
                f"{name!r}: use it over LMOS"
            )
        return RequestBody(self.rt.timers, name, request.on_room)

    def listen(self, listening: SharedListening) -> None:
        """Start a task that listens. Raises NotAllowed."""
        if listening not in self._subscriptions:
            self._subscriptions[listening] = self._subscription(listening)
        scope = self._listens[listening] = trio.CancelScope()
        self._start(self._hear, listening, self._subscriptions[listening], scope)

    def _subscription(self, listening: SharedListening) -> HttpSubscription:
        what = target_of_listening(listening)
        try:
            way = self.ways.needed(what.verb, what.name, listening.far.path)
            way.url(dict(listening.far.variables))  # what cannot be asked is refused here
            return HttpSubscription(self._server, listening, way, self.new_backoff())
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
        """Stop listening to something, as its last listener has left."""
        self._subscriptions.pop(listening, None)
        scope = self._listens.pop(listening, None)
        if scope is not None:
            self.rt.timers.woke = True
            scope.cancel("there is no listener any more")

    # ---- availability

    def unavailable(self, path: str) -> AgentUnavailable:
        """Return the error for a request that was not sent."""
        return AgentUnavailable(path, "it was released" if self._released else ENDED)

    async def first(self) -> None:
        """Check that a connection can be made. Raises ConnectFailed."""
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

    async def connected(self, path: str) -> None:
        """Wait until the server can be reached, however long. Raises AgentUnavailable at the node's end."""
        backoff = self.new_backoff()
        while True:
            if self.ended:
                raise self.unavailable(path)
            try:
                await self.first()
            except ConnectFailed:
                await trio.sleep(backoff.next())
            else:
                return
