"""Agents, views, stores and credentials that fail while somebody looks: node and other views go on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Secret, SupervisorSpec, action, open_node
from lmos_actors.persistence import MemoryStore, Put, SimulatedStore
from lmos_actors.security import Access, Bearer, Security
from lmos_actors.transport import MemoryNetwork
from tests.live.watching import SECURITY, watching
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from trio.testing import MockClock

PLACE = "ws://here"


class Rude(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not me")

    __repr__ = __str__


class Echo(Agent):
    """Says what it hears."""

    @action
    def say(self, text: str) -> str:
        return text


def sore(at_begin: list[Exception], at_end: list[Exception]) -> type[Agent]:
    """Return a class whose agents raise these, one by one, as they begin for the second time, and end."""
    lives = 0

    class Sore(Agent):
        password: Secret[str] = "hunter2"

        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            nonlocal lives
            lives += 1
            if lives > 1 and at_begin:
                raise at_begin.pop()
            yield
            if at_end:
                raise at_end.pop()

    return Sore


ERRORS = [
    Rude("x"),
    RuntimeError("\ud800 and \x00 and \u202e"),
    RuntimeError("x" * 10**6),
    ExceptionGroup("\ud800", [ValueError("\ud800")]),
    RuntimeError("no entry with hunter2"),
]
NAMES = ["cannot be shown", "no text", "long", "group", "secret"]


@pytest.mark.parametrize("error", ERRORS, ids=NAMES)
@pytest.mark.parametrize(("what", "begins"), [("stop", False), ("restart", False), ("restart", True)])
async def test_an_agent_that_raises_while_it_is_operated(
    virtual_clock: MockClock, what: str, begins: bool, error: Exception
) -> None:
    network = MemoryNetwork()
    made = sore([error], []) if begins else sore([], [error])
    tree = SupervisorSpec("root", [ChildSpec("sore", made), ChildSpec("one", Echo)])
    async with open_node(tree, listen=PLACE, network=network, security=SECURITY) as node:
        async with watching(PLACE, network) as watcher:
            watcher.look("audit")
            watcher.do(what, "sore")
            answer = await watcher.until(lambda: watcher.done or watcher.errors)
            await watcher.until(lambda: watcher.views.get("it", {}).get("order"))
            await trio.sleep(1)
            assert "hunter2" not in str(answer)
            assert "hunter2" not in str(watcher.views)
            assert len(str(answer)) < 3_000
            assert begins or f"raised while it ended: {type(error).__name__}" in str(answer)
            assert watcher.end is None
        assert await node.find(Echo, "one").invoke(Echo.say, "still here") == "still here"


@pytest.mark.parametrize(("store", "marks"), [(None, False), ("full", False), ("works", None)])
async def test_an_operation_that_no_store_has_is_marked_in_the_audit_log(
    virtual_clock: MockClock, store: str | None, marks: bool | None
) -> None:
    network, disk = MemoryNetwork(), simulated_disk(1, lambda: 0.1)
    kept = None if store is None else SimulatedStore(disk)
    tree = SupervisorSpec("root", [ChildSpec("one", Echo)])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY, store=kept),
        watching(PLACE, network) as watcher,
    ):
        disk.full = store == "full"
        watcher.look("audit")
        watcher.do("restart", "one")
        await watcher.until(lambda: watcher.done)
        await trio.sleep(5)
        disk.full = False
        (row,) = watcher.views["it"]["rows"].values()
        assert (row["state"], row.get("kept")) == ("done", marks)


class Desk(Agent):
    """Has the name of the agent that keeps approvals, and is none."""

    def started(self) -> None:
        self.nursery.start_soon(trio.sleep_forever, name="half a character: \ud800")

    def kept(self) -> list[Any]:
        found: list[Any] = KEPT[0]()
        return found


KEPT: list[Callable[[], Any]] = []


async def test_a_view_that_fails_is_closed_and_the_others_go_on(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    KEPT[:] = [lambda: 1 // 0, lambda: [object()], list]
    tree = SupervisorSpec("root", [ChildSpec("approvals", Desk)])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        watcher.look("tree", "t")
        for number, name in ((1, "ZeroDivisionError"), (2, "AttributeError")):
            watcher.look("approvals")
            await watcher.until(lambda number=number: len(watcher.errors) == number)
            assert watcher.errors[-1]["code"] == "FAILED"
            assert name in watcher.errors[-1]["message"]
            KEPT.pop(0)
        watcher.look("approvals")
        await watcher.until(lambda: watcher.views.get("it"))
        await node.start_child(ChildSpec("late", Echo))
        await watcher.until(lambda: "late" in watcher.views["t"]["rows"])
        watcher.look("agent", "a", path="approvals")
        view = await watcher.until(lambda: watcher.views.get("a"))
        assert [task["name"] for task in view["tasks"]] == ["half a character: ?"]
        assert watcher.end is None


async def test_a_store_with_damaged_entries_of_the_audit_log() -> None:
    network, store = MemoryNetwork(), MemoryStore()
    for life in (1, 2):
        async with (
            open_node(listen=PLACE, network=network, security=SECURITY, store=store) as node,
            watching(PLACE, network) as watcher,
        ):
            if life == 1:
                bad = (b"", b"nonsense", b"{}", b"\xff\xfe", b'{"key": 1}', b"[" * 5_000)
                keeping = node.root.rt.keeping
                assert keeping is not None
                for number, value in enumerate(bad):
                    keeping.writer.submit([Put("live-audit", str(number), value)])
            watcher.do("restart", "none")
            await watcher.until(lambda: watcher.errors)
            watcher.look("audit")
            kept = life
            await watcher.until(lambda kept=kept: len(watcher.views.get("it", {}).get("order", ())) == kept)


class Unreadable(MemoryStore):
    """Fails with an error that is none of a store's, where the audit log is read."""

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        if space == "live-audit":
            raise OSError("not today")
        return super().scan(space, start=start, stop=stop, limit=limit)


async def test_a_store_in_which_the_audit_log_cannot_be_read() -> None:
    network = MemoryNetwork()
    async with open_node(
        SupervisorSpec("root", [ChildSpec("one", Echo)]),
        listen=PLACE, network=network, security=SECURITY, store=Unreadable(),
    ) as node:  # fmt: skip
        async with watching(PLACE, network) as watcher:
            watcher.do("restart", "one")
            await watcher.until(lambda: watcher.done)
            watcher.look("audit")
            await watcher.until(lambda: watcher.views.get("it", {}).get("order"))
        assert await node.find(Echo, "one").invoke(Echo.say, "still here") == "still here"


@pytest.mark.parametrize("view", ["tree", ""])
@pytest.mark.parametrize("takes", [True, False])
async def test_a_viewer_whose_credentials_end_is_let_go_whatever_it_does(
    virtual_clock: MockClock, tmp_path: Path, view: str, takes: bool
) -> None:
    network, key = MemoryNetwork(), tmp_path / "key"
    key.write_text("one")
    key.chmod(0o600)
    security = Security(schemes=(Bearer({"ann": f"file:{key}"}),), access={"*": Access(inspect=("ann",))})
    headers = ((b"authorization", b"Bearer one"),)
    async with (
        open_node(listen=PLACE, network=network, security=security) as node,
        watching(PLACE, network, headers) as watcher,
    ):
        watcher.takes = takes
        if view:
            watcher.look(view)
            await watcher.until(lambda: watcher.views)
        key.write_text("another")
        await trio.sleep(2)
        await node.start_child(ChildSpec("late", Echo))
        await watcher.until(lambda: watcher.end)
        assert watcher.end.code == 1008
        assert "late" not in str(watcher.views)
