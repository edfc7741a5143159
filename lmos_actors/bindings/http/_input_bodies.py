"""Input streams over HTTP: the body of a request, read while its run goes on.

A body has items as JSON lines, or, for an input stream of bytes, octets whose pieces are the items. The rest
of the action's input is in the query and in the header `LMOS-Input`. Nothing of the body is read before the
run has begun. From then on only as much is read as there is room for: 16 items and 256 KiB of their text, and
a piece or two in the front door. So a slow handler slows its client down, by the flow control of TCP.

Data that is no valid item breaks the stream off, like a near caller's item of a wrong type: the handler gets
`SourceFailed`, which names the line, and nothing more is read. The rest of a body whose run has ended is not
read either; the front door closes the connection.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from starlette.requests import ClientDisconnect

from lmos_actors._core import LineReader, weight
from lmos_actors.actors import MISSING, InputStream, park_among, wake_all
from lmos_actors.errors import InvalidInput, NotAllowed, SourceFailed, Unauthorized
from lmos_actors.protocol.td import LINES, OCTETS

from ._events import NOT_GOOD, is_valid
from ._requests import check_encoding, media_type
from ._responses import HttpError
from ._values import read_json, with_integers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import TypeVar

    from lmos_actors._core import Timers
    from lmos_actors.actors import Operation

    from ._requests import HttpRequest

    T = TypeVar("T")

PIECE: Final = 65_536
"""Limit in bytes of one item, where a body is octets."""

ROOM_ITEMS: Final = 16
ROOM_BYTES: Final = 262_144

INPUT: Final = b"lmos-input"
"""The header with the input of an action, apart from its stream: an object, as JSON."""

JSON_LINES: Final = (LINES, "application/jsonl")
BREAK: Final = b"!"
"""The beginning of the line by which a client breaks its stream off; the reason follows, a text as JSON."""


class Exchange(Protocol):
    """The front door's side of a request whose body is read as a stream."""

    def stream(self) -> None: ...
    def keep(self, size: int) -> None: ...


def input_beside(request: HttpRequest) -> Any:
    """Return the input in the header `LMOS-Input`; MISSING if there is none. Raises InvalidInput."""
    text = request.header(INPUT)
    if text is None:
        return MISSING
    try:
        return read_json(text.encode("latin-1"))
    except InvalidInput as error:
        raise InvalidInput(error.message.replace("the body", "LMOS-Input")) from None


