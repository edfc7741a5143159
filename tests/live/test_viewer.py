"""Viewers that mean harm, and a tree that changes under those who look: what is left of it is nothing."""

from __future__ import annotations

import gc
import json
from contextlib import suppress
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import Agent, AgentError, ChildSpec, Pool, SupervisorSpec, action, open_node
from lmos_actors.actors import Slot, TracedSlot, slot_of
from lmos_actors.errors import ConnectFailed
from lmos_actors.live import PageOptions
from lmos_actors.simulation import TraceLog
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import MemoryNetwork
from tests.benchmarks.walks import Walked, counted, in_a_turn
from tests.live.watching import SECURITY, Watcher, as_viewer, watching
from tests.matrix import some

if TYPE_CHECKING:
    from trio.testing import MockClock

    from lmos_actors import Node

PLACE = "ws://here"


class Echo(Agent):
    """Says what it hears."""

    @action
    def say(self, text: str) -> str:
        return text

    @action
    def fail(self) -> None:
        raise RuntimeError("as asked")


TREE = SupervisorSpec(
    "root",
    [ChildSpec("one", Echo), BulkSpec("many", member=ChildSpec("m", Echo), count=2_000)],
    max_restarts=10**6,
)


def live_tasks() -> list[str]:
    """The tasks of the live view that run in this process."""
    names: list[str] = []
    tasks = [trio.lowlevel.current_root_task()]
    while tasks:
        task = tasks.pop()
        if task is not None:
            tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
            if "live view" in task.name or "Viewer." in task.name:
                names.append(task.name)
    return names


def assert_untouched(node: Node) -> None:
    """No agent is tapped, no instrument is left, and no task looks."""
    rt = node.root.rt
    assert rt.instrument is None
    assert {type(slot_of(ref)) for ref in node.agents()} == {rt.link}
    assert not issubclass(rt.link, TracedSlot)
    assert live_tasks() == []


