"""HTTP connections of a node: pooled by server, with redirects, timeouts, and credentials.

Credentials go to the server they are meant for and to no other: a redirect to another server is followed
without them, and only for reads. Each server has a bounded number of requests in flight; answers that are
listened to are counted apart, so that long polls and streams cannot starve requests. When an idle
connection turns out to be closed by its server, the request goes out on another one, but only if sending
the request twice does no harm.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import attrs
import trio

from lmos_actors.errors import ConnectFailed
from lmos_actors.transport import is_here

from ._redirects import REDIRECTS, redirected
from ._stream import BadAnswer, HttpStream, Unanswered, WebAnswer, WebRequest, place_at

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from lmos_actors.transport import Endpoint, Network

    from ..http._options import HttpOptions
    from ._request_body import RequestBody
    from ._stream import Head, Headers

    Own: TypeAlias = Callable[[str], Headers]

T = TypeVar("T")

PLACES: Final = 64
"""Limit on the servers that are remembered while no request to them is open."""

_SAFE: Final = ("GET", "HEAD")


class TooManyListeners(Exception):
    """One server already has `most` answers that are listened to: no more may be open."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.most = most


class _Place:
    """One server: its idle connections, the longest idle first, and the limits on those in use."""

    def __init__(self, options: HttpOptions) -> None:
        self.seats = trio.Semaphore(options.requests, max_value=options.requests)
        self.idle: list[HttpStream] = []
        self._most_listening = options.listening
        self._listening = 0

    @property
    def is_used(self) -> bool:
        """Whether a request to the server is open, or a connection to it is kept."""
        return bool(self.idle or self._listening or self.seats.value != self.seats.max_value)

    @contextmanager
    def listened(self) -> Generator[None]:
        """Count one more answer that is listened to. Raises TooManyListeners."""
        if self._listening >= self._most_listening:
            raise TooManyListeners(self._most_listening)
        self._listening += 1
        try:
            yield
        finally:
            self._listening -= 1


