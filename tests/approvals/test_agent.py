"""What agents ask people: kept, answered once, refused by the deadline, found again after a crash."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    ConfigError,
    Node,
    Ref,
    SupervisorSpec,
    action,
    open_node,
    simulate,
)
from lmos_actors.approvals import Approval, ApprovalOptions, Approvals
from lmos_actors.errors import AgentDied, StoreFailed
from lmos_actors.persistence import MemoryStore, SimulatedStore, SqliteStore
from tests.redis_server import RedisServer, needs_redis
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from lmos_actors.persistence import Batch, Conflict, Durability, Store


class Desk(Agent):
    """Pays money back, once a person agrees."""

    @action(concurrency=99)
    async def refund(self, euros: int, order: str = "o-1", seconds: float = 3600.0) -> bool:
        return await self.approve(f"Refund {euros} €", {"order": order}, key=order, expires=seconds)

    @action
    async def approve_itself(self) -> str:
        approvals = self.find(Approvals)
        waiting = await approvals.invoke(Approvals.entries)
        assert waiting == []
        try:
            await approvals.invoke(Approvals.accept, "any")
        except ActionFailed as error:
            return error.code or ""
        return "approved"

    @action
    def refund_in_a_turn(self) -> None:
        self.approve("Refund", key="x")  # type: ignore[unused-coroutine]

    @action
    def fall(self) -> None:
        raise KeyError("a bug")


class Eager(Agent):
    """Asks before it has started."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await self.approve("Start?", key="start")
        yield


def in_a_world(body: Callable[[], Awaitable[Any]]) -> Any:
    return simulate(body, seed=1)


async def waiting(node: Node, number: int = 1) -> list[Approval]:
    """Wait until so many approvals wait for an answer in this world."""
    approvals: Ref[Approvals] = node.find(Approvals)
    await approvals.ready()
    async with approvals.observe(Approvals.waiting) as numbers:
        async for each in numbers:
            if each >= number:
                return await approvals.invoke(Approvals.entries)
    raise AssertionError("the node has ended")


def begun(nursery: trio.Nursery, desk: Ref[Desk], euros: int) -> trio.MemoryReceiveChannel[bool]:
    """Ask for a refund in the background; the answer comes out of the channel."""
    send, receive = trio.open_memory_channel[bool](1)

    async def ask() -> None:
        send.send_nowait(await desk.invoke(Desk.refund, euros))

    nursery.start_soon(ask)
    return receive


async def decided(node: Node) -> list[Approval]:
    return await node.find(Approvals).invoke(Approvals.entries, "decided")


@pytest.mark.parametrize("approved", [True, False])
def test_a_person_decides_and_that_is_kept(approved: bool) -> None:
    async def world() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            desk = await node.start(Desk)
            answer = begun(nursery, desk, 120)
            (found,) = await waiting(node)
            assert (found.agent, found.text, found.data) == ("desk", "Refund 120 €", {"order": "o-1"})
            assert (found.key, found.state, found.awaited) == ("o-1", "waiting", True)
            assert found.expires - found.asked == 3600
            verb = Approvals.accept if approved else Approvals.refuse
            await node.find(Approvals).invoke(verb, found.id, "as agreed")
            assert await answer.receive() is approved
            (kept,) = await decided(node)
            assert (kept.state, kept.note) == ("approved" if approved else "refused", "as agreed")
            assert kept.decided is not None
            assert kept.decided >= kept.asked
            begun(nursery, desk, 120)  # asked again, it is a new question
            (again,) = await waiting(node)
            assert (again.earlier, again.handed, kept.earlier) == (int(approved), "", 0)
            await node.find(Approvals).invoke(Approvals.refuse, again.id)

    in_a_world(world)


def test_the_deadline_decides_no_and_a_late_answer_is_refused() -> None:
    async def world() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            began = trio.current_time()
            assert not await desk.invoke(Desk.refund, 5, "o-1", 60.0)
            assert 60 <= trio.current_time() - began < 61
            (kept,) = await decided(node)
            assert (kept.state, kept.by) == ("expired", None)
            with pytest.raises(ActionFailed, match="deadline"):
                await node.find(Approvals).invoke(Approvals.accept, kept.id)
            assert not await desk.invoke(Desk.refund, 5, "o-1", 60.0)

    in_a_world(world)


def test_the_first_of_two_answers_counts() -> None:
    async def world() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            desk = await node.start(Desk)
            begun(nursery, desk, 5)
            (found,) = await waiting(node)
            approvals = node.find(Approvals)
            outcomes: list[str] = []

            async def answer(verb: Any) -> None:
                try:
                    outcomes.append((await approvals.invoke(verb, found.id)).state)
                except ActionFailed as error:
                    outcomes.append(error.code or "")

            async with trio.open_nursery() as both:
                both.start_soon(answer, Approvals.accept)
                both.start_soon(answer, Approvals.refuse)
            first = (await decided(node))[0].state
            assert sorted(outcomes) == sorted([first, "DECIDED"])
            with pytest.raises(ActionFailed, match=f"somebody has {first} it already"):
                await approvals.invoke(Approvals.refuse, found.id)
            with pytest.raises(ActionFailed, match="no approval 'what'"):
                await approvals.invoke(Approvals.accept, "what")

    in_a_world(world)


