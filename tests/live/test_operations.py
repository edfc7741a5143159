"""Operations on a node that works: who may, what becomes of it, twice the same, on what is gone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Pool, SupervisorSpec, action, open_node
from lmos_actors.persistence import MemoryStore
from lmos_actors.supervision import BulkSpec
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.live.watching import SECURITY, Watcher, as_viewer, watching

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock

PLACE = "ws://here"


class Echo(Agent):
    """Says what it hears."""

    said: int = 0

    @action
    def say(self, text: str) -> str:
        self.said += 1
        return text

    @action
    async def hang(self) -> None:
        await trio.sleep_forever()


class Desk(Agent):
    """Has a child."""

    def started(self) -> None:
        self.nursery.start_soon(self.start_child, ChildSpec("clerk", Echo))


class Slow(Agent):
    """Takes long to begin and to end."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await trio.sleep(1)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)


class Sore(Agent):
    """Raises while it ends."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        yield
        raise RuntimeError("it hurts")


TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("echo", Echo),
        ChildSpec("vault", Echo),
        ChildSpec("once", Echo, restart="temporary"),
        ChildSpec("desk", Desk),
        SupervisorSpec("shop", [ChildSpec("till", Echo)]),
        Pool(Echo, 2, name="pool"),
        BulkSpec("many", member=ChildSpec("m", Echo), count=3),
    ],
)


async def outcome(watcher: Watcher, what: str, path: str, id: str = "") -> str:
    """Ask for an operation; return its outcome, or the code of the error."""
    id = id or f"{what} {path} {len(watcher.done) + len(watcher.errors)}"[:64]
    before = len(watcher.done), len(watcher.errors)
    watcher.do(what, path, id)
    await watcher.until(lambda: (len(watcher.done), len(watcher.errors)) != before)
    if len(watcher.errors) > before[1]:
        assert watcher.errors[-1]["id"] == id
        return str(watcher.errors[-1]["code"])
    assert watcher.done[-1] | {"outcome": ""} == {
        "type": "done", "id": id, "what": what, "path": path, "outcome": "",
    }  # fmt: skip
    return str(watcher.done[-1]["outcome"])


LIVES = ("echo", "desk", "shop/till", "pool/pool-1", "many/2", "desk/clerk")


@pytest.mark.parametrize("path", LIVES)
async def test_an_agent_is_restarted_and_stopped(virtual_clock: MockClock, path: str) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        await trio.sleep(1)
        watcher.look("agent", path=path)
        await watcher.until(lambda: watcher.views.get("it", {}).get("life") == 1)
        assert await outcome(watcher, "restart", path) == "restarted"
        await watcher.until(lambda: watcher.views["it"].get("life") == 2)
        assert await outcome(watcher, "stop", path) == "stopped"
        await watcher.until(lambda: watcher.views["it"]["status"] == "stopped")
        assert await outcome(watcher, "stop", path) == "stopped already"
        assert await outcome(watcher, "restart", path) == "started"
        await watcher.until(lambda: watcher.views["it"].get("status") == "running")
        assert node.statistics().restarts >= 2


async def test_supervisors_and_what_hangs_are_restarted(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
        trio.open_nursery() as nursery,
    ):

        async def hang() -> None:
            with pytest.raises(Exception, match=r"stopping|stopped|shutdown"):
                await node.find(Echo, "echo").invoke(Echo.hang)

        nursery.start_soon(hang)
        await trio.sleep(1)
        for path in ("shop", "pool", "many", "echo"):
            assert await outcome(watcher, "restart", path) == "restarted"


SLOW_TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("slow", Slow),
        SupervisorSpec("shop", [ChildSpec("till", Slow), ChildSpec("once", Slow, restart="temporary")]),
        BulkSpec("many", member=ChildSpec("m", Slow), count=2),
        Pool(Slow, 2, name="pool"),
    ],
)


async def test_the_tree_says_what_is_held_and_what_is_a_pool(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY),
        watching(PLACE, network) as watcher,
    ):
        watcher.look("tree")
        await watcher.until(lambda: "echo" in watcher.views.get("it", {}).get("rows", {}))
        rows = watcher.views["it"]["rows"]
        assert (rows["pool"]["pool"], rows["pool"]["class"]) == ("round_robin", "Echo")
        assert "pool" not in rows["shop"]
        assert "held" not in rows["echo"]
        assert await outcome(watcher, "hold", "echo") == "held"
        await watcher.until(lambda: watcher.views["it"]["rows"]["echo"].get("held") is True)
        assert await outcome(watcher, "release", "echo") == "released"
        await watcher.until(lambda: "held" not in watcher.views["it"]["rows"]["echo"])


async def test_two_restarts_at_once(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(SLOW_TREE, listen=PLACE, network=network, security=SECURITY),
        watching(PLACE, network) as watcher,
    ):
        for id in ("one", "other"):
            watcher.do("restart", "slow", id)
        await watcher.until(lambda: len(watcher.done) == 2)
        outcomes = sorted(each["outcome"] for each in watcher.done)
        assert outcomes == ["restarted", "restarted, by another operation meanwhile"]


@pytest.mark.parametrize("seed", range(3))
async def test_operations_on_what_is_being_stopped_are_all_answered(
    virtual_clock: MockClock, seed: int
) -> None:
    network, random = MemoryNetwork(), Random(seed)
    paths = ("slow", "shop", "shop/till", "shop/once", "many", "many/1", "pool", "pool/pool-1")
    async with (
        open_node(SLOW_TREE, listen=PLACE, network=network, security=SECURITY),
        watching(PLACE, network) as watcher,
    ):
        asked = 0
        for _ in range(30):
            for _ in range(random.randint(1, 4)):
                asked += 1
                what = random.choice(("restart", "restart", "stop", "hold", "release"))
                watcher.do(what, random.choice(paths), f"{asked}")
            await trio.sleep(random.choice((0, 0.5, 1, 3, 10)))
        await watcher.until(lambda: len(watcher.done) + len(watcher.errors) == asked)
        codes = {each["code"] for each in watcher.errors}
        assert codes <= {"GONE", "INVALID", "TEMPORARY", "FAILED", "NOT_OURS"}
        for path in ("slow", "shop"):  # they can still be operated
            assert await outcome(watcher, "stop", path) in ("stopped", "stopped already")
            assert await outcome(watcher, "restart", path) == "started"


async def test_what_is_raised_at_the_end_is_said(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("sore", Sore)])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY),
        watching(PLACE, network) as watcher,
    ):
        assert (await outcome(watcher, "restart", "sore")).startswith("restarted, and raised while it ended")
        assert (await outcome(watcher, "stop", "sore")).startswith("stopped, and raised while it ended")


async def test_a_held_agent_takes_messages_and_begins_none(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        echo = node.find(Echo, "echo")
        assert await outcome(watcher, "hold", "echo") == "held"
        assert await outcome(watcher, "hold", "echo") == "held already"
        await echo.tell(Echo.say, "a")
        await trio.sleep(5)
        watcher.look("agent", path="echo")
        await watcher.until(lambda: watcher.views.get("it"))
        assert watcher.views["it"]["held"] is True
        assert [each["place"] for each in watcher.views["it"]["mailbox"]["messages"]] == ["queued"]
        assert await outcome(watcher, "release", "echo") == "released"
        await watcher.until(lambda: watcher.views["it"]["fields"]["said"] == "1")
        assert watcher.views["it"]["held"] is False
        assert await outcome(watcher, "release", "echo") == "not held"


async def test_an_id_names_one_operation(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        async with watching(PLACE, network) as watcher:
            for _ in range(3):
                watcher.do("restart", "echo", "one")
            await watcher.until(lambda: watcher.done)
            watcher.do("restart", "echo", "one")
            await watcher.until(lambda: len(watcher.done) == 2)  # one for those three, and that of the fourth
            assert await outcome(watcher, "stop", "echo", "one") == "ID_TAKEN"
        async with watching(PLACE, network) as watcher:  # as after a connection that was lost
            assert await outcome(watcher, "restart", "echo", "one") == "restarted"
            assert await outcome(watcher, "stop", "echo", "two") == "stopped"
        assert node.root.which_children()[0].incarnation == 2


async def test_those_without_the_right_do_nothing_and_are_noted(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        async with watching(PLACE, network, as_viewer("bob")) as watcher:
            for what in ("restart", "stop", "hold", "release", "drain"):
                for path in ("echo", "shop", "", "none", "pool/pool-1"):
                    assert await outcome(watcher, what, path) == "FORBIDDEN"
            watcher.look("audit")
            await watcher.until(lambda: len(watcher.views.get("it", {}).get("order", ())) == 25)
            rows = watcher.views["it"]["rows"].values()
            assert {(row["who"], row["state"]) for row in rows} == {("bob", "refused")}
        assert node.statistics().restarts == 0


async def test_without_security_only_this_machine_may(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()  # whose peers are of no machine
    async with (
        open_node(TREE, listen=PLACE, network=network, page=True) as node,
        watching(PLACE, network, ()) as watcher,
    ):
        assert await outcome(watcher, "stop", "echo") == "FORBIDDEN"
        assert "--allow-operations" in watcher.errors[0]["message"]
        assert node.root.which_children()[0].status == "running"


WRONG = [
    ("restart", "", "INVALID"),
    ("stop", "", "INVALID"),
    ("hold", "", "INVALID"),
    ("hold", "shop", "INVALID"),
    ("release", "pool", "INVALID"),
    ("restart", "once", "TEMPORARY"),
    ("restart", "none", "GONE"),
    ("stop", "shop/none", "GONE"),
    ("hold", "echo/none", "GONE"),
    ("release", "<script>", "GONE"),
    ("restart", "echo/", "GONE"),
    ("restart", "/echo", "GONE"),
    ("restart", "shop//till", "GONE"),
    ("restart", "shop.till", "GONE"),
    ("restart", "ECHO", "GONE"),
    ("restart", "echo\x00", "GONE"),
    ("reboot", "echo", "UNKNOWN"),
    ("Restart", "echo", "UNKNOWN"),
    ("", "echo", "UNKNOWN"),
]


@pytest.mark.parametrize(("what", "path", "code"), WRONG)
async def test_what_cannot_be_done_is_said(virtual_clock: MockClock, what: str, path: str, code: str) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        assert await outcome(watcher, what, path) == code
        assert node.statistics().restarts == 0
        assert {child.status for child in node.root.which_children()} == {"running"}


async def test_what_is_gone_meanwhile(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        assert await outcome(watcher, "hold", "once") == "held"
        assert await outcome(watcher, "stop", "once") == "stopped"
        for what in ("release", "hold", "restart", "stop"):
            assert await outcome(watcher, what, "once") == "GONE"
        await node.start_child(ChildSpec("once", Echo))
        assert await outcome(watcher, "release", "once") == "not held"
        watcher.send(type="do", id="x" * 65, what="stop", path="echo")
        watcher.send(type="do", id="", what="stop", path="echo")
        watcher.send(type="do", what="stop", path="echo")
        errors = len(watcher.errors)
        await watcher.until(lambda: len(watcher.errors) == errors + 3)


async def test_a_stop_goes_on_when_its_viewer_leaves(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        echo = node.find(Echo, "echo")
        async with trio.open_nursery() as nursery:

            async def hang() -> None:
                with pytest.raises(Exception, match="stop"):
                    await echo.invoke(Echo.hang)

            nursery.start_soon(hang)
            await trio.sleep(1)
            async with watching(PLACE, network) as watcher:
                watcher.do("stop", "echo", "one")
                watcher.look("agent", path="echo")
                await watcher.until(lambda: watcher.views.get("it", {}).get("status") == "stopping")
        async with watching(PLACE, network) as watcher:
            assert await outcome(watcher, "stop", "echo", "one") == "stopped"
            watcher.look("audit")
            await watcher.until(lambda: watcher.views.get("it"))
            (row,) = watcher.views["it"]["rows"].values()
            assert (row["who"], row["what"], row["path"], row["state"]) == ("ann", "stop", "echo", "done")


async def test_the_node_is_drained(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node:
        async with watching(PLACE, network) as watcher:
            assert await outcome(watcher, "drain", "") == "draining"
        with pytest.raises(ConnectFailed):
            async with watching(PLACE, network):
                raise AssertionError
        assert await node.find(Echo, "echo").invoke(Echo.say, "near") == "near"


async def test_the_log_is_kept_in_the_store() -> None:
    network, store = MemoryNetwork(), MemoryStore()
    for life in (1, 2):
        async with (
            open_node(TREE, listen=PLACE, network=network, security=SECURITY, store=store),
            watching(PLACE, network) as watcher,
        ):
            assert await outcome(watcher, "restart", "echo") == "restarted"
            assert await outcome(watcher, "restart", "none") == "GONE"
            watcher.look("audit")
            kept = 2 * life
            await watcher.until(lambda kept=kept: len(watcher.views.get("it", {}).get("order", ())) == kept)
            rows = [watcher.views["it"]["rows"][key] for key in watcher.views["it"]["order"]]
            assert [row["state"] for row in rows] == ["failed", "done"] * life
            assert rows[0]["outcome"].startswith("GONE: ")
