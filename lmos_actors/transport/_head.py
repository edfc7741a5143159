"""The head of an HTTP request: read from bytes as they arrive, and checked before any code acts on it.

h11 parses it. In addition, this file refuses what parsers are known to read in different ways (RFC 9112,
11.2: request smuggling), and what the WebSocket library does not survive. No code here does input or output.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from json import dumps
from typing import TYPE_CHECKING
from urllib.parse import unquote

import attrs
import h11

from lmos_actors._core import hide

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ._options import ConnectionOptions
    from ._tls import ClientCertificate
    from ._websocket import Connection


Headers = tuple[tuple[bytes, bytes], ...]

_LEGAL = bytes(range(0x20, 0x7F)) + b"\t\r\n"
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])")
_LENGTHS = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([^\r]*?)[ \t]*(?=\r)", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,19}")
_ABSOLUTE = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_NOT_SERVED = ("CONNECT", "TRACE")
ALLOWED = ((b"Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),)


class Refused(Exception):
    """The door's refusal of a request: `status`, a short reason `why`, and `kind` for the statistics."""

    def __init__(self, status: int, why: str, kind: str, headers: Headers = ()) -> None:
        self.status = status
        self.why = why
        self.kind = kind
        self.headers = headers
        super().__init__(f"{status} {why}")


@attrs.frozen
class Head:
    """One request without its body: `target` is a path with its query; header names are in lower case.

    Credentials among the headers are not shown by `repr`.
    """

    method: str
    target: str
    version: str
    headers: Headers = attrs.field(converter=hide)
    raw: bytes = attrs.field(repr=False)  # the whole of it, its empty line included
    http: h11.Connection = attrs.field(repr=False, eq=False)  # it has read the head, and nothing else
    length: int = attrs.field(init=False, repr=False, eq=False)
    """The length of the body in bytes, as the head declares it; 0 without a declaration."""
    chunked: bool = attrs.field(init=False, repr=False, eq=False)
    _named: dict[bytes, list[str]] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        named: dict[bytes, list[str]] = {}
        for name, value in self.headers:
            named.setdefault(name, []).append(value.decode("ascii"))
        object.__setattr__(self, "_named", named)
        object.__setattr__(self, "length", int(named.get(b"content-length", ("0",))[0]))
        object.__setattr__(self, "chunked", b"transfer-encoding" in named)

    @property
    def raw_path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def path(self) -> str:
        """The path, percent-decoded."""
        return unquote(self.raw_path)

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def values(self, name: bytes) -> list[str]:
        return self._named.get(name, [])

    def tokens(self, name: bytes) -> list[str]:
        """Return the elements of a list-valued header, in their original spelling."""
        if name not in self._named:
            return []
        parts = (part.strip() for value in self._named[name] for part in value.split(","))
        return [part for part in parts if part]


def refused_bytes(refused: Refused, more: Headers = (), *, bare: bool = False) -> bytes:
    """Return the complete answer to a refused request: problem details (RFC 9457) and `Connection: close`.

    `more` are further headers; `bare` omits the body, as in an answer to HEAD.
    """
    status = refused.status
    phrase = _PHRASES.get(status, "Refused")
    problem = {"type": "about:blank", "title": phrase, "status": status, "detail": refused.why}
    body = f"{dumps(problem)}\n".encode("ascii")
    own = (
        (b"Content-Type", b"application/problem+json"),
        (b"Content-Length", b"%d" % len(body)),
        (b"Connection", b"close"),
    )
    lines = [b"%s: %s" % header for header in (*own, *refused.headers, *more)]
    first = b"HTTP/1.1 %d %s" % (status, phrase.encode())
    return b"\r\n".join([first, *lines, b"", b"" if bare else body])


def malformed(why: str) -> Refused:
    return Refused(400, why, "malformed")