def test_a_desk_that_crashed_finds_its_question_and_the_answer() -> None:
    async def world() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            desk = await node.start(Desk)

            async def ask() -> None:
                with pytest.raises(AgentDied):
                    await desk.invoke(Desk.refund, 5)

            nursery.start_soon(ask)
            (before,) = await waiting(node)
            with pytest.raises(AgentDied):
                await desk.invoke(Desk.fall)
            await desk.ready()
            (left,) = await waiting(node)
            assert (left.id, left.awaited, left.state) == (before.id, False, "waiting")
            await node.find(Approvals).invoke(Approvals.accept, left.id)
            assert await desk.invoke(Desk.refund, 5)
            assert [each.id for each in await decided(node)] == [before.id]

    in_a_world(world)


def test_the_agent_approvals_may_crash_while_questions_wait() -> None:
    async def world() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            desk = await node.start(Desk)
            answer = begun(nursery, desk, 5)
            (before,) = await waiting(node)
            await node.root.terminate_child("approvals")
            await node.root.restart_child("approvals")
            (after,) = await waiting(node)
            assert after.id == before.id
            await node.find(Approvals).invoke(Approvals.accept, before.id)
            assert await answer.receive()

    in_a_world(world)


@asynccontextmanager
async def store_of(kind: str, folder: Path) -> AsyncGenerator[Store | str]:
    if kind != "redis":
        yield MemoryStore() if kind == "memory" else SqliteStore(folder / "desk.db")
        return
    with TemporaryDirectory(prefix="redis") as short:  # names of sockets are short
        server = RedisServer(Path(short))
        try:
            yield server.url(writers="one")
        finally:
            server.kill()


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("redis", marks=needs_redis)])
async def test_a_store_keeps_them_over_the_end_of_the_node(kind: str, tmp_path: Path) -> None:
    async with store_of(kind, tmp_path) as store:
        await keep_over_the_end(store)


async def keep_over_the_end(store: Store | str) -> None:
    tree = SupervisorSpec("root", [ChildSpec("desk", Desk, shutdown="brutal")])
    async with open_node(tree, store=store) as node, trio.open_nursery() as nursery:
        desk = node.find(Desk)

        async def ask() -> None:
            with pytest.raises(AgentDied):
                await desk.invoke(Desk.refund, 7, "o-7")

        nursery.start_soon(ask)
        await node.find(Approvals).ready()
        (before,) = await waiting(node)
        await node.root.terminate_child("desk")
    async with open_node(SupervisorSpec("root", []), store=store, approvals=True) as node:
        (gone,) = await waiting(node)
        assert (gone.id, gone.state) == (before.id, "gone")
        with pytest.raises(ActionFailed, match="no agent is at 'desk'") as refused:
            await node.find(Approvals).invoke(Approvals.accept, gone.id)
        assert refused.value.code == "GONE"
    async with open_node(tree, store=store, approvals=True) as node:
        (found,) = await waiting(node)
        assert (found.id, found.state, found.awaited) == (before.id, "waiting", False)
        await node.find(Approvals).invoke(Approvals.accept, found.id, "yes")
    async with open_node(tree, store=store) as node:
        assert await node.find(Desk).invoke(Desk.refund, 7, "o-7")
        (kept,) = await decided(node)
        assert (kept.state, kept.note) == ("approved", "yes")


class Failing(MemoryStore):
    """A store that fails on demand."""

    fails = False

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        if self.fails:
            raise StoreFailed(self.name, "it is full", "make room")
        return super().commit(batches, durability)


def test_while_the_store_fails_questions_wait_and_nothing_is_decided() -> None:
    async def world() -> None:
        store = Failing()
        async with open_node(store=store, approvals=True) as node, trio.open_nursery() as nursery:
            desk, approvals = await node.start(Desk), node.find(Approvals)
            store.fails = True
            answer = begun(nursery, desk, 5)
            await trio.sleep(20)
            assert await approvals.invoke(Approvals.entries) == []
            store.fails = False
            (found,) = await waiting(node)
            store.fails = True
            with pytest.raises(ActionFailed) as refused:
                await approvals.invoke(Approvals.accept, found.id)
            assert refused.value.code == "STORE_FAILED"
            assert [each.state for each in await approvals.invoke(Approvals.entries)] == ["waiting"]
            store.fails = False
            await trio.sleep(20)
            await approvals.invoke(Approvals.refuse, found.id)
            assert not await answer.receive()
            assert node.crash_reports == ()

    in_a_world(world)


