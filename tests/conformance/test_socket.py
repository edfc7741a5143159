"""The kit's WebSocket, client's side: what goes by is kept, every wait ends, every end is told."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.conformance import Traffic, Unreachable
from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    ConnectionEnd,
    ConnectionGone,
    FrameReader,
    HandshakeOptions,
    Recorder,
    Refused,
    Socket,
    accept_of,
    open_socket,
    write_frame,
)
from lmos_actors.transport import MemoryNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HERE = endpoint_of("ws://there.example:80/ws")


class Other:
    """The other side, by hand: what it says, and what it has heard."""

    def __init__(self, stream: trio.abc.Stream, head: bytes) -> None:
        self.stream = stream
        self.head = head
        self._reader = FrameReader()

    async def say(self, *frames: bytes) -> None:
        await self.stream.send_all(b"".join(frames))

    async def parse_message(self) -> list[tuple[int, bytes, bool]]:
        found = self._reader.feed(bytes(await self.stream.receive_some(65536)))
        return [(frame.opcode, frame.payload, frame.masked) for frame in found]


def upgraded(head: bytes, *more: bytes) -> bytes:
    key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    return b"\r\n".join([*lines, b"Sec-WebSocket-Accept: " + accept_of(key).encode(), *more, b"", b""])


async def play(
    script: Callable[[Other], Awaitable[None]],
    body: Callable[[Socket], Awaitable[None]],
    answer: Callable[[bytes], bytes] = upgraded,
    **knocking: Any,
) -> list[Traffic]:
    """Have a socket meet a script."""
    network, kept = MemoryNetwork(), list[Traffic]()
    listener = await network.listen(HERE)

    async def serve() -> None:
        stream, _ = await listener.accept()
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some(65536)
        await stream.send_all(answer(head))
        await script(Other(stream, head))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        options = HandshakeOptions(network=network, endpoint=HERE, tls=None, **knocking)
        socket = await open_socket(options, Recorder(kept.append, 1, trio.current_time()), Random(1))
        await body(socket)
        await socket.aclose()
    await listener.aclose()
    return kept


async def idle(other: Other) -> None:
    """Say nothing."""


async def test_the_handshake_is_what_was_asked_for(autojump_clock: object) -> None:
    heads: list[bytes] = []

    async def script(other: Other) -> None:
        heads.append(other.head)

    async def body(socket: Socket) -> None:
        assert socket.handshake.header("sec-websocket-accept") == socket.handshake.accept
        assert socket.handshake.header("x-more") == "1, 2"

    kept = await play(
        script,
        body,
        lambda head: upgraded(head, b"X-More: 1", b"x-more: 2"),
        headers=((b"Authorization", b"Bearer sesame"), (b"Sec-WebSocket-Version", b"8")),
        without=(b"Sec-WebSocket-Protocol",),
    )
    assert b"Sec-WebSocket-Version: 8" in heads[0]
    assert b"Sec-WebSocket-Protocol" not in heads[0]
    assert b"Bearer sesame" in heads[0]
    assert "sesame" not in str(kept), "credentials are on no report card"
    assert [each.kind for each in kept][:2] == ["head", "head"]


async def test_messages_come_from_however_many_frames(autojump_clock: object) -> None:
    async def script(other: Other) -> None:
        await other.say(write_frame(TEXT, b"fr", fin=False), write_frame(PING, b"p"))
        assert await other.parse_message() == [(PONG, b"p", True)]
        await other.say(write_frame(0, b"ag"), write_frame(BINARY, b"\0"), write_frame(TEXT, "€".encode()))

    async def body(socket: Socket) -> None:
        assert await socket.next_message(1) == "frag"
        assert await socket.next_message(1) == b"\0"
        assert await socket.next_message(1) == "€"
        assert await socket.next_message(1) is None
        assert trio.current_time() >= 1

    kept = await play(script, body)
    assert [(each.kind, each.sent) for each in kept[2:5]] == [
        ("text", False),
        ("ping", False),
        ("pong", True),
    ]


async def test_a_close_is_answered_and_reported(autojump_clock: object) -> None:
    async def script(other: Other) -> None:
        await other.say(write_frame(CLOSE, b"\x03\xf4later"))
        assert await other.parse_message() == [(CLOSE, b"\x03\xf4", True)]
        await other.stream.aclose()

    async def body(socket: Socket) -> None:
        with pytest.raises(ConnectionGone, match="closed with 1012 'later'"):
            await socket.next_message(5)
        assert socket.gone == ConnectionEnd(1012, "later")
        assert await socket.stream_end(5)

    await play(script, body)


@pytest.mark.parametrize("said", [b"", b"\x03\xe8"], ids=["without a code", "1000"])
async def test_the_end_is_waited_for(said: bytes, autojump_clock: object) -> None:
    async def script(other: Other) -> None:
        await other.say(write_frame(TEXT, b"a"), write_frame(CLOSE, said))

    async def body(socket: Socket) -> None:
        gone = await socket.end(5)
        assert gone is not None
        assert gone.code == (1000 if said else 1005)

    await play(script, body)


async def test_an_end_without_a_close_is_reported(autojump_clock: object) -> None:
    async def script(other: Other) -> None:
        await other.stream.aclose()

    async def body(socket: Socket) -> None:
        gone = await socket.end(5)
        assert gone is not None
        assert gone.code is None
        assert "without a Close" in str(gone)
        with pytest.raises(ConnectionGone):
            await socket.send_text("too late")

    await play(script, body)


async def test_who_goes_on_is_not_at_its_end(autojump_clock: object) -> None:
    async def script(other: Other) -> None:
        await other.say(write_frame(TEXT, b"a"))
        await trio.sleep(10)

    async def body(socket: Socket) -> None:
        assert await socket.end(3) is None
        assert not await socket.stream_end(3)
        assert trio.current_time() >= 6

    await play(script, body)


async def test_a_frame_that_claims_too_much_ends_it(autojump_clock: object) -> None:
    async def script(other: Other) -> None:
        await other.say(write_frame(TEXT, claims=1 << 40))

    async def body(socket: Socket) -> None:
        with pytest.raises(ConnectionGone, match="claims 1099511627776 bytes"):
            await socket.next_frame(5)

    await play(script, body)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", Refused),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Refused),
        (b"what?\r\n\r\n", Unreachable),
    ],
)
async def test_an_invalid_upgrade_is_reported(
    answer: bytes, error: type[Exception], autojump_clock: object
) -> None:
    async def body(socket: Socket) -> None:
        pytest.fail("there is no connection")

    with pytest.raises(BaseExceptionGroup) as caught:
        await play(idle, body, lambda head: answer)
    assert caught.value.subgroup(error) is not None


async def test_nobody_there(autojump_clock: object) -> None:
    options = HandshakeOptions(network=MemoryNetwork(), endpoint=HERE, tls=None)
    with pytest.raises(Unreachable, match=r"there\.example"):
        await open_socket(options, Recorder(lambda _: None, 1, 0.0), Random(1))