class HeadReader:
    """A reader of heads from the bytes of a peer; it refuses illegal bytes as soon as they arrive."""

    def __init__(self, data: bytes = b"", *, max_bytes: int, max_headers: int) -> None:
        self._buffer = bytearray(data)
        self._max_bytes = max_bytes
        self._max_headers = max_headers
        self._checked = 0  # bytes that were looked at
        self._lines = 0  # lines in them
        self._empty_lines = 0
        self._line_is_good = False

    @property
    def begun(self) -> bool:
        """Whether a part of a head has arrived."""
        return bool(self._buffer)

    @property
    def rest(self) -> bytes:
        """The received bytes that belong to no head taken so far."""
        return bytes(self._buffer)

    def feed(self, data: bytes | bytearray) -> None:
        self._buffer += data

    def take(self) -> Head | None:
        """Return the head once it is complete, without waiting for the body. Raises `Refused`."""
        while self._checked == 0 and self._buffer.startswith(b"\r\n"):
            self._empty_lines += 1
            if self._empty_lines > 4:  # RFC 9112, 2.2 asks for one to be ignored
                raise malformed("empty lines where a request is expected")
            del self._buffer[:2]
        if not self._buffer:
            return None
        end = self._buffer.find(b"\r\n\r\n", max(0, self._checked - 3)) + 4
        whole = end >= 4
        end = end if whole else len(self._buffer)
        start = self._checked
        self._check_bytes(min(end, self._max_bytes))
        self._check_request_line()
        if self._lines > self._max_headers + 2:  # the request line and the empty one
            raise Refused(431, f"more than {self._max_headers} headers", "too large")
        if re.search(rb"\n[ \t]", self._buffer[max(0, start - 1) : self._checked]):
            raise malformed("a header folded over lines")
        if end > self._max_bytes:
            if self._buffer.find(b"\n", 0, self._max_bytes) < 0:
                raise Refused(414, f"the request line is over {self._max_bytes} bytes", "too large")
            raise Refused(431, f"the head is over {self._max_bytes} bytes", "too large")
        if not whole:
            return None
        raw = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._checked = self._lines = self._empty_lines = 0
        self._line_is_good = False
        return parse_head(raw, self._max_bytes)

    def _check_bytes(self, end: int) -> None:
        if self._buffer.startswith(b"\x16"):
            raise Refused(400, "this port does not speak TLS: use http:// or ws://", "TLS on a plain port")
        if end > self._checked and self._buffer[end - 1] == 0x0D:
            end -= 1  # what follows the carriage return is not known yet
        start, self._checked = self._checked, end
        part = bytes(self._buffer[start:end])
        if part.translate(None, _LEGAL):
            raise malformed("a byte that is not printable ASCII in the head")
        lines = part.count(b"\n")
        if lines != part.count(b"\r\n") or lines != part.count(b"\r"):
            raise malformed("lines end with a carriage return and a line feed, both, and nothing else does")
        self._lines += lines

    def _check_request_line(self) -> None:
        """Check the first line before the rest arrives: clients of other protocols may wait for an answer."""
        if self._line_is_good or not self._lines:
            return
        line = bytes(self._buffer[: self._buffer.find(b"\r\n")])
        found = _REQUEST_LINE.fullmatch(line)
        if found is None:
            raise malformed("the first line is not METHOD TARGET HTTP/1.1")
        if found[3] not in (b"1.0", b"1.1"):
            raise Refused(505, f"HTTP/{found[3].decode()} is not spoken here, HTTP/1.1 is", "version")
        self._line_is_good = True


def parse_head(raw: bytes, max_bytes: int) -> Head:
    """Parse and check a complete head of legal bytes, including its empty line. Raises `Refused`."""
    # h11 takes two lengths where they are the same; others may take the first, or the last
    lengths = [length.decode("ascii") for length in _LENGTHS.findall(raw)]
    if len(lengths) > 1:
        raise malformed("two Content-Length headers")
    if lengths and not _DIGITS.fullmatch(lengths[0]):
        raise malformed("Content-Length is not one number")
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=max_bytes)
    http.receive_data(raw)
    try:
        event = http.next_event()
    except h11.RemoteProtocolError as error:
        status = error.error_status_hint
        raise Refused(status, str(error).split(": bytearray")[0], "malformed") from error
    if not isinstance(event, h11.Request):
        raise malformed("this is not a request")
    head = Head(
        event.method.decode("ascii"),
        event.target.decode("ascii"),
        event.http_version.decode("ascii"),
        tuple(event.headers),
        raw,
        http,
    )
    if head.chunked:
        if head.values(b"content-length"):
            raise malformed("both Content-Length and Transfer-Encoding")
        if head.version == "1.0":
            raise malformed("Transfer-Encoding in HTTP/1.0")
    if any(not _HOST.fullmatch(host) for host in head.values(b"host")):
        raise malformed("Host is not a host")
    return _check_target(head)


def _check_target(head: Head) -> Head:
    """Return the head with its target reduced to a path. Raises `Refused` if the target has none."""
    if head.method in _NOT_SERVED or head.target == "*":
        raise Refused(405, f"{head.method} {head.target[:80]} is not served", "method", ALLOWED)
    if "#" in head.target:
        raise malformed("a fragment in the target")
    if head.target.startswith("/"):
        return head
    found = _ABSOLUTE.match(head.target)
    if found is None:
        raise malformed("the target is not a path")
    # RFC 9112, 3.2.2: to be accepted; that the host stands twice is no reason to believe either
    if [found[1].lower()] != [host.lower() for host in head.values(b"host")]:
        raise malformed("the target and Host name different hosts")
    rest = head.target[found.end() :]
    target = rest if rest.startswith("/") else f"/{rest}"
    return attrs.evolve(head, target=target, raw=head.raw.replace(head.target.encode(), target.encode(), 1))