def test_nobody_is_shown_a_question_before_it_is_kept() -> None:
    """A crash would take it back, and it would be asked again under another id."""

    async def world() -> None:
        disk = simulated_disk(1, lambda: 5.0)
        async with (
            open_node(store=SimulatedStore(disk), approvals=True) as node,
            trio.open_nursery() as nursery,
        ):
            desk, approvals = await node.start(Desk), node.find(Approvals)
            await approvals.ready()
            begun(nursery, desk, 5)
            await trio.sleep(1)
            assert await approvals.invoke(Approvals.entries, "all") == []
            assert await approvals.read(Approvals.waiting) == 0
            await trio.sleep(30)
            (found,) = await approvals.invoke(Approvals.entries)
            assert await approvals.read(Approvals.waiting) == 1
            await approvals.invoke(Approvals.refuse, found.id)

    in_a_world(world)


def test_a_store_that_nodes_share_is_an_error_that_names_the_fix() -> None:
    async def world() -> None:
        async with open_node(store=MemoryStore(shared=True)) as node:
            desk = await node.start(Desk)
            with pytest.raises(AgentDied):
                await desk.invoke(Desk.refund, 5)
            error = node.crash_reports[-1].error
            assert isinstance(error, ConfigError)
            assert "writers=one" in str(error)

    in_a_world(world)


def test_a_key_stands_for_one_question() -> None:
    async def world() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            desk = await node.start(Desk)
            begun(nursery, desk, 5)
            (found,) = await waiting(node)
            await node.find(Approvals).invoke(Approvals.accept, found.id)
            begun(nursery, desk, 5)
            (found,) = await waiting(node)
            with pytest.raises(ActionFailed, match="something else: Refund 5 €") as refused:
                await desk.invoke(Desk.refund, 5000)
            assert refused.value.code == "QUESTION_CHANGED"
            assert node.crash_reports == ()
            await node.find(Approvals).invoke(Approvals.refuse, found.id)

    in_a_world(world)


def test_how_many_questions_and_decisions_there_are_is_an_option() -> None:
    async def world() -> None:
        limits = ApprovalOptions(waiting=2, decided=2, data_bytes=100)
        async with open_node(approvals=limits) as node, trio.open_nursery() as nursery:
            desk, approvals = await node.start(Desk), node.find(Approvals)
            for order in ("o-1", "o-2"):
                nursery.start_soon(desk.invoke, Desk.refund, 5, order)
            found = await waiting(node, 2)
            with pytest.raises(ActionFailed, match="2 approvals wait already"):
                await desk.invoke(Desk.refund, 5, "o-3")
            with pytest.raises(ActionFailed, match="at most 100 bytes"):
                await desk.invoke(Desk.refund, 5, "o" * 60)
            for each in found:
                await approvals.invoke(Approvals.accept, each.id)
            nursery.start_soon(desk.invoke, Desk.refund, 5, "o-4")
            (last,) = await waiting(node)
            assert len(await decided(node)) == 1
            await approvals.invoke(Approvals.accept, last.id)

    in_a_world(world)


def test_no_agent_approves_what_it_wants() -> None:
    async def world() -> None:
        async with open_node(approvals=True) as node, trio.open_nursery() as nursery:
            desk, other = await node.start(Desk), await node.start(Desk)
            begun(nursery, desk, 5)
            (found,) = await waiting(node)
            assert await other.invoke(Desk.approve_itself) == "UNKNOWN"
            await node.find(Approvals).invoke(Approvals.refuse, found.id)

    in_a_world(world)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"text": ""}, "a text has 1 to 4000 characters, not 0"),
        ({"text": "\ud800"}, "what JSON cannot have"),
        ({"text": 7}, "a str as text"),
        ({"key": "k" * 201}, "a key has 1 to 200 characters, not 201"),
        ({"key": "a\0b"}, "no NUL"),
        ({"expires": 0}, "seconds above 0"),
        ({"expires": float("inf")}, "seconds above 0"),
        ({"data": "x" * 70_000}, "at most 65536 bytes"),
        ({"data": "\ud800"}, "what JSON cannot have"),
    ],
)
def test_bad_questions_are_errors(given: dict[str, Any], named: str) -> None:
    class Asker(Agent):
        @action
        async def ask(self) -> str:
            asked: dict[str, Any] = {"text": "Refund?", "data": None, "key": "k", "expires": 9.0, **given}
            try:
                await self.approve(asked["text"], asked["data"], key=asked["key"], expires=asked["expires"])
            except (ActionFailed, TypeError, ValueError) as error:
                return str(error)
            return ""

    async def world() -> None:
        async with open_node() as node:
            asker = await node.start(Asker)
            assert named in await asker.invoke(Asker.ask)

    in_a_world(world)


def test_where_it_cannot_be_asked() -> None:
    async def world() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            with pytest.raises(AgentDied, match="make the handler async def"):
                await desk.invoke(Desk.refund_in_a_turn)
            with pytest.raises(Exception, match="holds up the start"):
                await node.start(Eager)
        async with open_node(SupervisorSpec("root", [ChildSpec("approvals", Desk)])) as node:
            desk = node.find(Desk)
            with pytest.raises(AgentDied):
                await desk.invoke(Desk.refund, 1)
            assert isinstance(node.crash_reports[-1].error, ConfigError)

    in_a_world(world)
