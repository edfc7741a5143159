"""What speaks with a directory of descriptions: the API of W3C WoT Discovery, over HTTP/1.1.

Nothing that a directory answers is believed before it is checked, everything is bounded, and no redirect is
followed: a directory is who was named.
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
"""For one request, connecting included."""

MAX_ANSWER: Final = 8 << 20
"""Bytes of an answer."""

PAGE: Final = 100
"""Descriptions that are asked for at a time."""

PAGES: Final = 20
"""Pages that are read at most."""

TOLD: Final = 300  # characters of a refusal

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
    """A directory answered with a refusal; `status` is that of HTTP."""

    def __init__(self, url: str, status: int, why: str) -> None:
        self.url = url
        self.status = status
        self.why = why
        super().__init__(f"the directory at {url} answered {status}{f': {why}' if why else ''}")


class Directory(Protocol):
    """Where descriptions are registered and looked up.

    All raise ConnectFailed where nothing can be reached, DirectoryRefused where it does not do what is asked.
    """

    @property
    def url(self) -> str:
        """How it is named."""
        ...

    async def put(self, thing_id: str, text: bytes, ttl: float) -> None:
        """Create or replace the entry of a description, for so many seconds."""
        ...

    async def renew(self, thing_id: str) -> bool:
        """Let an entry begin its time anew; False where there is none."""
        ...

    async def remove(self, thing_id: str) -> None:
        """Take an entry away; there may be none."""
        ...

    async def find(self, query: str | None, most: int) -> list[Any]:
        """Return the descriptions, as plain data, that a JSONPath chooses, without one all.

        At most so many.
        """
        ...

    async def aclose(self) -> None:
        """Nothing more is asked for now; what holds a connection lets it go."""
        ...


@attrs.frozen
class Answer:
    """What was answered; `headers` by their names in lower case, those of one name joined by commas."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


def place_of_directory(url: str) -> Endpoint:
    """Return where a directory is. Raises ConfigError for what is no URL of one."""
    if "://" not in url:
        raise ConfigError("a directory is at an http or https URL, such as http://127.0.0.1:8080")
    endpoint = endpoint_of(url)
    if not url.startswith(_SCHEMES):
        raise ConfigError(f"a directory is at an http or https URL, not at {url!r}")
    if "?" in endpoint.target or "#" in url:
        raise ConfigError(f"the URL of a directory ends with its path: {url!r}")
    return endpoint


class HttpDirectory:
    """A directory elsewhere. `url` is that of its root: `http://127.0.0.1:8081`, without `/things`.

    `headers_for` is asked at every request for what goes with it to that URL, such as credentials. The
    connection is kept for the next request, with `keep`, until `aclose`. Raises ConfigError for no such URL.
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
        self._talk: _Talk | None = None

    # ---- what can be asked

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
        """See `Directory`: where it knows no JSONPath, all descriptions are given, page by page."""
        if query is not None:
            answer = await self.ask("GET", f"/search/jsonpath?{urlencode({'query': query})}")
            if answer.status not in _NO_SEARCH:
                return self._listed(answer)[:most]
        found: list[Any] = []
        for page in range(PAGES):
            answer = await self.ask("GET", f"/things?limit={PAGE}&offset={page * PAGE}")
            listed = self._listed(answer)
            found += listed
            if len(found) >= most or not listed or not _NEXT.search(answer.headers.get(b"link", b"")):
                break
        return found[:most]

    def _listed(self, answer: Answer) -> list[Any]:
        body = self._checked(answer, 200).body
        try:
            listed: list[Any] = msgspec.json.decode(body, type=list[Any])
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise DirectoryRefused(self.url, 200, f"what it lists is no JSON array: {error}") from None
        return listed

    def _checked(self, answer: Answer, *wanted: int) -> Answer:
        if answer.status not in wanted:
            raise DirectoryRefused(self.url, answer.status, _told(answer))
        return answer

    # ---- how

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Answer:
        """Ask one thing, over the connection of the last time if it still stands and nobody uses it."""
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
        except h11.LocalProtocolError:  # whose text has the header, which may be secret
            raise ConnectFailed(self.url, "a header for it cannot be sent") from None

    async def _asked(self, method: str, target: str, body: bytes, kind: str) -> Answer:
        headers = self._headers(body, kind)
        request = h11.Request(method=method, target=target, headers=headers)
        if self._talk is not None:
            try:
                async with self._talking(self._talk) as talk:
                    return await talk.ask(request, body)
            except _BROKEN:  # it was closed meanwhile; asking twice does no more than asking once
                pass
        stream = await self._network.connect(attrs.evolve(self._endpoint, target="/"), self._tls)
        async with self._talking(_Talk(stream)) as talk:
            return await talk.ask(request, body)

    def _headers(self, body: bytes, kind: str) -> list[tuple[bytes, bytes]]:
        try:
            own = self._headers_for(self.url) if self._headers_for is not None else ()
        except ConfigError as error:  # a file may be missing for a while, which is to end nothing
            raise ConnectFailed(self.url, str(error)) from None
        headers = [(b"Host", self._endpoint.authority.encode()), (b"Accept", ACCEPT.encode()), *own]
        if kind:
            headers += [(b"Content-Type", kind.encode()), (b"Content-Length", b"%d" % len(body))]
        return headers

    @asynccontextmanager
    async def _talking(self, talk: _Talk) -> AsyncGenerator[_Talk]:
        """Keep the connection if it can be used again afterwards."""
        self._talk = None
        try:
            yield talk
        except BaseException:
            await trio.aclose_forcefully(talk.stream)
            raise
        if self._has_room and talk.renew():
            self._talk = talk
        else:
            await trio.aclose_forcefully(talk.stream)

    @property
    def _has_room(self) -> bool:
        return self._keep and self._talk is None

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        talk, self._talk = self._talk, None
        if talk is not None:
            await trio.aclose_forcefully(talk.stream)


class _Talk:
    """One connection, for one request after the other."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    def renew(self) -> bool:
        """Make ready for another request; False where the connection cannot carry one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def ask(self, request: h11.Request, body: bytes) -> Answer:
        """Send a request and read its answer. Raises ConnectFailed for one that is too long."""
        sent = self._http.send(request) or b""
        if body:
            sent += self._http.send(h11.Data(data=body)) or b""
        with suppress(trio.BrokenResourceError):  # it may all the same have been answered, such as with 401
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


def _told(answer: Answer) -> str:
    """Return what problem details say, as one line, nothing else of an answer."""
    try:
        said = msgspec.convert(msgspec.json.decode(answer.body), dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ""
    line = said.get("detail") or said.get("title")
    line = line.strip() if isinstance(line, str) else ""
    return line if len(line) <= TOLD and line.isprintable() else ""