async def test_a_near_call_stays_five_calls(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(listen=PLACE, network=network, security=SECURITY) as node:
        ref, other = await node.start(Walked), await node.start(Walked)

        async def calls() -> int:
            return (await counted(partial(in_a_turn, ref))).calls

        assert await calls() == 5
        async with watching(PLACE, network) as watcher:
            watcher.look("tree", "t")
            watcher.look("flow", "f", paths=[slot_of(other).path])
            await trio.sleep(3)
            assert type(slot_of(other)) is TracedSlot
            assert await calls() == 5
            watcher.look("flow", "f", paths=[slot_of(ref).path])
            await trio.sleep(3)
            assert await calls() > 5
        await trio.sleep(10)
        assert await calls() == 5
        assert_untouched(node)


@pytest.mark.slow  # its lines: test_tree_view.py
async def test_many_viewers_together_take_a_fifth_of_a_processor(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [BulkSpec("many", member=ChildSpec("m", Echo), count=50_000)])
    async with open_node(tree, listen=PLACE, network=network), trio.open_nursery() as nursery:
        viewers: list[Watcher] = []

        async def search_again_and_again() -> None:
            async with watching(PLACE, network, ()) as watcher:
                viewers.append(watcher)
                while True:
                    watcher.look("find", text="nobody")
                    await watcher.until(lambda: watcher.views.get("it", {}).get("complete"))
                    watcher.views.clear()
                    watcher.send(type="leave", id="it")

        for _ in range(20):
            nursery.start_soon(search_again_and_again)
        await trio.sleep(2)
        steps = sum(len(watcher.changes) for watcher in viewers)
        # a step takes 5 ms, and 20 ms of rest: alone each of them would have some 25 a second
        assert 20 <= steps <= 240
        assert all(watcher.changes for watcher in viewers)
        nursery.cancel_scope.cancel()


@pytest.mark.slow  # its lines: test_tree_view.py
async def test_very_many_places_are_open_among_very_many(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [BulkSpec("many", member=ChildSpec("m", Echo), count=50_000)])
    async with open_node(tree, listen=PLACE, network=network), watching(PLACE, network, ()) as watcher:
        places = [f"many/{number}" for number in range(49_501, 50_000)]
        watcher.look("tree", open=["many", *places], rows=10)
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert view["total"] == 1 + 1 + 50_000


async def test_hostile_messages_are_answered_and_the_node_goes_on(virtual_clock: MockClock) -> None:
    network, random = MemoryNetwork(), Random(27)
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        async with watching(PLACE, network) as watcher:
            values = [
                "",
                "x" * 5_000,
                -1,
                1e400,
                None,
                [],
                {},
                ["\x00"],
                {"a": {}},
                True,
                "many",
                2**70,
                "\ud800",
            ]
            for _ in range(300):
                name = random.choice([*watcher.hello["views"], "", "<script>"])
                keys = random.sample(
                    ["open", "from", "rows", "at", "text", "paths", "trace", "path", "by"], 3
                )
                arguments = {key: random.choice(values) for key in keys}
                watcher.look(name, random.choice(["it", "b", "c"]), **arguments)
                watcher.send(type="taken", number=random.choice(values))
                watcher.do(random.choice(["", "restart", "nuke"]), "no/where", random.choice(["a", "b"]))
                await trio.sleep(0.05)
            assert watcher.end is None
            assert len(watcher.errors) > 300
        await trio.sleep(10)
        assert await node.find(Echo, "one").invoke(Echo.say, "still here") == "still here"
        assert_untouched(node)


@pytest.mark.slow  # its lines: the tests around it
async def test_no_more_than_so_many_viewers_and_none_is_left(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        refused, there = 0, 0

        async def come(silent: bool) -> None:
            nonlocal refused, there
            try:
                async with watching(PLACE, network) as watcher:
                    watcher.takes = not silent
                    there += 1
                    watcher.look("tree", open=["many"], rows=300)
                    watcher.look("flow", "f")
                    await trio.sleep_forever()
            except ConnectFailed:
                refused += 1

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(come, number % 2 == 0)
            await trio.sleep(30)
            assert (there, refused) == (64, 36)
            nursery.cancel_scope.cancel()
        await trio.sleep(10)
        assert_untouched(node)


async def test_nobody_shuts_others_out_by_many_windows(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        windows: list[Watcher] = []

        async def come(silent: bool) -> None:
            async with watching(PLACE, network) as watcher:
                watcher.takes = not silent
                watcher.look("tree")
                windows.append(watcher)
                await watcher.until(lambda: watcher.end)

        async with trio.open_nursery() as nursery:
            for number in range(64):
                nursery.start_soon(come, number % 2 == 0)
            await trio.sleep(5)
            async with watching(PLACE, network, as_viewer("bob")) as bob:
                bob.look("tree")
                await bob.until(lambda: bob.views)
                async with watching(PLACE, network, as_viewer("bob")):
                    await trio.sleep(1)
                    ended = [watcher.end for watcher in windows if watcher.end is not None]
                    assert [end.code for end in ended] == [1013, 1013]
                    with pytest.raises(ConnectFailed):
                        async with watching(PLACE, network):
                            raise AssertionError
                assert bob.end is None
            nursery.cancel_scope.cancel()
        await trio.sleep(10)
        assert_untouched(node)


async def test_taps_of_agents_that_come_crash_and_go(virtual_clock: MockClock) -> None:
    network, random = MemoryNetwork(), Random(4)
    tree = SupervisorSpec("root", [ChildSpec("one", Echo)], max_restarts=10**6)
    async with open_node(tree, listen=PLACE, network=network, security=SECURITY) as node:
        await node.start_pool(Pool(Echo, 3))
        async with watching(PLACE, network) as watcher:
            for number in range(60):
                watcher.look("flow", random.choice("abc"), paths=[random.choice(["", "one", "churn1"])])
                name = f"churn{number % 5}"
                with suppress(AgentError):
                    await node.start_child(ChildSpec(name, Echo))
                    ref = node.find(Echo, name)
                    await ref.tell(Echo.say, "x")
                    await ref.tell(Echo.fail)
                    await trio.sleep(random.random())
                    await node.root.terminate_child(name)
                    await node.root.delete_child(name)
                if number % 7 == 0:
                    watcher.send(type="leave", id=random.choice("abc"))
            assert watcher.end is None
        await trio.sleep(20)
        assert_untouched(node)


async def test_a_tap_lets_go_of_agents_that_are_gone(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        watcher.look("flow")
        await watcher.until(lambda: watcher.views.get("it"))
        for number in range(20):
            ref = await node.start_child(ChildSpec(f"brief{number}", Echo))
            await trio.sleep(1.5)
            assert type(slot_of(ref)) is TracedSlot
            await node.root.terminate_child(f"brief{number}")
            await node.root.delete_child(f"brief{number}")
        await trio.sleep(3)
        del ref
        gc.collect()
        held = [
            each for each in gc.get_objects() if isinstance(each, Slot) and each.label.startswith("brief")
        ]
        assert len(held) <= 1


async def test_a_traced_node_has_its_own_slots_again(virtual_clock: MockClock) -> None:
    network, log = MemoryNetwork(), TraceLog()
    async with open_node(TREE, listen=PLACE, network=network, instrument=log, security=SECURITY) as node:
        kinds = {type(slot_of(ref)) for ref in node.agents()}
        async with watching(PLACE, network) as watcher:
            watcher.look("flow")
            await watcher.until(lambda: watcher.views.get("it"))
            await node.find(Echo, "one").invoke(Echo.say, "x")
            await trio.sleep(5)
        await trio.sleep(20)
        assert {type(slot_of(ref)) for ref in node.agents()} == kinds
        assert node.root.rt.instrument is log


@pytest.mark.parametrize("steps", some(range(0, 40, 3), of=3, besides=lambda steps: steps == 3))
async def test_a_node_that_ends_while_somebody_looks(virtual_clock: MockClock, steps: int) -> None:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery:
        async with open_node(TREE, listen=PLACE, network=network, security=SECURITY):

            async def look() -> None:
                with suppress(Exception):
                    async with watching(PLACE, network) as watcher:
                        watcher.look("flow")
                        watcher.look("find", "f", text="nobody")
                        watcher.send_text(json.dumps({"type": "look", "id": "t", "view": "tree"}))
                        await trio.sleep_forever()

            nursery.start_soon(look)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert live_tasks() == []


async def test_how_much_may_be_looked_at_is_an_option(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    limits = PageOptions(viewers=2, views=1, view_bytes=10_000, interval_seconds=5)
    async with (
        open_node(TREE, listen=PLACE, network=network, page=limits) as node,
        watching(PLACE, network) as one,
        watching(PLACE, network),
    ):
        with pytest.raises(ConnectFailed, match="2 viewers look already"):
            async with watching(PLACE, network):
                pass
        one.look("tree", id="small")
        one.look("tree", id="more")
        await one.until(lambda: one.errors)
        assert one.errors.pop()["code"] == "TOO_MANY"
        times: list[float] = []
        for number in range(3):
            await node.start_child(ChildSpec(f"new-{number}", Echo))
            await one.until(lambda: f"new-{number}" in str(one.views))  # noqa: B023
            times.append(trio.current_time())
        assert all(after - before >= 5 for before, after in pairwise(times))
        one.look("tree", id="small", open=["many"])
        await one.until(lambda: one.errors)
        assert one.errors.pop()["code"] == "TOO_LARGE"
