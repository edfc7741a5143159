"""Client of a directory: the Directory Service API of W3C WoT Discovery, over HTTP/1.1.

Answers are bounded in time, bytes and pages, and checked by the callers. No redirect is followed:
credentials and trust belong to the URL that was configured. A kept connection may be closed by the server at
any time, so a request on it is repeated once on a new one; all requests of this API are idempotent.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlencode

import attrs
import h11
import msgspec
import trio

from lmos_actors.errors import ConfigError, ConnectFailed, TransportError
from lmos_actors.transport import cut_off, endpoint_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Mapping

    from lmos_actors.transport import Endpoint, Network

SECONDS: Final = 10.0
"""Limit for one request, connecting included, in seconds."""

MAX_ANSWER: Final = 8 << 20
"""Limit of an answer, in bytes."""

PAGE_SIZE: Final = 100
"""Descriptions requested at a time."""

MAX_PAGES: Final = 20
"""Limit of pages that are read."""

MAX_REASON: Final = 300  # characters of a refusal

TD_JSON: Final = "application/td+json"
MERGE_PATCH: Final = "application/merge-patch+json"
ACCEPT: Final = "application/ld+json, application/json;q=0.9, application/problem+json;q=0.5"

_CHUNK: Final = 65536
_SCHEMES: Final = ("http://", "https://")
_BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)
_NO_SEARCH: Final = (400, 404, 405, 501)
_NEXT: Final = re.compile(rb';\s*rel\s*=\s*("([^"]* )?next( [^"]*)?"|next\s*(?=[,;]|$))', re.IGNORECASE)

Headers = tuple[tuple[bytes, bytes], ...]


class DirectoryRefused(TransportError):
    """Refusal by a directory; `status` is the HTTP status."""

    def __init__(self, url: str, status: int, why: str) -> None:
        self.url = url
        self.status = status
        self.why = why
        super().__init__(f"the directory at {url} answered {status}{f': {why}' if why else ''}")


class Directory(Protocol):
    """Directory of descriptions: registration and search.

    All methods raise ConnectFailed where it cannot be reached, DirectoryRefused where it refuses.
    """

    @property
    def url(self) -> str:
        """URL that identifies the directory."""
        ...

    async def put(self, thing_id: str, text: bytes, ttl: float) -> None:
        """Create or replace the entry of a description, for `ttl` seconds."""
        ...

    async def renew(self, thing_id: str) -> bool:
        """Restart an entry's time to live. Return False if there is no such entry."""
        ...

    async def remove(self, thing_id: str) -> None:
        """Remove an entry, if there is one."""
        ...

    async def find(self, query: str | None, most: int) -> list[Any]:
        """Return at most `most` descriptions that a JSONPath selects, as plain data; without one, of all."""
        ...

    async def aclose(self) -> None:
        """Release the connection, if one is kept."""
        ...


@attrs.frozen
class Answer:
    """Answer; `headers` by name in lower case, with repeated ones joined by commas."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


def place_of_directory(url: str) -> Endpoint:
    """Return the endpoint of a directory's URL. Raises ConfigError for any other text."""
    if "://" not in url:
        raise ConfigError("a directory needs an http or https URL, such as http://127.0.0.1:8080")
    endpoint = endpoint_of(url)
    if not url.startswith(_SCHEMES):
        raise ConfigError(f"a directory needs an http or https URL, not {url!r}")
    if "?" in endpoint.target or "#" in url:
        raise ConfigError(f"the URL of a directory ends with its path: {url!r}")
    return endpoint


