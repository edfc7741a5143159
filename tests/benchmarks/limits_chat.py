"""The bare limit of a chat: a trio task for each session, which writes and sends each chunk in its step.

It takes what a client of Omnia sends first, and no more: an upgrade without extensions, and messages of one
short frame each. Handshakes and messages are read as RFC 6455 says; `chat.py` measures neither, or one of
them for each hundred chunks.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha1
from itertools import cycle
from time import process_time
from typing import TYPE_CHECKING

import msgspec
import trio

from lmos_actors.transport import raise_descriptor_limit
from tests.benchmarks.limits_wire import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = "a few words, "
PACE = 0.05
SESSION = "s" * 36

_KEY = re.compile(rb"(?i)sec-websocket-key: *(\S+)\r\n")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Chunk(msgspec.Struct, tag_field="type", tag="chunk", gc=False):
    """A piece of an answer."""

    session_id: str
    content: str
    timestamp: datetime


encode = msgspec.json.Encoder().encode


def frame(text: bytes) -> bytes:
    """Return a text of less than 64 KiB as a server's frame."""
    size = len(text)
    head = bytes((0x81, size)) if size < 126 else bytes((0x81, 126, size >> 8, size & 0xFF))
    return head + text


async def upgraded(stream: trio.SocketStream) -> None:
    """Answer an upgrade."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive_some(65_536)
    found = _KEY.search(head)
    assert found is not None
    accept = b64encode(sha1(found[1] + _GUID).digest())
    await stream.send_all(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + frame(b'{"type":"connected"}')
    )


async def message(stream: trio.SocketStream) -> str | None:
    """Wait for a message of one short frame; return its content, None at the end."""
    data = b""
    while len(data) < 6 or len(data) < 6 + (data[1] & 0x7F):
        more = await stream.receive_some(65_536)
        if not more:
            return None
        data += more
    assert data[0] == 0x81
    text = bytes(each ^ mask for each, mask in zip(data[6:], cycle(data[2:6]), strict=False))
    return str(json.loads(text)["content"])


async def handle(stream: trio.SocketStream) -> None:
    """Serve one session; `cpu` asks for the seconds of processor time that this process has used."""
    await upgraded(stream)
    while (content := await message(stream)) is not None:
        pace, _, count = content.partition(" ")
        at = trio.current_time()
        for _ in range(int(count)):
            if pace == "slowly":
                at += PACE
                await trio.sleep_until(at)
            piece = str(process_time()) if pace == "cpu" else PIECE
            await stream.send_all(frame(encode(Chunk(SESSION, piece, datetime.now(UTC)))))
        await stream.send_all(frame(b'{"type":"done"}'))


async def serve(told: Callable[[str], object]) -> None:
    """Serve until killed; tell the URL."""
    raise_descriptor_limit(20_000)
    listeners = await trio.open_tcp_listeners(0, host=HOST)
    told(f"ws://{HOST}:{listeners[0].socket.getsockname()[1]}")
    await trio.serve_listeners(handle, listeners)
