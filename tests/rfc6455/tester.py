"""The tester's end: a TCP socket, bytes written and read by hand, and what was seen on it."""

from __future__ import annotations

import base64
import hashlib
import socket
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, Literal

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from tests.rfc6455.plan import BINARY, CLOSE, PING, PONG, STILL, TEXT, Begun, Frame, Heard, More, Still

if TYPE_CHECKING:
    from tests.rfc6455.plan import Case, Chop, Event

PATIENCE: Final = 20.0  # seconds for whatever has to come; nobody who is right is waited for
A_MOMENT: Final = 0.005  # nothing has happened for so long: nothing will
_FEW: Final = 2000  # writes of a message after each of which the other end has its turn
SPARSELY: Final = 8  # of the later ones, how many to a turn
_KEY: Final = base64.b64encode(b"sixteen bytes it")
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_EVENTS: Final = {TEXT: "text", BINARY: "binary", PING: "ping", PONG: "pong"}
_GONE: Final = (ConnectionError,)


@attrs.define
class Seen:
    """What the tester saw: frames, how it ended, and the first thing that no end may ever do."""

    heard: list[Event] = attrs.Factory(list)
    said: bytes | None = None  # the payload of the tester's Close
    answered: bytes | None = None  # that of the other's
    first: Literal["tester", "testee"] | None = None  # to say Close
    ended: bool = False  # by the other end: the stream
    never: str = ""


