"""An MCP server at a URL: streamable HTTP, by the transport of the SDK over our own client.

That client bounds the bytes of an answer that is not an event stream, and refuses compressed answers, whose
size would have no bound; the SDK does neither. It refuses ambiguous messages. It adds the token to a request
only when the request leaves, so that no object of the SDK has the token. It also detects that the server or
the session is gone. The SDK would raise such an error from its task group, past waiting requests. Here the
error becomes an answer, which tells whether the request was sent, and the connection is marked as lost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator  # noqa: TC003 -- read by readers only
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR

from lmos_actors._core import read_json, trusted_certificates
from lmos_actors.bindings.http_client import EventReader
from lmos_actors.errors import LmosActorsError

from ._connection import CountedStream
from ._failures import BROKEN, NOT_SENT, UNREADABLE, NotSignedIn

if TYPE_CHECKING:
    from typing import Self

    from ._connection import Connection
    from ._sign_in import SignIn

CONNECT_SECONDS: Final = 5.0
CONNECTIONS: Final = 100

_SESSION: Final = "mcp-session-id"

_NO_TOKEN: Final = (
    OAuthFlowError,
    NotSignedIn,
    LmosActorsError,
    ValueError,
    httpx2.HTTPError,
    httpx2.StreamError,
)
"""The errors of a sign-in: for answers of servers, for what people do, and for a file of tokens."""


@asynccontextmanager
async def open_http(
    url: str, transport: HttpTransport, most: int, connection: Connection, sign_in: SignIn | None = None
) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect to a server; yield the read stream and the write stream for the SDK.

    A message has at most `most` bytes. `sign_in` obtains tokens.
    """
    async with (
        _Client(
            connection,
            sign_in,
            transport=transport,
            headers={"accept-encoding": "identity"},
            # who asks bounds the time of an answer, and the stream of notifications has no end
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=most) as (incoming, outgoing),
    ):
        yield CountedStream(incoming, connection), outgoing


class _Client(httpx2.AsyncClient):
    """An HTTP client that marks the connection as lost after refusals that no sign-in can resolve."""

    def __init__(self, connection: Connection, sign_in: SignIn | None, **options: Any) -> None:
        super().__init__(auth=sign_in, **options)
        self._connection = connection
        self._sign_in = sign_in

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. If the sign-in fails, return an answer that makes the request fail."""
        if self._connection.is_final:  # else a person would be asked to sign in for the next request
            return _failed(request, f"{NOT_SENT}{self._connection.why}")
        if self._sign_in is not None and request.method == "DELETE":  # a session that ends needs no new token
            self._sign_in.sign(request)
            options["auth"] = None
        try:
            response = await super().send(request, **options)
        except _NO_TOKEN as error:
            if self._sign_in is None:
                raise
            why = self._connection.shown(str(error).partition("\n")[0])
            self._connection.lose(f"lets nobody in: {why}", final=isinstance(error, NotSignedIn))
            return _failed(request, f"{NOT_SENT}{why}")
        if response.status_code >= 400 and request.method != "DELETE":
            self._connection.status = response.status_code
            if why := await self._loss_in(response, has_session=_SESSION in request.headers):
                await response.aclose()
                self._connection.lose(why, final=self._sign_in is not None and response.status_code == 401)
                return _failed(request, f"{NOT_SENT}{why}")
        return response

    async def _loss_in(self, response: httpx2.Response, *, has_session: bool) -> str:
        """Return why a refusal means that the session is over; empty if it does not."""
        if response.status_code == 401 and self._sign_in is not None:
            return "does not accept its own token (status 401): see oauth="
        if response.status_code == 401:  # the token is read again for the next one
            return "does not accept the credentials (status 401): see bearer= and oauth="
        if not has_session or response.status_code not in (400, 404):
            return ""
        if response.status_code == 404:
            return "has ended the session"
        try:
            text = (await response.aread()).decode("utf-8", "replace")
        except (httpx2.StreamError, httpx2.TransportError):
            return ""
        return "has ended the session" if "session" in text.lower() else ""


class HttpTransport(httpx2.AsyncBaseTransport):
    """A transport that adds the token `bearer` to requests, and marks the connection as lost on errors.

    It is made in a thread, as the first transport reads certificates, which takes some 20 ms.
    """

    def __init__(self, bearer: str | None, most: int, connection: Connection) -> None:
        self._inner = httpx2.AsyncHTTPTransport(
            verify=trusted_certificates(),
            limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
        )
        self._bearer = bearer
        self._most = most
        self._connection = connection

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        if self._bearer is not None:
            request.headers["authorization"] = f"Bearer {self._bearer}"
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            self._connection.lose(f"cannot be reached: {self._connection.shown(str(error))}")
            never_left = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            return _failed(request, f"{NOT_SENT}{error}" if never_left else BROKEN)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            self._connection.lose("compresses its answers, unasked", at_fault=True)
            return _failed(request, BROKEN)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            kind = response.headers.get("content-type", "").lower()
            response.stream = _Body(response.stream, kind, self._most)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def _failed(request: httpx2.Request, text: str) -> httpx2.Response:
    """Return an answer that makes a request fail; the SDK adds the request's id to the error."""
    said = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": text}}
    return httpx2.Response(503, json=said, request=request)


def _check(text: str | bytearray, refusal: type[Exception]) -> None:
    """Raise `refusal` for a message that is not JSON, or is ambiguous."""
    try:
        read_json(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{UNREADABLE}{error}") from None


class _Broken(httpx2.StreamError):
    """Raised if a body cannot be used. The SDK turns this kind of error into a failed request."""


class _Body(httpx2.AsyncByteStream):
    """The body of an answer. Its messages are checked, and only an event stream may exceed `most` bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, kind: str, most: int) -> None:
        self._inner = inner
        self._pieces: AsyncIterator[bytes] | None = None
        # the SDK bounds events: it is to find one that is too long first
        self._events = EventReader(longest=2 * most) if kind.startswith("text/event-stream") else None
        self._json = bytearray() if kind.startswith("application/json") else None
        self._left = most

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            self._pieces = aiter(self._inner)
        try:
            piece = await anext(self._pieces)
        except httpx2.TransportError as error:
            raise _Broken(str(error)) from None
        except StopAsyncIteration:
            if self._json:
                _check(self._json, _Broken)
            raise
        if self._events is not None:
            for event in self._events.feed(piece):
                if event.data:
                    _check(event.data, httpx2.SSEError)
            return piece
        self._left -= len(piece)
        if self._left < 0:
            raise _Broken("the answer has more bytes than are taken")
        if self._json is not None:
            self._json += piece
        return piece

    async def aclose(self) -> None:
        """Close the connection, unless the body has been read to its end."""
        await self._inner.aclose()
