"""Streams in memory that obey the lines between two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import open_node, simulate
from lmos_actors.errors import ConnectFailed
from lmos_actors.links import LinkFault, LinkRules, Links
from lmos_actors.simulation.network._peer import NetworkParts
from lmos_actors.simulation.network._streams import WINDOW, LineNetwork, corrupted
from lmos_actors.transport import MemoryNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LATENCY = 0.05
PLACE = endpoint_of("ws://there")


@attrs.frozen
class World:
    parts: NetworkParts
    lines: LineNetwork
    here: Any
    there: Any

    def cut(self) -> int:
        number = self.parts.links.begin(LinkFault(selects=lambda *_: True, cuts=True), trio.current_time())
        self.lines.look_at_lines()
        return number

    def heal(self, number: int) -> None:
        self.parts.links.heal(number)
        self.lines.look_at_lines()


def run(body: Callable[[World], Awaitable[None]], **rules: Any) -> None:
    """Run with both ends of a stream whose handshake is done."""

    async def main() -> None:
        async with open_node() as node:
            rt = node.root.rt
            given = LinkRules(**{"latency": lambda _: LATENCY, **rules})
            parts = NetworkParts(rt, Links(lambda *_: given, rt.entropy.stream))
            memory = MemoryNetwork()
            listener = await memory.listen(PLACE)
            lines = LineNetwork(parts, memory, "here", "there")
            here = await lines.connect(PLACE, None)
            there, _ = await listener.accept()
            lines.stands()
            with trio.fail_after(10_000):
                await body(World(parts, lines, here, there))

    simulate(main)


def test_bytes_take_the_time_of_the_line_in_order() -> None:
    async def body(world: World) -> None:
        await world.here.send_all(b"ab")
        await trio.sleep(LATENCY / 2)
        await world.here.send_all(b"c")
        assert await world.there.receive_some() == b"ab"
        assert trio.current_time() == pytest.approx(LATENCY)
        assert await world.there.receive_some() == b"c"
        assert trio.current_time() == pytest.approx(1.5 * LATENCY)

    run(body)


def test_a_segment_of_a_slow_line_comes_after_the_other() -> None:
    async def body(world: World) -> None:
        await world.here.send_all(bytes(3_000))
        assert [len(await world.there.receive_some()) for _ in range(3)] == [1_460, 1_460, 80]
        assert trio.current_time() == pytest.approx((3_000 + 3 * 40) / 1_000 + LATENCY)

    run(body, bandwidth=1_000.0)


def test_what_nobody_reads_holds_the_sender_back() -> None:
    async def body(world: World) -> None:
        room = WINDOW + LinkRules().queue
        with trio.move_on_after(1_000) as scope:
            await world.here.send_all(bytes(room + 1))
        assert scope.cancelled_caught
        assert len(await world.there.receive_some(100)) == 100
        with trio.fail_after(0):
            await world.here.send_all(bytes(99))  # one of the bytes before it has taken a place

    run(body)


def test_a_cut_holds_bytes_and_the_end_of_them() -> None:
    async def body(world: World) -> None:
        number = world.cut()
        await world.here.send_all(b"a")
        await world.here.send_eof()
        with trio.move_on_after(1) as scope:
            await world.there.receive_some()
        assert scope.cancelled_caught
        world.heal(number)
        assert await world.there.receive_some() == b"a"
        assert 1 < trio.current_time() < 3
        assert await world.there.receive_some() == b""
        await world.there.send_all(b"b")  # the other half goes on
        assert await world.here.receive_some() == b"b"

    run(body)


def test_an_end_that_is_gone_is_known_by_what_is_sent_to_it() -> None:
    async def body(world: World) -> None:
        number = world.cut()
        await world.here.aclose()
        await world.there.send_all(b"a")
        await trio.sleep(1)
        await world.there.send_all(b"b")
        world.heal(number)
        assert await world.there.receive_some() == b""
        await trio.sleep(3)
        with pytest.raises(trio.BrokenResourceError, match="the peer has closed the stream"):
            await world.there.send_all(b"c")

    run(body)


def test_a_reset_loses_what_is_under_way() -> None:
    async def body(world: World) -> None:
        await world.here.send_all(b"a")
        assert world.lines.reset()
        for stream in (world.here, world.there):
            with pytest.raises(trio.BrokenResourceError, match="the connection was reset"):
                await stream.receive_some()
            await stream.aclose()
        assert not world.lines.reset()

    run(body)


def test_to_connect_takes_a_round_trip_but_for_the_first_time() -> None:
    async def body(world: World) -> None:
        assert trio.current_time() == 0
        await world.lines.connect(PLACE, None)
        assert trio.current_time() == pytest.approx(2 * LATENCY)
        world.cut()
        with trio.move_on_after(100) as scope:
            await world.lines.connect(PLACE, None)
        assert scope.cancelled_caught

    run(body)


def test_nobody_there_is_nobody_there() -> None:
    async def body(world: World) -> None:
        with pytest.raises(ConnectFailed, match="nothing is listening there"):
            await world.lines.connect(endpoint_of("ws://elsewhere"), None)

    run(body)


@given(st.text(min_size=1), st.data())
def test_a_changed_byte_of_a_text_makes_it_none(text: str, data: st.DataObject) -> None:
    written = text.encode("utf-8", "replace")
    with pytest.raises(UnicodeDecodeError):
        corrupted(written, data.draw(st.integers(0, len(written) - 1))).decode()
