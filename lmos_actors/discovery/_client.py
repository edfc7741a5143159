"""Client of a directory: the Directory Service API of W3C WoT Discovery, over the node's HTTP client.

Answers are bounded in time, bytes and pages, and checked by the callers. No redirect is followed:
credentials and trust belong to the URL that was configured. A kept connection may be closed by the server at
any time, so a request on it is repeated once on a new one; all requests of this API are idempotent. There is
no pool: one connection is kept at most, and only for a directory that is asked regularly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlencode

import attrs
import msgspec
import trio

from lmos_actors._core import read_json
from lmos_actors.bindings.http_client import (
    BadAnswer,
    HttpStream,
    Unanswered,
    Unsendable,
    WebAnswer,
    WebRequest,
    connect_failed,
)
from lmos_actors.errors import ConfigError, ConnectFailed, TransportError
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lmos_actors.transport import Endpoint, Network

REQUEST_SECONDS: Final = 10.0
"""Limit for one request, connecting included, in seconds."""

MAX_ANSWER: Final = 8 << 20
"""Limit of an answer, in bytes."""

PAGE_SIZE: Final = 100
"""Descriptions requested at a time."""

MAX_PAGES: Final = 20
"""Limit of pages that are read."""

TD_JSON: Final = "application/td+json"
MERGE_PATCH: Final = "application/merge-patch+json"
ACCEPT: Final = "application/ld+json, application/json;q=0.9, application/problem+json;q=0.5"

_SCHEMES: Final = ("http://", "https://")
_NO_SEARCH: Final = (400, 404, 405, 501)
_NEXT: Final = re.compile(r';\s*rel\s*=\s*("([^"]* )?next( [^"]*)?"|next\s*(?=[,;]|$))', re.IGNORECASE)

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

    All methods raise ConnectFailed if it cannot be reached, DirectoryRefused if it refuses.
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
        """Return at most `most` descriptions that a JSONPath selects, as plain data; None selects all."""
        ...

    async def aclose(self) -> None:
        """Release the connection, if one is kept."""
        ...


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
    """Remote directory. `url` is its root, such as `http://127.0.0.1:8081`, without `/things`.

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
        self._network = network
        self._tls = tls
        self._headers_for = headers_for
        self._keep = keep
        self._connection: HttpStream | None = None

    # ---- requests

    async def put(self, thing_id: str, text: bytes, ttl: float) -> None:
        """See `Directory`."""
        entry: dict[str, Any] = {**msgspec.json.decode(text), "registration": {"ttl": ttl}}
        body = msgspec.json.encode(entry)
        self._checked(await self.ask("PUT", _entry(thing_id), body, TD_JSON), 200, 201, 204)

    async def renew(self, thing_id: str) -> bool:
        """See `Directory`."""
        answer = await self.ask("PATCH", _entry(thing_id), b"{}", MERGE_PATCH)
        return self._checked(answer, 200, 204, 404).head.status != 404

    async def remove(self, thing_id: str) -> None:
        """See `Directory`."""
        self._checked(await self.ask("DELETE", _entry(thing_id)), 200, 204, 404)

    async def find(self, query: str | None, most: int) -> list[Any]:
        """See `Directory`. From a server without JSONPath all descriptions are read, page by page."""
        if query is not None:
            answer = await self.ask("GET", f"/search/jsonpath?{urlencode({'query': query})}")
            if answer.head.status not in _NO_SEARCH:
                return self._parsed_list(answer)[:most]
        found: list[Any] = []
        for page in range(MAX_PAGES):
            answer = await self.ask("GET", f"/things?limit={PAGE_SIZE}&offset={page * PAGE_SIZE}")
            listed = self._parsed_list(answer)
            found += listed
            if len(found) >= most or not listed or not _NEXT.search(answer.head.joined(b"link")):
                break
        return found[:most]

    def _parsed_list(self, answer: WebAnswer) -> list[Any]:
        body = self._checked(answer, 200).body
        try:
            listed: list[Any] = read_json(body, list[Any])
        except (RecursionError, ValueError) as error:
            raise DirectoryRefused(self.url, 200, f"its answer is not a JSON array: {error}") from None
        return listed

    def _checked(self, answer: WebAnswer, *wanted: int) -> WebAnswer:
        if answer.head.status not in wanted:
            raise DirectoryRefused(self.url, answer.head.status, _reason_in(answer))
        return answer

    # ---- HTTP

    async def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> WebAnswer:
        """Send a request and return the answer, over the kept connection if it is free and still open."""
        try:
            with trio.fail_after(REQUEST_SECONDS):
                return await self._answer(WebRequest(method, self.url + path, self._headers(kind), body))
        except trio.TooSlowError:
            raise ConnectFailed(self.url, f"no answer within {REQUEST_SECONDS:g} s") from None
        except ConnectFailed as error:
            raise error.at(self.url) from error
        except Unanswered as error:
            raise connect_failed(self.url, error, secure=self._endpoint.secure) from error
        except BadAnswer as error:
            raise ConnectFailed(self.url, f"its answer is of no use: {error}") from error
        except Unsendable:
            raise ConnectFailed(self.url, "a header for it cannot be sent") from None

    async def _answer(self, request: WebRequest) -> WebAnswer:
        kept, self._connection = self._connection, None  # nothing else may use it meanwhile
        if kept is not None:
            try:
                return await self._exchange(kept, request)
            except (Unanswered, BadAnswer):  # closed by its server meanwhile; the request is idempotent
                pass
        stream = await self._network.connect(attrs.evolve(self._endpoint, target="/"), self._tls)
        return await self._exchange(HttpStream(stream), request)

    async def _exchange(self, stream: HttpStream, request: WebRequest) -> WebAnswer:
        """Send a request, and keep the connection afterwards if it can be used again."""
        try:
            head = await stream.ask(request, (), None)
            answer = WebAnswer(head, await stream.body(MAX_ANSWER))
        except BaseException:
            await stream.aclose()
            raise
        if self._keep and self._connection is None and stream.is_reusable:
            self._connection = stream
        else:
            await stream.aclose()
        return answer

    def _headers(self, kind: str) -> Headers:
        try:
            own = self._headers_for(self.url) if self._headers_for is not None else ()
        except (
            ConfigError
        ) as error:  # a file of secrets may be missing for a moment: the next request retries
            raise ConnectFailed(self.url, str(error)) from None
        typed = ((b"Content-Type", kind.encode()),) if kind else ()
        return ((b"Accept", ACCEPT.encode()), *own, *typed)

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


def _entry(thing_id: str) -> str:
    return f"/things/{quote(thing_id, safe='')}"


def _reason_in(answer: WebAnswer) -> str:
    """Return the reason in problem details (RFC 9457) as one printable line, "" without one."""
    try:
        problem = read_json(answer.body, dict[str, Any])
    except (RecursionError, ValueError):
        return ""
    line = problem.get("detail") or problem.get("title")
    line = line.strip() if isinstance(line, str) else ""
    return line if len(line) <= 300 and line.isprintable() else ""