# --- a request to change to WebSocket, and the two answers to it

_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")  # 16 bytes, as base64
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
TO_WEBSOCKET = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))  # what a 426 has to say
_VERSION = (*TO_WEBSOCKET, (b"Sec-WebSocket-Version", b"13"))


@attrs.frozen
class Upgrade:
    """A well-formed request for a WebSocket, not yet answered.

    `target` is as received, `path` its percent-decoded path, `query` the part after the "?". `headers` are
    all headers of the request, with names in lower case. `offered` are the subprotocols, best first. `peer`
    is the client's address; `secure` is whether the request came over TLS, `certificate` is the client's, if
    it has shown one.
    """

    target: str
    path: str
    query: str
    headers: Headers
    offered: tuple[str, ...]
    peer: str
    secure: bool
    certificate: ClientCertificate | None = None


@attrs.frozen
class Accept:
    """The answer that opens a WebSocket, with further `headers`; `serve` then has the connection.

    `subprotocol` is one that was offered, or None. `options` are for this connection; None means those of the
    front door.
    """

    subprotocol: str | None
    serve: Callable[[Connection], Awaitable[None]]
    headers: Headers = ()
    options: ConnectionOptions | None = None


@attrs.frozen
class Refuse:
    """The answer that refuses a WebSocket: an HTTP status from 400 up, and a short reason for the peer.

    `headers` are further headers of the answer.
    """

    status: int
    reason: str
    headers: Headers = ()


def asks_for_websocket(head: Head) -> bool:
    """Return whether the request asks for a WebSocket, well-formed or not."""
    return "websocket" in [token.lower() for token in head.tokens(b"upgrade")]


def opening_of(head: Head) -> bytes:
    """Return the bytes of a checked opening handshake, rewritten for the WebSocket library.

    The library reads only the last `Upgrade` and `Connection` header, and does not parse lists there (RFC
    9110, 7.8).
    """
    return head.raw[:-2] + b"".join([b"%s: %s\r\n" % pair for pair in TO_WEBSOCKET]) + b"\r\n"


def upgrade_of(
    head: Head, peer: str, *, secure: bool, certificate: ClientCertificate | None = None
) -> Upgrade:
    """Check the opening handshake (RFC 6455, 4.2.1) and return it as an `Upgrade`. Raises `Refused`."""
    if head.method != "GET":
        raise Refused(405, "a WebSocket is opened with GET", "upgrade", ((b"Allow", b"GET"),))
    if head.version != "1.1":
        raise _wrong("a WebSocket is opened with HTTP/1.1")
    if "upgrade" not in [token.lower() for token in head.tokens(b"connection")]:
        raise _wrong("Connection does not say Upgrade; a proxy in between may have taken that away")
    if head.values(b"sec-websocket-version") != ["13"]:
        raise Refused(426, "only version 13 of the WebSocket protocol is spoken here", "upgrade", _VERSION)
    keys = head.values(b"sec-websocket-key")
    if len(keys) != 1 or not _KEY.fullmatch(keys[0]):
        raise _wrong("Sec-WebSocket-Key is not 16 bytes in base64")
    if head.chunked or head.length:
        raise _wrong("a request with a body cannot become a WebSocket")
    try:  # the WebSocket library reads the host as an international name, and does not expect that to fail
        head.values(b"host")[0].encode("ascii").decode("idna")
    except UnicodeError:
        raise malformed("Host is not a host") from None
    offered = tuple(head.tokens(b"sec-websocket-protocol"))
    if any(not _TOKEN.fullmatch(name) for name in offered):
        raise _wrong("Sec-WebSocket-Protocol is not a list of names")
    return Upgrade(head.target, head.path, head.query, head.headers, offered, peer, secure, certificate)


def _wrong(why: str) -> Refused:
    return Refused(400, why, "upgrade")


def same_origin(upgrade: Upgrade, allowed: Iterable[str] = ()) -> bool:
    """Return whether a page may open this WebSocket: its origin is this host, or one in `allowed`.

    An origin is written as browsers write it, "https://example.org". Programs other than browsers send no
    Origin: the result is True for them, since they could send any. Behind a proxy that changes Host, name the
    outer origin in `allowed`.
    """
    headers = dict(upgrade.headers)
    origin = headers.get(b"origin", b"").decode("ascii").lower()
    if not origin:
        return True
    own = f"{'https' if upgrade.secure else 'http'}://{headers.get(b'host', b'').decode('ascii').lower()}"
    return origin == own or origin in [each.lower() for each in allowed]
