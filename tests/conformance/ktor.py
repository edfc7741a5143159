"""A server of WebSockets as lax as Ktor's, on which kotlin-wot stands: what it lets pass, RFC 6455 forbids.

It takes any version, no key, frames without a mask, reserved bits and opcodes, text that is not UTF-8, and
answers a Close by one with the same code, whatever that is. HEAD is 404. A frame out of its order, a control
frame that is too long or fragmented, and one that claims more than 31 bits can say end the connection.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.transport import endpoint_of
from tests.wire_conformance.sockets import Closed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.transport import Network

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
LONGEST = 2**31 - 1
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class KtorSocket:
    """One end of a connection after its handshake."""

    def __init__(self, stream: trio.abc.Stream, rest: bytes) -> None:
        self.stream = stream
        self._got = bytearray(rest)
        self._parts: list[bytes] = []
        self._kind = TEXT

    async def _take(self, count: int) -> bytes:
        while len(self._got) < count:
            try:
                data = await self.stream.receive_some(65536)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                raise Closed(None)
            self._got += data
        taken = bytes(self._got[:count])
        del self._got[:count]
        return taken

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._take(2)
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(await self._take(2 if length == 126 else 8), "big")
        if length > LONGEST:
            await self.stream.aclose()
            raise Closed(None)
        mask = await self._take(4) if second & 0x80 else b"\0\0\0\0"
        data = await self._take(length)
        return bool(first & 0x80), first & 0x0F, bytes(c ^ mask[i % 4] for i, c in enumerate(data))

    async def receive(self) -> str | bytes:
        """Wait for the next message. Raises Closed."""
        while True:
            final, opcode, data = await self._frame()
            if self._is_out_of_order(opcode, final=final, size=len(data)):
                await self.stream.aclose()
                raise Closed(None)
            if opcode == CLOSE:
                await self._send(CLOSE, data[:2])
                await self.stream.aclose()
                raise Closed(int.from_bytes(data[:2], "big") if len(data) > 1 else None)
            if opcode == PING:
                await self._send(PONG, data)
            elif opcode in (0, TEXT, BINARY):
                self._kind = opcode or self._kind
                self._parts.append(data)
                if final:
                    whole, self._parts = b"".join(self._parts), []
                    return whole.decode(errors="replace") if self._kind == TEXT else whole

    def _is_out_of_order(self, opcode: int, *, final: bool, size: int) -> bool:
        if opcode >= CLOSE:
            return not final or size > 125
        return opcode in (0, TEXT, BINARY) and bool(opcode) == bool(self._parts)

    async def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
        if size > 0xFFFF:
            length = b"\x7f" + size.to_bytes(8, "big")
        try:
            await self.stream.send_all(bytes([0x80 | opcode]) + length + data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def send(self, text: str) -> None:
        """Send a text."""
        await self._send(TEXT, text.encode())

    async def close(self, code: int, reason: str) -> None:
        """Close: say so, and wait for the peer's."""
        await self._send(CLOSE, code.to_bytes(2, "big") + reason.encode())
        try:
            while (await self._frame())[1] != CLOSE:
                pass
        except Closed:
            return
        finally:
            await self.stream.aclose()


class KtorServer:
    """WebSockets, and a document or two by HTTP, at one port."""

    def __init__(
        self, talk: Callable[[KtorSocket], Awaitable[None]], documents: Callable[[str], bytes | None]
    ) -> None:
        self.talk = talk
        self.documents = documents
        self.address = ""

    async def serve(
        self, network: Network, host: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; tells `host:port`."""
        listener = await network.listen(endpoint_of(f"ws://{host}:0"))
        name, port = listener.addresses[0]
        self.address = f"{name}:{port}"
        task_status.started(self.address)
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    stream, _ = await listener.accept()
                    nursery.start_soon(self._serve, stream)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _serve(self, stream: trio.abc.Stream) -> None:
        got = b""
        try:
            while b"\r\n\r\n" not in got:
                data = await stream.receive_some(65536)
                if not data:
                    return
                got += data
            head, _, rest = got.partition(b"\r\n\r\n")
            if b"upgrade: websocket" in head.lower():
                await stream.send_all(_accepted(head))
                await self.talk(KtorSocket(stream, rest))
            else:
                await stream.send_all(self._document(head))
        except (trio.BrokenResourceError, trio.ClosedResourceError, Closed):
            return
        finally:
            await trio.aclose_forcefully(stream)

    def _document(self, head: bytes) -> bytes:
        method, path, _ = head.split(b" ", 2)
        body = self.documents(path.decode()) if method == b"GET" else None
        status = b"404 Not Found" if body is None else b"200 OK"
        lines = [b"HTTP/1.1 " + status, b"content-type: application/json", b"connection: close"]
        lines.append(b"content-length: %d" % len(body or b""))
        return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def _accepted(head: bytes) -> bytes:
    headers: dict[bytes, Any] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    key = headers.get(b"sec-websocket-key", b"")
    answer = b64encode(sha1(key + GUID, usedforsecurity=False).digest())
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    return b"\r\n".join([*lines, b"Sec-WebSocket-Accept: " + answer]) + b"\r\n\r\n"
