"""The agents of a node for one client over two byte streams: one message a line, as over standard input.

A line that is not a message, or is too long, is answered by an error and not kept, so that the client can go
on. The end of the input means the end of the client, and of all its requests.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import trio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from lmos_actors._core import read_json
from lmos_actors.files import mapped

from .._messages import LongLine, MessageReader, MessageStream
from ._exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Generator

    from mcp_types import JSONRPCMessage

    from ._offer import McpOffer

NO_MESSAGE: Final = "the line is no message of JSON-RPC 2.0"

MOST_LINE: Final = 4 << 20
"""Maximum bytes of a message."""

MOST_WAITING: Final = 8 << 20
"""Bytes that may wait for the client to read them; while there are more, nothing that it writes is read."""

MESSAGE: Final = 4_096
"""Approximate bytes of a message beyond its text."""


async def serve_lines(
    offer: McpOffer, incoming: trio.abc.ReceiveStream, outgoing: trio.abc.SendStream
) -> None:
    """Serve one client until the end of its input, or until it no longer reads."""
    exchange = offer.own_exchange = Exchange("stdio", None, {})
    writer = _Writer(outgoing, exchange)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await nursery.start(offer.run)
        options = offer.server.create_initialization_options()
        reader: Any = _Reader(incoming, writer, exchange)  # the SDK's protocols name unused arguments
        sink: Any = writer
        await offer.server.run(reader, sink, options)
        nursery.cancel_scope.cancel("the client is gone")


def _broken_answer(message: Any) -> JSONRPCError | None:
    """Return a failure of our own request, if an unreadable message answers one."""
    members = mapped(message)
    number = members.get("id")
    if "method" in members or isinstance(number, bool) or not isinstance(number, int | str):
        return None
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=INVALID_REQUEST, message=NO_MESSAGE))


class _Writer(MessageStream):
    """The messages to the client. One task writes them, so that no partial line is ever left."""

    def __init__(self, stream: trio.abc.SendStream, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange
        self._waiting = 0  # bytes of messages
        self._has_room = trio.Event()
        self._has_room.set()
        self._out, self._in = trio.open_memory_channel[bytes](0)

    async def send(self, item: SessionMessage) -> None:
        """Send a message. If the client is gone, the message is lost."""
        message = item.message
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            with self._waits(len(data) + MESSAGE):
                await self._out.send(data)
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._exchange.sent(str(message.id))

    @contextmanager
    def _waits(self, size: int) -> Generator[None]:
        self._waiting += size
        if self._waiting > MOST_WAITING and self._has_room.is_set():
            self._has_room = trio.Event()
        try:
            yield
        finally:
            self._waiting -= size
            if self._waiting <= MOST_WAITING:
                self._has_room.set()

    async def wait_room(self) -> None:
        """Wait while the client has left too many bytes unread."""
        await self._has_room.wait()

    async def run(self) -> None:
        """Write the messages passed to `send`."""
        async for data in self._in:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_all(data)

    async def complain(self, code: int, text: str) -> None:
        """Send the error that answers a line which is not a message."""
        error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=text))
        await self.send(SessionMessage(error))


class _Reader(MessageReader):
    """The messages from the client."""

    def __init__(self, stream: trio.abc.ReceiveStream, writer: _Writer, exchange: Exchange) -> None:
        super().__init__(stream, MOST_LINE)
        self._writer = writer
        self._exchange = exchange

    async def __anext__(self) -> SessionMessage:
        await self._writer.wait_room()
        while (line := await self.next_line()) is not None:
            message = await self._message_in(line)
            if message is not None and (taken := await self._taken(message)):
                return taken
            await self._writer.wait_room()
        self._exchange.end()
        raise StopAsyncIteration

    async def _taken(self, message: JSONRPCMessage) -> SessionMessage | None:
        """Record a request. Refuse it if another request in progress has the same id."""
        if not isinstance(message, JSONRPCRequest):
            return SessionMessage(message)
        key, exchange = str(message.id), self._exchange
        if key in exchange.asked:
            await self._writer.complain(
                INVALID_REQUEST, f"the id {key[:100]!r} is that of a request in progress"
            )
            return None
        exchange.asked.add(key)

        async def unanswered() -> None:
            exchange.sent(key)

        return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=unanswered))

    async def _message_in(self, line: bytes | LongLine) -> JSONRPCMessage | None:
        if isinstance(line, LongLine):
            await self._writer.complain(INVALID_REQUEST, f"a message has at most {MOST_LINE} bytes")
            return None
        if not line.strip():
            return None
        try:
            decoded = read_json(line)
        except (ValueError, RecursionError) as error:
            await self._writer.complain(PARSE_ERROR, f"the line is not JSON: {error}")
            return None
        try:
            if isinstance(decoded, dict) and "method" in decoded and "id" in decoded:
                number: Any = decoded["id"]  # pyright: ignore[reportUnknownVariableType]
                if isinstance(number, bool) or not isinstance(number, str | int):
                    # the model would take such a request for a notification
                    raise ValueError("an id is a text or an integer")
            return jsonrpc_message_adapter.validate_python(decoded, by_name=False)
        except (ValueError, RecursionError):
            await self._writer.complain(INVALID_REQUEST, NO_MESSAGE)
            return _broken_answer(decoded)