class WebPool:
    """The connections over HTTP of one node.

    The function `start_soon` starts the task that closes idle connections, in a stage that ends after the
    agents. `headers_for` returns the credentials for a URL, together with the given headers; it is called for
    each request.
    """

    def __init__(
        self,
        network: Callable[[], Network],
        start_soon: Callable[..., object],
        *,
        tls: ssl.SSLContext | None,
        headers_for: Callable[[str, Headers], Headers],
        options: HttpOptions,
    ) -> None:
        self._options = options
        self._network = network
        self._tls = tls
        self.headers_for = headers_for
        self._places: dict[tuple[bool, str], _Place] = {}
        self._kept = True
        self._stirred = trio.Event()
        start_soon(self._close_idle_regularly, name="connections over HTTP")

    # ---- one request

    async def exchange(self, request: WebRequest, own: Own) -> WebAnswer:
        """Send a request, and return its answer with the whole body; `own` returns more headers for a URL.

        Raises ConnectFailed if nothing was sent; otherwise Unanswered, BadAnswer or Unsendable. If cancelled,
        the connection is closed.
        """
        route = _Route(self, request, own)
        while True:
            place, headers = self._place(route.endpoint), route.headers()
            async with place.seats:
                answer = await self._once(place, route, headers, None)
            if not route.goes_on(answer.head):
                return answer

    async def poll(self, request: WebRequest, own: Own, sent: Callable[[], None] | None) -> WebAnswer:
        """Send a request as `exchange` does, but outside the request limit, as the answer may take long.

        `sent` is called when the request is written. Raises TooManyListeners as well.
        """
        route = _Route(self, request, own)
        while True:
            place, headers = self._place(route.endpoint), route.headers()
            with place.listened():
                answer = await self._once(place, route, headers, sent)
            if not route.goes_on(answer.head):
                return answer

    async def _once(
        self, place: _Place, route: _Route, headers: Headers, sent: Callable[[], None] | None
    ) -> WebAnswer:
        lost: Unanswered | None = None
        while True:
            kept = await self._idle(place)
            try:
                stream = kept or await self._connected(route.endpoint)
            except ConnectFailed:
                if lost is not None:
                    raise lost from None  # what was sent before may have been carried out
                raise
            try:
                answer = await self.whole(stream, await stream.ask(route.request, headers, sent))
            except Unanswered as error:
                await stream.aclose()
                if kept is not None and route.request.again and not stream.begun:
                    lost = error
                    continue  # its server has closed it as idle, while the request was on its way
                raise
            except BaseException:
                await stream.aclose()
                raise
            await self._keep(place, stream)
            return answer

    async def whole(self, stream: HttpStream, head: Head) -> WebAnswer:
        """Return an answer with all of its body. Raises Unanswered, BadAnswer."""
        check_encoding(head)
        seconds = self._options.answer_seconds
        with trio.move_on_after(seconds):
            return WebAnswer(head, await stream.body(self._options.answer_bytes))
        raise BadAnswer(f"its body was not there after {seconds:g} s")

    # ---- an answer that is read as it comes

    @asynccontextmanager
    async def listening(self, request: WebRequest, own: Own) -> AsyncGenerator[tuple[Head, HttpStream]]:
        """Send a request; return the head of the answer, and the stream from which its body is read.

        Raises the same errors as `exchange`, and TooManyListeners. Redirects are followed as by `exchange`.
        """
        route = _Route(self, request, own)
        while True:
            place, headers = self._place(route.endpoint), route.headers()
            with place.listened():
                stream = await self._connected(route.endpoint)
                try:
                    head = await stream.ask(route.request, headers, None)
                    if not route.goes_on(head):
                        check_encoding(head)
                        yield head, stream
                        return
                finally:
                    await stream.aclose()

    async def converse(
        self,
        request: WebRequest,
        own: Own,
        body: RequestBody,
        take: Callable[[Head, HttpStream], Awaitable[T]],
    ) -> T:
        """Send a request whose body is a stream; meanwhile pass the answer to `take`, and return its result.

        Raises the errors of `listening` and of `take`. No redirect is followed: the body cannot be sent
        again.
        """
        route = _Route(self, request, own)
        made: list[T] = []
        failure: Exception | None = None
        with self._place(route.endpoint).listened():
            stream = await self._connected(route.endpoint)
            try:
                await stream.begin(request, route.headers())
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(stream.send_body, body)
                    try:
                        head = await stream.answered(request, body)
                        if redirected(head, safe=False) is not None:
                            raise BadAnswer("it redirects a request whose body is a stream")
                        check_encoding(head)
                        made.append(await take(head, stream))
                    except Exception as error:  # raised below, in no group of this nursery
                        failure = error
                    nursery.cancel_scope.cancel()
            finally:
                await stream.aclose()
        if failure is not None:
            raise failure
        return made[0]

    # ---- connections

    def _place(self, endpoint: Endpoint) -> _Place:
        key = (endpoint.secure, endpoint.authority)
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= PLACES:
                self._places = {each: place for each, place in self._places.items() if place.is_used}
            found = self._places[key] = _Place(self._options)
        return found

    async def _idle(self, place: _Place) -> HttpStream | None:
        """Return an idle connection that is still open; None if there is none."""
        now = trio.current_time()
        while place.idle:
            stream = place.idle.pop()
            if stream.idle_since + self._options.idle_seconds > now and not stream.is_stale(now):
                return stream
            await stream.aclose()
        return None

    async def _connected(self, endpoint: Endpoint) -> HttpStream:
        place = f"{'https' if endpoint.secure else 'http'}://{endpoint.authority}"
        seconds = self._options.connect_seconds
        with trio.move_on_after(seconds):
            try:
                return HttpStream(await self._network().connect(endpoint, self._tls))
            except ConnectFailed as error:
                raise error.at(place) from error
        raise ConnectFailed(place, f"no connection within {seconds:g} s")

    async def warm(self, url: str) -> None:
        """Connect for the next request to a URL, unless a connection is idle. Raises ConnectFailed."""
        endpoint = place_at(url)
        place = self._place(endpoint)
        async with place.seats:
            await self._keep(place, await self._idle(place) or await self._connected(endpoint))

    async def _keep(self, place: _Place, stream: HttpStream) -> None:
        is_full = len(place.idle) >= self._options.idle
        if (stream.used and not stream.is_reusable) or is_full or not self._kept:
            await stream.aclose()
            return
        stream.idle_since = trio.current_time()
        place.idle.append(stream)
        self._stirred.set()

    async def _close_idle_regularly(self) -> None:
        """Close connections that have been idle for too long, and at the end all idle ones."""
        try:
            while True:
                await self._stirred.wait()
                await trio.sleep_until(self._next_due())
                await self._close_idle(trio.current_time())
                if not any(place.idle for place in self._places.values()):
                    self._stirred = trio.Event()
        finally:
            self._kept = False
            with trio.CancelScope(shield=True):  # each is closed at once
                await self._close_idle(inf)

    def _next_due(self) -> float:
        since = [place.idle[0].idle_since for place in self._places.values() if place.idle]
        return min(since, default=trio.current_time()) + self._options.idle_seconds

    async def _close_idle(self, now: float) -> None:
        for place in tuple(self._places.values()):
            while place.idle and place.idle[0].idle_since + self._options.idle_seconds <= now:
                await place.idle.pop(0).aclose()


class _Route:
    """The current target of a request, as redirects are followed. Only the first server gets credentials."""

    def __init__(self, pool: WebPool, request: WebRequest, own: Own) -> None:
        self.request = request
        self.endpoint = place_at(request.url)
        self._pool = pool
        self._own = own
        self._left = REDIRECTS
        self._at_home = True

    def headers(self) -> Headers:
        """Return the headers for the current server: credentials; none after a redirect to another server."""
        url = self.request.url
        if not self._at_home:
            return ()
        return self._pool.headers_for(url, (*self._own(url), *self.request.private))

    def goes_on(self, head: Head) -> bool:
        """Return whether an answer is a redirect; if so, make its target the current one.

        Raises BadAnswer for a redirect that is not followed.
        """
        request, safe = self.request, self.request.method in _SAFE
        led = redirected(head, safe=safe)
        if led is None:
            return False
        if not self._left:
            raise BadAnswer(f"more than {REDIRECTS} redirects")
        self._left -= 1
        url, endpoint = led
        same = (endpoint.secure, endpoint.authority) == (self.endpoint.secure, self.endpoint.authority)
        if not same and not safe:
            raise BadAnswer("it redirects to another server what is more than a question")
        if not same and not is_here(self.endpoint.host):
            endpoint = attrs.evolve(endpoint, elsewhere=True)
        self._at_home = self._at_home and same
        self.request, self.endpoint = attrs.evolve(request, url=url), endpoint
        return True


def check_encoding(head: Head) -> None:
    """Raise BadAnswer for a compressed answer: a limit on its bytes would not limit its content."""
    if head.header(b"content-encoding").lower() not in ("", "identity"):
        raise BadAnswer("it is compressed, which was not asked for")


def origin_of(url: str) -> tuple[bool, str]:
    """Return the scheme and authority of a URL, which all URLs of one server share."""
    endpoint = place_at(url)
    return endpoint.secure, endpoint.authority