class InputBody:
    """The body of one request, which is read into the input stream `items`.

    A line has at most `longest` bytes. Raises NotAllowed if the action takes several streams, HttpError 415
    for a media type that such a body cannot have.
    """

    def __init__(self, timers: Timers, request: HttpRequest, op: Operation, longest: int) -> None:
        place, *others = op.streams
        if others:
            raise NotAllowed(
                f"{op.label} takes {len(op.streams)} input streams, and a request over HTTP has one body: "
                f"use it over LMOS"
            )
        self.parameter = op.params[place]
        self.items = InputStream(timers, self.parameter.wire_name)
        self.items.on_taken = self._taken
        self._timers = timers
        self._request = request
        self._is_octets = self._kind_is_octets()
        self._exchange: Exchange | None = request.scope["state"].get("exchange")
        self._lines = LineReader(longest)
        self._longest = longest
        self._line = self._count = 0
        self._begun = False
        self._sizes: deque[int] = deque()  # sizes of the items that wait for the handler
        self._held = 0  # the sum of these sizes
        self._waiting: list[trio.lowlevel.Task] = []
        self._scope = trio.CancelScope()
        self._refusal: Exception | None = None

    def _kind_is_octets(self) -> bool:
        check_encoding(self._request.headers)
        is_bytes = self.parameter.shape.exact is bytes
        kind = media_type(self._request.headers)
        if kind in JSON_LINES:
            return False
        if kind is None or (is_bytes and kind == OCTETS):  # curl -T names no type
            return is_bytes
        offered = f"{LINES} or {OCTETS}" if is_bytes else LINES
        raise HttpError(415, f"send {offered}, in UTF-8", {"accept-post": offered.replace(" or", ",")})

    # ---- its run

    def begin(self) -> None:
        """Note that the run has begun, so that the body is read from now on."""
        self._begun = True
        wake_all(self._timers, self._waiting)

    def _taken(self) -> None:
        if self._sizes:
            self._held -= self._sizes.popleft()
        if len(self._sizes) <= ROOM_ITEMS // 2 and self._held <= ROOM_BYTES // 2:  # one waking for several
            wake_all(self._timers, self._waiting)

    async def beside(self, answer: Callable[[], Awaitable[T]]) -> T:
        """Read the body until the answer is made; return the answer.

        Raises the errors of `answer`, Unauthorized once the credentials are no longer valid, and
        ClientDisconnect.
        """
        made: list[T] = []
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, name="body of a request")
                try:
                    with self._scope:
                        made.append(await answer())
                except Exception as error:  # raised below, in no group of this nursery
                    failure = error
                nursery.cancel_scope.cancel()
        finally:  # only now, so that a run whose client is gone has been cancelled
            self.items.break_off("the connection ended")  # which does nothing to one that has ended
        failure = failure or self._refusal
        if failure is not None:
            raise failure
        return made[0]

    # ---- reading

    async def _read(self) -> None:
        """Read the body into the stream, to its end or until cancelled. Raises nothing."""
        try:
            while not self._begun:
                await park_among(self._waiting)
            if self._exchange is not None:
                self._exchange.stream()
            await self._read_items()
        except SourceFailed as error:
            self.items.break_off(error.reason)
        except InvalidInput as error:
            self.items.break_off(str(error))
        except (Unauthorized, ClientDisconnect) as error:
            self._refusal = error
            self._scope.cancel("the client has left, or its credentials are no longer good")

    async def _read_items(self) -> None:
        more = True
        while more:
            message = await self._request.receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            if not is_valid(self._request):
                raise Unauthorized(NOT_GOOD)
            more = bool(message.get("more_body"))
            for item, size in self._items_of(message.get("body", b""), more=more):
                await self._put(item, size)
            self._keep()
        self.items.finish()

    async def _put(self, item: Any, size: int) -> None:
        while len(self._sizes) >= ROOM_ITEMS or self._held >= ROOM_BYTES:
            self._keep()
            await park_among(self._waiting)
        self._sizes.append(size)
        self._held += size
        self._count += 1
        self.items.put(item)

    def _keep(self) -> None:
        if self._exchange is not None:
            self._exchange.keep(self._lines.waiting + self._held)

    def _items_of(self, data: bytes, *, more: bool) -> Iterator[tuple[Any, int]]:
        """Yield the items that the new bytes complete, each with its size. Raises InvalidInput."""
        if self._is_octets:
            for start in range(0, len(data), PIECE):
                piece = data[start : start + PIECE]
                yield piece, len(piece)
            return
        for line in self._lines.feed(data):
            yield from self._item_of(line)
        if self._lines.is_beyond:
            self._line += 1
            raise self._wrong(f"longer than {self._longest} bytes")
        if not more:
            yield from self._item_of(self._lines.rest())

    def _item_of(self, line: bytes) -> Iterator[tuple[Any, int]]:
        self._line += 1
        if not line or line.isspace():
            return  # such as a line that shows that its client is there
        if line.startswith(BREAK):
            raise SourceFailed(self.items.name, self._reason(line))
        try:
            value = read_json(line)
        except InvalidInput as error:
            raise self._wrong(error.message.replace("the body is not JSON", "not JSON")) from None
        yield self._taken_item(value), len(line) + weight(line)

    def _reason(self, line: bytes) -> str:
        try:
            found = read_json(line[len(BREAK) :])
        except InvalidInput:
            found = None
        if not isinstance(found, str):
            raise self._wrong("a stream is broken off by ! and a text")
        return found

    def _taken_item(self, value: Any) -> Any:
        """Return the item, converted to its type. As in JSON Schema, 4.0 is an integer too."""
        take, path = self.parameter.shape.take, self._path()
        try:
            return take(value, path)
        except InvalidInput as error:
            try:
                return take(with_integers(value), path)
            except InvalidInput:
                raise self._wrong(error.message, error.path) from None

    def _path(self) -> str:
        return f"$.{self.parameter.wire_name}[{self._count}]"

    def _wrong(self, why: str, path: str | None = None) -> InvalidInput:
        return InvalidInput(f"line {self._line}: {why}", path or self._path())
