"""Whatever bytes come to a front door, and however they end: the next one is served."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import trio
from hypothesis import example, given, settings, strategies as st
from trio.testing import MockClock

from lmos_actors.transport import MemoryNetwork, MemoryStream
from tests.matrix import examples
from tests.transport.doors import CLOSE, GET, HELLO, Client, chunked, open_door, post, upgrade
from tests.transport.test_head import spiced

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
FRAMES = (
    HELLO,
    CLOSE,
    b"\x89\x80\0\0\0\0",
    b"\x01\x81\0\0\0\0h",
    b"\x80\x81\0\0\0\0i",
    b"\xff\xff",
    b"\x81\x05x",
)
WHOLE = (GET, post(b"hello"), chunked(b"he", b"llo"), upgrade(), *FRAMES)

traffic = st.lists(st.sampled_from(WHOLE) | spiced() | st.binary(max_size=30), max_size=5).map(b"".join)
endings = st.sampled_from(("wait", "eof", "close", "break"))


async def end(client: Client, how: str) -> None:
    stream = client.stream
    assert isinstance(stream, MemoryStream)
    if how == "eof":
        await stream.send_eof()
    elif how == "close":
        await stream.aclose()
    elif how == "break":
        stream.break_now()


@given(traffic, endings, st.integers(1, 200), st.sampled_from((20, 65536)))
@settings(max_examples=examples(80))
@example(upgrade() + HELLO, "break", 200, 65536)
def test_nobody_else_notices(data: bytes, how: str, step: int, room: int):
    async def main() -> None:
        async with open_door(MemoryNetwork(room), max_body_bytes=100, keep_alive_seconds=2) as door:
            client = await door.knock()
            with trio.move_on_after(3):  # with little room, for whoever does not listen
                with suppress(*GONE):
                    for start in range(0, len(data), step):
                        await client.send(data[start : start + step])
            await end(client, how)
            await door.serves_the_next()

    trio.run(main, clock=MockClock(autojump_threshold=0))


@given(st.lists(st.tuples(traffic, endings), max_size=12))
@settings(max_examples=examples(25))
def test_neither_when_many_come_at_once(all_of_them: list[tuple[bytes, str]]):
    async def one(door: Any, data: bytes, how: str) -> None:
        client = await door.knock()
        with trio.move_on_after(3):
            with suppress(*GONE):
                await client.send(data)
        await end(client, how)

    async def main() -> None:
        async with open_door(MemoryNetwork(), max_half_open=3, max_connections=6) as door:
            async with trio.open_nursery() as nursery:
                for data, how in all_of_them:
                    nursery.start_soon(one, door, data, how)
            for client in door.clients:
                await trio.aclose_forcefully(client.stream)
            await door.until(lambda now: not now.open)
            await door.serves_the_next()

    trio.run(main, clock=MockClock(autojump_threshold=0))