class Tester:
    """A connection on which the opening handshake is over; `is_client` says which end the tester is.

    Of a message that is written in thousands of pieces the other end may read the later ones `every` so many.
    """

    def __init__(self, sock: socket.socket, rest: bytes, *, is_client: bool, seed: str, every: int) -> None:
        self._socket = sock
        self._rest = bytearray(rest)
        self._is_client = is_client
        self._random = Random(seed)
        self._every = every
        self._waiting = bytearray()
        self._key, self._at = b"\0\0\0\0", 0  # of a frame that is written in parts
        self._is_broken = False  # nothing can be written any more
        self.seen = Seen()

    def close(self) -> None:
        """Close the socket, whatever is open yet."""
        self._socket.close()

    # ---- a case

    async def play(self, case: Case) -> Seen:
        """Do what the case says, close as it says, and tell what was seen."""
        with trio.move_on_after(PATIENCE):
            for move in case.moves:
                if self.seen.answered is not None or self.seen.ended:
                    break
                if isinstance(move, Still | Heard):
                    await self._flush(case.chop)
                    await self._wait(move)
                else:
                    self._put(move)
                    if case.chop == "frames":
                        await self._flush(case.chop)
            await self._flush(case.chop)
            await self._hear_the_rest(case)
        if not self.seen.ended:
            with trio.move_on_after(PATIENCE):
                await self._part()
        return self.seen

    async def _wait(self, move: Still | Heard) -> None:
        if isinstance(move, Heard):
            while len(self.seen.heard) < move.count and await self._next():
                pass
        elif move.soon:
            with trio.move_on_after(PATIENCE / 4) as scope:
                await self._next()
            if scope.cancelled_caught:
                self.seen.heard.append(STILL)
        else:
            await wait_all_tasks_blocked(A_MOMENT)
            if self._has_news():
                await self._next()
            else:
                self.seen.heard.append(STILL)

    async def _hear_the_rest(self, case: Case) -> None:
        seen = self.seen
        while seen.answered is None:
            if case.ending.by == "tester" and seen.said is None and len(seen.heard) >= len(case.strict):
                self._put(Frame(CLOSE, (case.ending.codes[0] or 0).to_bytes(2, "big")))
                await self._flush(None)
            if not await self._next():
                return

    async def _part(self) -> None:
        """After the other's Close: answer it; then the server ends the stream."""
        if self.seen.answered is not None and self.seen.said is None:
            self._put(Frame(CLOSE, self.seen.answered))
            await self._flush(None)
        if not self._is_client:
            with suppress(OSError):  # the other end may be gone
                self._socket.shutdown(socket.SHUT_WR)
        while await self._next():
            pass

    # ---- out

    def _put(self, move: Frame | Begun | More) -> None:
        if isinstance(move, More):
            self._waiting += self._masked(move.payload)
            return
        fin, rsv, size = (
            (move.fin, move.rsv, len(move.payload)) if isinstance(move, Frame) else (1, 0, move.size)
        )
        self._waiting.append(fin << 7 | rsv << 4 | move.opcode)
        bit = 0x80 if self._is_client else 0
        if size < 126:
            self._waiting.append(bit | size)
        elif size < 1 << 16:
            self._waiting += bytes([bit | 126]) + size.to_bytes(2, "big")
        else:
            self._waiting += bytes([bit | 127]) + size.to_bytes(8, "big")
        if self._is_client:
            self._key, self._at = self._random.randbytes(4), 0
            self._waiting += self._key
        self._waiting += self._masked(move.payload)
        if move.opcode == CLOSE and not rsv and self.seen.said is None:
            self.seen.said, self.seen.first = move.payload, self.seen.first or "tester"

    def _masked(self, payload: bytes) -> bytes:
        if not self._is_client:
            return payload
        turn = self._at % 4
        self._at += len(payload)
        return exclusive_or(payload, self._key[turn:] + self._key[:turn])

    async def _flush(self, chop: Chop) -> None:
        data, self._waiting = bytes(self._waiting), bytearray()
        size = chop if isinstance(chop, int) else len(data) or 1
        pieces = range(0, len(data), size)
        for number, at in enumerate(pieces):
            if self._is_broken:
                return
            await self._send(data[at : at + size])
            if chop is not None and len(pieces) <= _FEW:
                await wait_all_tasks_blocked()  # so that each piece is a read of its own
            elif chop is not None and (number < _FEW or not number % self._every):
                await trio.lowlevel.checkpoint()

    async def _send(self, data: bytes) -> None:
        try:
            sent = 0
            while sent < len(data):
                try:
                    sent += self._socket.send(data[sent:] if sent else data)
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
        except _GONE:
            self._is_broken = True

    # ---- in

    def _has_news(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return bool(self._rest)
        except _GONE:
            pass
        return True

    async def _next(self) -> bool:
        """Take one frame; False: the other end has ended the stream."""
        while (bounds := self._bounds()) is None:
            if not await self._read():
                self.seen.ended = True
                if self._rest:
                    self._object("the stream ends within a frame")
                return False
        start, stop = bounds
        first, is_masked = self._rest[0], bool(self._rest[1] & 0x80)
        payload = bytes(self._rest[start:stop])
        if is_masked:
            payload = exclusive_or(payload, bytes(self._rest[start - 4 : start]))
        if is_masked == self._is_client:
            self._object("a server's frame with a mask" if is_masked else "a client's frame without one")
        del self._rest[:stop]
        self._take(first, payload)
        return True

    async def _read(self) -> bool:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                data = self._socket.recv(1 << 18)
            except BlockingIOError:
                continue
            except _GONE:
                return False
            self._rest += data
            return bool(data)

    def _bounds(self) -> tuple[int, int] | None:
        """Where the payload of the next frame begins and ends, once it is there."""
        rest = self._rest
        if len(rest) < 2:
            return None
        size, start = rest[1] & 0x7F, 2
        if size > 125:
            start += 2 if size == 126 else 8
            if len(rest) < start:
                return None
            least = 126 if size == 126 else 1 << 16
            size = int.from_bytes(rest[2:start], "big")
            if size < least:
                self._object(f"{size} bytes not in the shortest form")
        start += 4 if rest[1] & 0x80 else 0
        return (start, start + size) if len(rest) >= start + size else None

    def _take(self, first: int, payload: bytes) -> None:
        seen = self.seen
        opcode = first & 0x0F
        if first & 0xF0 != 0x80 or (opcode != CLOSE and opcode not in _EVENTS):
            self._object(f"a frame that begins with {first:#x}")
        elif opcode & 8 and len(payload) > 125:
            self._object(f"{len(payload)} bytes in a control frame")
        elif seen.answered is not None:
            self._object("a frame after the Close")
        elif opcode == CLOSE:
            seen.first = seen.first or "testee"
            seen.answered = payload
        else:
            seen.heard.append((_EVENTS[opcode], payload))

    def _object(self, why: str) -> None:
        self.seen.never = self.seen.never or why


def exclusive_or(data: bytes, key: bytes) -> bytes:
    keys = (key * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(len(data), "little")


# ---- the opening handshake, from both sides


async def knock(
    address: tuple[str, int], seed: str, headers: bytes = b"", every: int = SPARSELY
) -> tuple[Tester, bytes]:
    """Connect to a server and have the connection upgraded; give the tester, and the head of the answer."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.connect_ex(address)
    request = b"GET / HTTP/1.1\r\nHost: %s:%d\r\n" % (address[0].encode(), address[1])
    request += b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    request += b"Sec-WebSocket-Key: " + _KEY + b"\r\n" + headers
    try:
        await trio.lowlevel.wait_writable(sock)
        sock.send(request + b"\r\n")
        head, rest = await head_of(sock)
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert b"sec-websocket-accept: " + accepted(_KEY) in lowered(head), head
    except BaseException:
        sock.close()
        raise
    return Tester(sock, rest, is_client=True, seed=seed, every=every), head


async def admit(
    listener: socket.socket, seed: str, headers: bytes = b"", every: int = SPARSELY
) -> tuple[Tester, bytes]:
    """Wait for a client and upgrade its connection; give the tester, and the head of the request."""
    await trio.lowlevel.wait_readable(listener)
    sock, _ = listener.accept()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head, rest = await head_of(sock)
    key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    answer += b"Sec-WebSocket-Accept: " + accepted(key.partition(b":")[2].strip()) + b"\r\n" + headers
    sock.send(answer + b"\r\n")
    return Tester(sock, rest, is_client=False, seed=seed, every=every), head


async def head_of(sock: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        await trio.lowlevel.wait_readable(sock)
        more = sock.recv(1 << 16)
        assert more, f"the end, after {data!r}"
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def accepted(key: bytes) -> bytes:
    return base64.b64encode(hashlib.sha1(key + _GUID).digest())


def lowered(head: bytes) -> bytes:
    """The head with its names in lower case."""
    lines = [line.partition(b":") for line in head.split(b"\r\n")]
    return b"\r\n".join(name.lower() + colon + value for name, colon, value in lines)
