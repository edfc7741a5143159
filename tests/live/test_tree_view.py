"""The tree as a viewer sees it: its rows, their sums, what is found in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, open_node
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import MemoryNetwork
from tests.live.watching import watching

if TYPE_CHECKING:
    from trio.testing import MockClock

PLACE = "ws://here"


class Echo(Agent):
    """Says what it hears."""

    @action
    def say(self, text: str) -> str:
        return text

    @action
    async def hang(self) -> None:
        await trio.sleep_forever()

    @action
    def fail(self) -> None:
        raise RuntimeError("as asked")


class Desk(Agent):
    """Has a child."""

    def started(self) -> None:
        self.nursery.start_soon(self.start_child, ChildSpec("clerk", Echo))


TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("desk", Desk),
        SupervisorSpec("shop", [ChildSpec("till", Echo)]),
        BulkSpec("many", member=ChildSpec("m", Echo), count=1_000),
    ],
)


async def test_rows_are_those_of_the_window(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network), watching(PLACE, network, ()) as watcher:
        watcher.look("tree")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert view["order"] == ["", "desk", "shop", "many"]
        assert view["rows"]["many"]["children"] == 1_000
        watcher.look("tree", open=["many", "shop", "desk"], **{"from": 4}, rows=5)
        await watcher.until(lambda: watcher.views["it"]["order"][0] == "shop/till")
        view = watcher.views["it"]
        assert view["total"] == 4 + 1 + 1 + 1_000
        assert view["order"] == ["shop/till", "many", "many/0", "many/1", "many/2"]
        assert [view["rows"][path]["level"] for path in view["order"]] == [2, 1, 2, 2, 2]
        assert set(view["rows"]) == set(view["order"])
        watcher.look("tree", open=["many"], **{"from": 1_002}, rows=5)
        await watcher.until(lambda: watcher.views["it"]["from"] == 1_002)
        assert watcher.views["it"]["order"] == ["many/998", "many/999"]


async def test_sums_count_all_below(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network) as node,
        watching(PLACE, network, ()) as watcher,
    ):
        till, one = node.find(Echo, "shop/till"), node.find(Echo, "many/17")
        await till.invoke(Echo.say, "a")
        await one.invoke(Echo.say, "b")
        watcher.look("tree")
        await watcher.until(lambda: watcher.views.get("it", {}).get("rows", {}).get("", {}).get("below"))
        await watcher.until(lambda: watcher.views["it"]["rows"][""]["below"]["agents"] == 1_003)
        await watcher.until(lambda: watcher.views["it"]["rows"][""]["below"]["handled"] == 2)
        rows = watcher.views["it"]["rows"]
        assert rows["many"]["below"] == {
            "agents": 1_000,
            "waiting": 0,
            "handled": 1,
            "restarts": 0,
            "down": 0,
        }
        await one.tell(Echo.fail)
        await watcher.until(lambda: watcher.views["it"]["rows"]["many"]["below"]["restarts"] == 1)


async def test_the_top_names_who_has_most(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network) as node,
        watching(PLACE, network, ()) as watcher,
    ):
        busy = node.find(Echo, "many/3")
        watcher.look("top", by="handled", rows=1)

        async def talk() -> None:
            while True:
                await busy.invoke(Echo.say, "x")
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            await watcher.until(lambda: watcher.views.get("it", {}).get("order") == ["many/3"])
            await watcher.until(lambda: 50 < watcher.views["it"]["rows"]["many/3"]["most"] < 110)
            nursery.cancel_scope.cancel()


async def test_agents_are_found_by_path_and_class(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network), watching(PLACE, network, ()) as watcher:
        watcher.look("find", text="/99")
        await watcher.until(lambda: watcher.views.get("it", {}).get("complete"))
        assert watcher.views["it"]["order"] == ["many/99", *(f"many/{n}" for n in range(990, 1_000))]
        watcher.look("find", text="DESK")
        await watcher.until(lambda: watcher.views["it"]["order"][0] == "desk")
        watcher.look("find", text="echo", rows=3)
        await watcher.until(lambda: len(watcher.views["it"]["order"]) == 3)
        assert watcher.views["it"]["complete"] is False


async def test_a_viewer_that_takes_nothing_gets_one_message(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network) as node,
        watching(PLACE, network, ()) as watcher,
    ):
        watcher.takes = False
        watcher.look("tree")
        await watcher.until(lambda: watcher.views.get("it"))
        desk = node.find(Echo, "shop/till")
        for _ in range(20):
            await desk.invoke(Echo.say, "x")
            await trio.sleep(1)
        assert len(watcher.changes) == 1


async def test_what_is_wrong_is_said_and_the_connection_stays(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network), watching(PLACE, network, ()) as watcher:
        for text in (
            "{",
            "[]",
            '{"type":"loook"}',
            '{"type":"look","id":"","view":"tree"}',
            '"' + "[" * 5_000,
        ):
            watcher.send_text(text)
        watcher.look("treee", "a")
        watcher.look("tree", "b", rows="many")
        watcher.look("tree", "c", opne=[])
        await watcher.until(lambda: len(watcher.errors) == 8)
        assert [error.get("id") for error in watcher.errors] == [None] * 5 + ["a", "b", "c"]
        assert "did you mean 'tree'" in watcher.errors[5]["message"]
        watcher.look("tree")
        await watcher.until(lambda: watcher.views.get("it"))
