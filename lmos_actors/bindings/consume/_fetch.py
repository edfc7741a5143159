"""Fetching descriptions over HTTP, by the network of the node: bounded in bytes, redirects and time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import h11
import httpx2
import trio

from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.protocol.td import MAX_BYTES
from lmos_actors.transport import (
    answered,
    cut_off,
    detail_of,
    endpoint_of,
    has_detail,
    is_here,
    leads_astray,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from lmos_actors.transport import Network

SECONDS: Final = 30.0
"""For all of it, redirects included."""

REDIRECTS: Final = 5

PATIENCE: Final = 1.0
"""Seconds for the reason of a refusal, whose status is known by then."""

KINDS: Final = ("application/td+json", "application/json", "application/ld+json")
ACCEPT: Final = "application/td+json, application/json;q=0.9"

_CHUNK: Final = 65536


class Unanswered(Exception):
    """The server has closed the connection without a word."""


_UNANSWERED: Final = (trio.BrokenResourceError, Unanswered)
_BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError)


class NetworkTransport(httpx2.AsyncBaseTransport):
    """HTTP/1.1 over the streams of a network: one connection for each request.

    `elsewhere`: the next one is to lead to another machine than this one.
    """

    def __init__(self, network: Network, tls: ssl.SSLContext | None) -> None:
        self._network = network
        self._tls = tls
        self.elsewhere = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request without a body, and return the response once its head has come."""
        endpoint = attrs.evolve(endpoint_of(str(request.url)), elsewhere=self.elsewhere)
        stream = await self._network.connect(endpoint, self._tls)
        body = _Body(stream)
        try:
            head = await body.ask(request)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        headers = list(head.headers.raw_items())
        return httpx2.Response(head.status_code, headers=headers, stream=body, request=request)


class _TooLong(Exception):
    """The body is longer than a description may be: raised from within its stream, so that every reader
    ends."""


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._left = MAX_BYTES
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, request: httpx2.Request) -> h11.Response:
        """Send the request and wait for the head of its response."""
        headers = [*request.headers.raw, (b"Connection", b"close")]
        asked = h11.Request(method=request.method, target=request.url.raw_path, headers=headers)
        await self._stream.send_all(
            (self._http.send(asked) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        )
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the connection ended before the response")

    async def _next(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            data = bytes(await self._stream.receive_some(_CHUNK))
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise Unanswered("the server closed the connection")
            self._http.receive_data(data)

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while True:
            event = await self._next()
            if not isinstance(event, h11.Data):
                return
            self._left -= len(event.data)
            if self._left < 0:
                raise _TooLong(f"what is there is longer than {MAX_BYTES} bytes")
            yield bytes(event.data)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


async def fetched(
    network: Network, url: str, tls: ssl.SSLContext | None, headers: Any, headers_for: Any, local: bool
) -> tuple[bytes, str, bool]:
    """As `fetch`; return also whether it was this machine, by whatever name, that has answered."""
    with trio.move_on_after(SECONDS):
        try:
            return await _fetched(NetworkTransport(network, tls), url, headers, headers_for, local)
        except ConnectFailed as error:
            if error.url == endpoint_of(url).url:  # the network knows sockets alone
                raise error.at(url) from error
            raise
        except h11.LocalProtocolError as error:
            why = str(error).partition(" b'")[0]  # what follows is the value of a header, which may be secret
            raise ConfigError(f"the request to {url} cannot be sent: {why}") from None
        except _UNANSWERED as error:
            raise cut_off(url, error, secure=url.lower().startswith("https")) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, _TooLong, *_BROKEN) as error:
            raise ConnectFailed(url, f"{error}" or type(error).__name__) from error
    raise ConnectFailed(url, f"no description within {SECONDS:g} s")


async def _fetched(
    transport: NetworkTransport, url: str, headers: Any, headers_for: Any, local: bool
) -> tuple[bytes, str, bool]:
    may_be_here = True  # what the caller has named, and what this machine leads to
    own = [(b"Accept", ACCEPT.encode()), (b"Accept-Encoding", b"identity")]
    async with httpx2.AsyncClient(transport=transport, timeout=None, trust_env=False) as client:
        request = client.build_request("GET", url, headers=own)
        for _ in range(REDIRECTS + 1):
            shown = headers_for(str(request.url), headers)
            for name, value in shown:
                request.headers[name.decode("ascii")] = value.decode("ascii")
            response, here = await _sent(client, transport, request, may_be_here=may_be_here)
            may_be_here = here or local
            try:
                if response.next_request is None:
                    return await _text(response, url), str(response.url), here
                after = response.next_request
                if _leads_elsewhere(request, after, url, may_be_here):
                    headers = ()  # they are for the server that the caller has named
                for name, _value in shown:  # whatever they are called: they are asked for anew
                    after.headers.pop(name.decode("ascii"), None)
                request = after
            finally:
                await response.aclose()
    raise ConnectFailed(url, f"more than {REDIRECTS} redirects")


async def _sent(
    client: httpx2.AsyncClient, transport: NetworkTransport, request: httpx2.Request, *, may_be_here: bool
) -> tuple[httpx2.Response, bool]:
    """Send a request; return the response, and whether it is one of this machine."""
    here = is_here(endpoint_of(str(request.url)).host)
    transport.elsewhere = not here
    try:
        return await client.send(request, stream=True), here
    except ConnectFailed as error:
        if not (error.leads_here and may_be_here):
            raise
    transport.elsewhere = False
    return await client.send(request, stream=True), True


def _leads_elsewhere(request: httpx2.Request, after: httpx2.Request, url: str, local: bool) -> bool:
    """Return whether a redirect is one to another server.

    None is followed out of TLS, nor, but where `local` allows it, from another host to the one that asks.
    """
    try:
        here, there = endpoint_of(str(request.url)), endpoint_of(str(after.url))
        astray = leads_astray(str(request.url), str(after.url)) and not local
    except ConfigError as error:
        raise ConnectFailed(url, f"it redirects to what is no address: {error}") from None
    if here.secure and not there.secure:
        raise ConnectFailed(url, f"it redirects to {after.url}, which is not secure")
    if astray:
        raise ConnectFailed(url, f"it redirects to {there.host!r}, which is another host there than here")
    return here.authority != there.authority


async def _text(response: httpx2.Response, url: str) -> bytes:
    if response.status_code != 200:
        status = response.status_code
        why = answered(status, response.reason_phrase, await _detail(response))
        raise ConnectFailed(url, why, status=status)
    if response.headers.get("content-encoding", "identity") != "identity":  # how long it is is not known then
        raise ConnectFailed(url, "what is there is compressed, which was not asked for")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise ConnectFailed(url, f"what is there is {kind or 'of no known type'}, and no description")
    return await response.aread()


async def _detail(response: httpx2.Response) -> str:
    kind, body = response.headers.get("content-type", ""), b""
    if has_detail(kind):
        with trio.move_on_after(PATIENCE), suppress(httpx2.HTTPError, _TooLong, *_BROKEN):
            body = await response.aread()
    return detail_of(kind, body)
