"""One HTTP/1.1 exchange over a network, on one connection, with limits on time and size."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import h11
import trio

from lmos_actors.conformance.card import Traffic
from lmos_actors.conformance.inputs import DEEPEST, depth_of
from lmos_actors.errors import ConfigError, ConnectFailed, LmosActorsError
from lmos_actors.transport import endpoint_of, why_cut

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lmos_actors.transport import Endpoint, Network

LONGEST: Final = 4 << 20
"""Most bytes of a body that are read."""

_PLAIN: Final = (
    "host",
    "accept",
    "accept-encoding",
    "connection",
    "content-type",
    "content-length",
    "user-agent",
)

Headers: TypeAlias = "Sequence[tuple[str | bytes, str | bytes]]"
Record: TypeAlias = "Callable[[Traffic], None]"


class Unreachable(LmosActorsError):
    """No usable answer came from `url`; `why` names what was tried, and the fix if it is known."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        self.why = why
        super().__init__(f"{url}: {why}")


@attrs.frozen
class HttpAnswer:
    """An answer: its status, its headers in order with names in lower case, and its body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first header with a name, ignoring case; None if there is none."""
        return next((value for each, value in self.headers if each == name.lower()), None)

    @property
    def media_type(self) -> str:
        """The media type without its parameters, in lower case; "" if there is none."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        """The body as text; invalid UTF-8 is replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body as JSON. Raises ValueError with the reason if the body is not JSON."""
        return read_json(self.body)


def read_json(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON strictly. Raises ValueError.

    Invalid UTF-8, NaN, infinite numbers, duplicate names in an object and deep nesting are refused. `pairs`
    replaces the function that builds an object from its members, and may accept duplicate names.
    """
    try:
        plain = text if isinstance(text, str) else text.decode("utf-8")
        found = json.loads(
            plain, parse_constant=_no_constant, object_pairs_hook=pairs or _object, parse_float=_finite_number
        )
        if depth_of(found) > DEEPEST:
            raise RecursionError
        return found
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not a text in UTF-8") from None


def _finite_number(text: str) -> float:
    """Parse a number as a 64-bit float. Raises ValueError if it is too large."""
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"the number {text[:40]} is too large to be read")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice!r} stands twice in one object")
    return found


async def exchange(
    network: Network,
    method: str,
    url: str,
    *,
    headers: Headers = (),
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
    patience: float,
    record: Record | None = None,
) -> HttpAnswer:
    """Send a request over a new connection and return the answer. Redirects are not followed.

    A `ws` or `wss` URL is requested over HTTP, too. `patience` is the time for the whole exchange, in
    seconds. `record` receives the traffic with times of trio's clock; headers that may hold secrets are
    recorded by name only. Raises Unreachable if no server is there, or if the answer is too late, too long
    (over 4 MiB) or not HTTP. Raises ConfigError if the URL or the headers cannot be used.
    """
    endpoint = endpoint_of(url)
    with trio.move_on_after(patience):
        try:
            return await _exchanged(network, endpoint, tls, _Request(method, headers, body), record)
        except ConnectFailed as error:
            raise Unreachable(url, error.why) from error
        except h11.LocalProtocolError as error:
            why = str(error).partition(" b'")[0]  # the rest is the value of a header, which may be secret
            raise ConfigError(f"the request to {url} cannot be sent: {why}") from None
        except (trio.BrokenResourceError, _Unanswered) as error:
            raise Unreachable(url, why_cut(error, secure=endpoint.secure)) from error
        except h11.RemoteProtocolError as error:
            raise Unreachable(url, f"what it answers is no HTTP: {error}") from error
        except _TooLong:
            raise Unreachable(url, f"its answer is longer than {LONGEST} bytes") from None
    raise Unreachable(url, f"no answer within {patience:g} s (--patience gives it longer)")


class _Unanswered(Exception):
    pass


class _TooLong(Exception):
    pass


@attrs.frozen
class _Request:
    method: str
    headers: Headers
    body: bytes


async def _exchanged(
    network: Network, endpoint: Endpoint, tls: ssl.SSLContext | None, asked: _Request, record: Record | None
) -> HttpAnswer:
    stream = await network.connect(endpoint, tls)
    try:
        http = _Http(stream)
        head = _head(endpoint, asked)
        _report(record, sent=True, head=f"{asked.method} {endpoint.target}", headers=head, body=asked.body)
        await http.ask(h11.Request(method=asked.method, target=endpoint.target, headers=head), asked.body)
        answer = await http.answer()
        _report(record, sent=False, head=f"{answer.status}", headers=answer.headers, body=answer.body)
        return answer
    finally:
        await trio.aclose_forcefully(stream)


def _head(endpoint: Endpoint, asked: _Request) -> list[tuple[str, str]]:
    given = [(_text(name), _text(value)) for name, value in asked.headers]
    names = [name.lower() for name, _ in given]
    usual = [("Host", endpoint.authority), ("Accept-Encoding", "identity"), ("Connection", "close")]
    if asked.body or asked.method in ("POST", "PUT"):
        usual.append(("Content-Length", str(len(asked.body))))
    return [(name, value) for name, value in usual if name.lower() not in names] + given


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


class _Http:
    """A stream that carries one request and one answer."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, request: h11.Request, body: bytes) -> None:
        parts = [self._http.send(request)]
        if body:
            parts.append(self._http.send(h11.Data(data=body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        await self._stream.send_all(b"".join(part or b"" for part in parts))

    async def answer(self) -> HttpAnswer:
        head = await self._next()
        while isinstance(head, h11.InformationalResponse) and head.status_code != 101:
            head = await self._next()
        if not isinstance(head, h11.Response | h11.InformationalResponse):
            raise _Unanswered("the connection ended before the answer")
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        return HttpAnswer(head.status_code, headers, b"" if head.status_code == 101 else await self._body())

    async def _body(self) -> bytes:
        body = bytearray()
        while isinstance(event := await self._next(), h11.Data):
            body += event.data
            if len(body) > LONGEST:
                raise _TooLong
        return bytes(body)

    async def _next(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return cast("h11.Event", event)
            data = bytes(await self._stream.receive_some(65536))
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise _Unanswered("it closed the connection without an answer")
            self._http.receive_data(data)


def _report(
    record: Record | None, *, sent: bool, head: str, headers: Sequence[tuple[str, str]], body: bytes
) -> None:
    if record is None:
        return
    lines = [head, *(f"{name}: {_shown(name, value, sent)}" for name, value in headers), ""]
    text = "\n".join([*lines, body.decode("utf-8", "replace")])[:2000]
    at = trio.current_time()
    record(Traffic(at=at, sent=sent, connection=0, kind="http", text=text, size=len(body)))


def _shown(name: str, value: str, sent: bool) -> str:
    """Return a header's value, or "…" if the value may be secret.

    Unusual headers that are sent and cookies that are received may be secret.
    """
    plain = name.lower() in _PLAIN if sent else not name.lower().startswith("set-cookie")
    return value if plain else "…"
