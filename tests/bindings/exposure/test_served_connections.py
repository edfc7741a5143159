"""The connections of one service: bounds, the drain, and the wait for the last one."""

from __future__ import annotations

import trio
import trio.testing

from lmos_actors.bindings import LEAVING, ServedConnections


def test_there_are_at_most_so_many() -> None:
    connections = ServedConnections[str](2, full="there are two")
    with connections.served("one"):
        assert connections.refusal() is None
        with connections.served("two"):
            full = connections.refusal()
            assert full is not None
            assert (full.status, full.reason) == (503, "there are two")
            assert list(connections) == ["one", "two"]
        assert connections.refusal() is None
    assert not connections


def test_a_principal_has_half_of_them_where_they_are_shared() -> None:
    connections = ServedConnections[str](3, shared=True)
    with connections.served("one", "ann"), connections.served("two", "ann"):
        assert connections.refusal("ann") is not None
        assert connections.refusal("bob") is None
        assert connections.refusal() is None


def test_without_a_bound_a_drain_alone_refuses() -> None:
    connections = ServedConnections[str]()
    with connections.served("one"):
        assert connections.refusal("ann") is None
        connections.draining = True
        assert connections.refusal("ann") is LEAVING


async def test_the_last_one_is_waited_for(autojump_clock) -> None:
    connections = ServedConnections[int]()
    await connections.wait_done()

    async def serve(seconds: int) -> None:
        with connections.served(seconds):
            await trio.sleep(seconds)

    async with trio.open_nursery() as nursery:
        for seconds in (3, 5):
            nursery.start_soon(serve, seconds)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await connections.wait_done()
        assert trio.current_time() - began == 5