class HttpDirectory:
    """Remote directory. `url` is that of its root, `http://127.0.0.1:8081`, without `/things`.

    `headers_for` returns the headers of each request to that URL, such as credentials. With `keep` the
    connection is kept for the next request, until `aclose`. Raises ConfigError for an invalid URL.
    """

    def __init__(
        self,
        network: Network,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        headers_for: Callable[[str], Headers] | None = None,
        keep: bool = False,
    ) -> None:
        self._endpoint = place_of_directory(url)
        self.url = url.rstrip("/").removesuffix("/things")
        self._prefix = self._endpoint.target.rstrip("/").removesuffix("/things")
        self._network = network
        self._tls = tls
        self._headers_for = headers_for
        self._keep = keep
        self._connection: _Connection | None = None

    # ---- requests

    async def put(self, thing_id: str, text: bytes, ttl: float) -> None:
        """See `Directory`."""
        entry: dict[str, Any] = {**msgspec.json.decode(text), "registration": {"ttl": ttl}}
        body = msgspec.json.encode(entry)
        self._checked(await self.ask("PUT", _entry(thing_id), body, TD_JSON), 200, 201, 204)

    async def renew(self, thing_id: str) -> bool:
        """See `Directory`."""
        answer = await self.ask("PATCH", _entry(thing_id), b"{}", MERGE_PATCH)
        return self._checked(answer, 200, 204, 404).status != 404

    async def remove(self, thing_id: str) -> None:
        """See `Directory`."""
        self._checked(await self.ask("DELETE", _entry(thing_id)), 200, 204, 404)

    async def find(self, query: str | None, most: int) -> list[Any]:
        """See `Directory`: if it does not support JSONPath, all descriptions are read page by page."""
        if query is not None:
            answer = await self.ask("GET", f"/search/jsonpath?{urlencode({'query': query})}")
            if answer.status not in _NO_SEARCH:
                return self._parsed_list(answer)[:most]
        found: list[Any] = []
        for page in range(MAX_PAGES):
            answer = await self.ask("GET", f"/things?limit={PAGE_SIZE}&offset={page * PAGE_SIZE}")
            listed = self._parsed_list(answer)
            found += listed
            if len(found) >= most or not listed or not _NEXT.search(answer.headers.get(b"link", b"")):
                break
        return found[:most]

    def _parsed_list(self, answer: Answer) -> list[Any]:
        body = self._checked(answer, 200).body
        try:
            listed: list[Any] = msgspec.json.decode(body, type=list[Any])
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise DirectoryRefused(self.url, 200, f"its answer is not a JSON array: {error}") from None
        return listed

    def _checked(self, answer: Answer, *wanted: int) -> Answer:
        if answer.status not in wanted:
            raise DirectoryRefused(self.url, answer.status, _reason_in(answer))
        return answer

    # ---- HTTP

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Answer:
        """Return the answer to a request, over the kept connection if it is free and still open."""
        try:
            with trio.fail_after(SECONDS):
                return await self._asked(method, self._prefix + path, body, kind)
        except trio.TooSlowError:
            raise ConnectFailed(self.url, f"no answer within {SECONDS:g} s") from None
        except ConnectFailed as error:
            raise error.at(self.url) from error
        except trio.BrokenResourceError as error:
            raise cut_off(self.url, error, secure=self._endpoint.secure) from error
        except _BROKEN as error:
            raise ConnectFailed(self.url, f"{error}" or type(error).__name__) from error
        except h11.LocalProtocolError:  # its text holds the header, which may be a secret
            raise ConnectFailed(self.url, "a header for it cannot be sent") from None

    async def _asked(self, method: str, target: str, body: bytes, kind: str) -> Answer:
        headers = self._headers(body, kind)
        request = h11.Request(method=method, target=target, headers=headers)
        if self._connection is not None:
            try:
                async with self._keeping(self._connection) as connection:
                    return await connection.ask(request, body)
            except _BROKEN:  # closed by the server meanwhile; the request is idempotent, so it is repeated
                pass
        stream = await self._network.connect(attrs.evolve(self._endpoint, target="/"), self._tls)
        async with self._keeping(_Connection(stream)) as connection:
            return await connection.ask(request, body)

    def _headers(self, body: bytes, kind: str) -> list[tuple[bytes, bytes]]:
        try:
            own = self._headers_for(self.url) if self._headers_for is not None else ()
        except (
            ConfigError
        ) as error:  # a file of secrets may be missing for a moment: the next request retries
            raise ConnectFailed(self.url, str(error)) from None
        headers = [(b"Host", self._endpoint.authority.encode()), (b"Accept", ACCEPT.encode()), *own]
        if kind:
            headers += [(b"Content-Type", kind.encode()), (b"Content-Length", b"%d" % len(body))]
        return headers

    @asynccontextmanager
    async def _keeping(self, connection: _Connection) -> AsyncGenerator[_Connection]:
        """Lend a connection, and keep it afterwards if it can be used again."""
        self._connection = None
        try:
            yield connection
        except BaseException:
            await trio.aclose_forcefully(connection.stream)
            raise
        if self._has_room and connection.renew():
            self._connection = connection
        else:
            await trio.aclose_forcefully(connection.stream)

    @property
    def _has_room(self) -> bool:
        return self._keep and self._connection is None

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await trio.aclose_forcefully(connection.stream)


class _Connection:
    """HTTP/1.1 connection, for one request at a time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    def renew(self) -> bool:
        """Prepare for another request. Return False if the connection cannot carry one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def ask(self, request: h11.Request, body: bytes) -> Answer:
        """Return the answer to a request. Raises ConnectFailed for an answer that is too long."""
        sent = self._http.send(request) or b""
        if body:
            sent += self._http.send(h11.Data(data=body)) or b""
        with suppress(trio.BrokenResourceError):  # a server may answer, such as with 401, before reading all
            await self.stream.send_all(sent + (self._http.send(h11.EndOfMessage()) or b""))
        head = await self._next()
        while isinstance(head, h11.InformationalResponse):
            head = await self._next()
        if not isinstance(head, h11.Response):
            raise h11.RemoteProtocolError("the connection ended before the answer")
        headers: dict[bytes, bytes] = {}
        for name, value in head.headers:
            headers[name] = headers[name] + b", " + value if name in headers else value
        return Answer(head.status_code, headers, await self._body())

    async def _body(self) -> bytes:
        found = bytearray()
        while isinstance(event := await self._next(), h11.Data):
            found += event.data
            if len(found) > MAX_ANSWER:
                raise ConnectFailed("", f"its answer is longer than {MAX_ANSWER} bytes")
        return bytes(found)

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = bytes(await self.stream.receive_some(_CHUNK))
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise trio.BrokenResourceError("the connection ended before the answer")
            self._http.receive_data(data)
        return event


def _entry(thing_id: str) -> str:
    return f"/things/{quote(thing_id, safe='')}"


def _reason_in(answer: Answer) -> str:
    """Return the reason in problem details (RFC 9457) as one printable line, "" without one."""
    try:
        problem = msgspec.convert(msgspec.json.decode(answer.body), dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ""
    line = problem.get("detail") or problem.get("title")
    line = line.strip() if isinstance(line, str) else ""
    return line if len(line) <= MAX_REASON and line.isprintable() else ""
