"""Pools that change: resized, crashing, giving up, stopped; what they count and who hears them meanwhile."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    AgentUnavailable,
    ChildSpec,
    MailboxOptions,
    NotFound,
    Pool,
    PoolRef,
    Ref,
    StartFailed,
    SupervisorSpec,
)
from lmos_actors.errors import StopFailed, WrongState
from lmos_actors.testing import open_test_node, settle
from lmos_actors.types import Occurrence

from .test_pool_link import Listener, Sender, Worker, adds_up, asked, crash, slow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Living(Worker):
    """Has a lifespan; `trouble` holds the paths that cannot start, or cannot end well."""

    trouble: Any
    entering: float = 0.0

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        await trio.sleep(self.entering)
        if f"start {self.path}" in self.trouble:
            raise OSError("no room")
        yield
        if f"end {self.path}" in self.trouble:
            raise OSError("lost")


def paths(pool: PoolRef[Any]) -> list[str]:
    return [ref.path.rpartition("-")[2] for ref in pool.members]


# ---- growing and shrinking


async def test_a_pool_grows(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 1))
        await pool.resize(3)
        assert (pool.size, paths(pool)) == (3, ["1", "2", "3"])
        assert await asked(pool, 4) == "1231"
        await pool.resize(3)
        assert node.root.supervisor("worker").count_children().specs == 3


async def test_new_members_get_messages_once_all_have_started(virtual_clock: object) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(partial(Living, trouble=(), entering=1), 1))
        nursery.start_soon(pool.resize, 3)
        await trio.sleep(1.5)
        assert await asked(pool, 3) == "111"
        await trio.sleep(1)
        assert await asked(pool, 3) == "231"


async def test_who_leaves_handles_what_it_has_and_gets_nothing_new(virtual_clock: object) -> None:
    answers: list[str] = []
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Worker, 3))
        leaving = pool.members[2]

        async def ask(ref: Ref[Worker], seconds: float) -> None:
            answers.append(await ref.invoke(Worker.wait, seconds))

        for seconds in (1, 2, 3):
            nursery.start_soon(ask, leaving, seconds)
        await settle()
        nursery.start_soon(pool.resize, 2)
        await settle()
        assert (pool.size, paths(pool)) == (2, ["1", "2"])
        assert await asked(pool, 4) == "1212"
        assert (pool.statistics().running, adds_up(pool)) == (3, True)
        with pytest.raises(AgentUnavailable, match="stopping"):
            await leaving.invoke(Worker.where)
        await trio.sleep(3.1)
        assert answers == ["3", "3", "3"]
        with pytest.raises(NotFound):
            await leaving.invoke(Worker.where)
        assert node.tree().count("worker-") == 2
        assert (pool.statistics().accepted, pool.statistics().handled, adds_up(pool)) == (7, 7, True)


async def test_who_does_not_end_within_its_shutdown_is_cancelled(virtual_clock: object) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Worker, 2, shutdown=2))
        for _ in range(2):
            pool.tell_nowait(Worker.wait, 9)
        await settle()
        began = trio.current_time()
        await pool.resize(1)
        assert trio.current_time() - began == 2
        assert (pool.statistics().cancelled, pool.statistics().running, adds_up(pool)) == (1, 1, True)
        nursery.cancel_scope.cancel()


async def test_resizes_are_carried_out_one_after_another(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 4))
        for _ in range(4):
            await pool.tell(Worker.wait, 2)
        await settle()
        async with trio.open_nursery() as nursery:
            for size in (1, 6, 2, 5):
                nursery.start_soon(pool.resize, size)
                await settle()
        assert paths(pool) == ["1", "2", "3", "4", "5"]
        assert (pool.statistics().handled, adds_up(pool)) == (4, True)


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
async def test_a_size_that_is_none_is_refused(size: Any, virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 2))
        with pytest.raises(ValueError, match="at least 1"):
            await pool.resize(size)
        sender = await node.start(Sender, pool=pool)
        assert await sender.invoke(Sender.misuse) == "refused"


async def test_a_pool_that_cannot_grow_is_as_it_was(virtual_clock: object) -> None:
    trouble = {"start worker/worker-4"}
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(partial(Living, trouble=trouble), 2, name="worker"))
        with pytest.raises(StartFailed, match="worker-4 could not start: no room"):
            await pool.resize(5)
        assert (pool.size, node.tree().count("worker-")) == (2, 2)
        trouble.clear()
        await pool.resize(5)
        assert await asked(pool, 5) == "12345"


async def test_what_is_raised_while_leaving_arrives(virtual_clock: object) -> None:
    trouble = {"end worker/worker-2", "end worker/worker-3"}
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(partial(Living, trouble=trouble), 3, name="worker"))
        with pytest.raises(StopFailed) as caught:
            await pool.resize(1)
        assert isinstance(caught.value.__cause__, BaseExceptionGroup)
        assert (pool.size, node.tree().count("worker-")) == (1, 1)
        await pool.resize(2)
        with pytest.raises(StopFailed, match="worker-2") as caught:
            await pool.resize(1)
        assert str(caught.value.__cause__) == "lost"


async def test_nobody_waits_for_a_resize_and_it_is_done(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 3))
        for _ in range(3):
            pool.tell_nowait(Worker.wait, 3)
        await settle()
        with trio.move_on_after(1):
            await pool.resize(1)
        assert (pool.size, node.tree().count("worker-")) == (1, 3)
        began = trio.current_time()
        await pool.resize(2)  # which needs the name of one who is still leaving
        assert trio.current_time() - began == 2
        assert (await asked(pool, 2), pool.statistics().handled) == ("12", 5)


async def test_a_resize_counts_who_is_there_when_its_turn_has_come(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(partial(Living, trouble=(), entering=1), 2))
        with trio.move_on_after(0.5):
            await pool.resize(4)
        await pool.resize(4)
        assert paths(pool) == ["1", "2", "3", "4"]


async def test_who_is_down_leaves_and_is_not_started_again(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(slow())
        await crash(pool.members[2])
        await settle()
        await pool.resize(2)
        await trio.sleep(11)
        assert "worker-3" not in node.tree()
        await crash(pool.members[1])
        await pool.resize(1)  # its exit is on its way
        await trio.sleep(11)
        assert node.tree().count("worker-") == 1
        assert (pool.statistics().restarts, pool.statistics().handled) == (0, 2)


async def test_a_member_that_crashes_while_it_leaves_is_not_started_again(virtual_clock: object) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Worker, 2))
        leaving = pool.members[1]
        leaving.tell_nowait(Worker.wait, 3)
        await settle()
        leaving.tell_nowait(Worker.crash)
        nursery.start_soon(pool.resize, 1)
        await trio.sleep(1)
        assert node.tree().count("worker-") == 1
        statistics = pool.statistics()
        assert (statistics.dead_lettered, statistics.handled, adds_up(pool)) == (1, 1, True)


# ---- the pool itself ends


async def test_a_pool_that_gives_up_is_started_again_with_its_size(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 2, max_restarts=0))
        await pool.resize(3)
        refs = pool.members
        await crash(refs[0])
        await settle()
        assert (pool.members, await asked(pool, 3)) == (refs, "123")
        assert node.root.supervisor("worker").incarnation == 2
        assert (pool.statistics().restarts, adds_up(pool)) == (3, True)
        desk = await node.start_supervisor(SupervisorSpec("desk", [Pool(Worker, 1)], max_restarts=9))
        below = desk.pool("worker")
        await below.resize(2)
        for _ in range(4):  # the desk itself stays
            await crash(below.members[0])
            await settle()
        assert (await asked(below, 2), below.size) == ("12", 2)


async def test_a_member_that_was_deleted_by_hand_is_made_again_with_the_pool(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 3, max_restarts=0))
        supervisor = node.root.supervisor("worker")
        assert await asked(pool, 3) == "123"
        await supervisor.terminate_child("worker-2")
        assert await asked(pool, 2) == "13"
        await supervisor.delete_child("worker-2")
        assert await asked(pool, 2) == "13"
        await crash(pool.members[0])
        await settle()
        assert (await asked(pool, 3), pool.statistics().handled, adds_up(pool)) == ("123", 11, True)


async def test_a_tree_that_is_started_again_keeps_its_pools(virtual_clock: object) -> None:
    desk = SupervisorSpec("desk", [ChildSpec("first", Worker), Pool(Worker, 2)], max_restarts=0)
    async with open_test_node(SupervisorSpec("root", [desk])) as node:
        pool = node.root.supervisor("desk").pool("worker")
        await pool.resize(3)
        async with pool.subscribe(Worker.said) as said:
            await crash(node.find(Worker, "first"))
            await settle()
            assert node.root.supervisor("desk").pool("worker") == pool
            assert await asked(pool, 3) == "123"
            assert [said.receive_nowait() for _ in range(3)] == ["nobody"] * 3


async def test_a_pool_that_was_stopped_is_started_again(virtual_clock: object) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Worker, 2))
        await pool.resize(3)
        await node.root.terminate_child("worker")
        with pytest.raises(AgentUnavailable, match="none of its 3 members"):
            await pool.invoke(Worker.where)
        nursery.start_soon(pool.ready)
        await settle()
        await node.root.restart_child("worker")
        assert sorted(await asked(pool, 3)) == ["1", "2", "3"]


async def test_one_who_leaves_while_the_pool_ends_delays_nobody(virtual_clock: object) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Worker, 2, shutdown="infinity", max_restarts=0))
        pool.members[1].tell_nowait(Worker.wait, 9)
        await settle()
        nursery.start_soon(pool.resize, 1)
        await settle()
        await crash(pool.members[0])  # the pool gives up, and waits for the one who leaves
        await trio.sleep(9.1)
        assert await asked(pool, 2) == "11"
        assert (node.tree().count("worker-"), pool.statistics().handled, adds_up(pool)) == (1, 4, True)


async def test_a_pool_that_is_gone(virtual_clock: object) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        pool = await node.start_pool(Pool(Worker, 2))
        found = node.find(Worker, "worker")
        assert await asked(found, 1) == "1"
        async with pool.subscribe(Worker.said) as said, pool.monitor() as downs:
            await node.root.terminate_child("worker")
            assert pool.statistics().state == "down"
            with pytest.raises(WrongState):
                await pool.resize(3)
            with pytest.raises(WrongState):
                await pool.resize(1)
            nursery.start_soon(not_found, pool.ready)
            await settle()
            await node.root.delete_child("worker")
            assert [down.agent async for down in downs] == ["worker/worker-2", "worker/worker-1"]
            assert [value async for value in said] == []
        for verb in (pool.ready, found.ready, partial(pool.invoke, Worker.where)):
            await not_found(verb)
        for listening in (pool.subscribe(Worker.said), pool.monitor()):
            with pytest.raises(NotFound):
                async with listening:
                    pass
        assert (pool.statistics().state, pool.statistics().accepted) == ("gone", 1)
        again = await node.start_pool(Pool(Worker, 1))
        assert again != pool
        assert again.path == "worker"


async def not_found(verb: Any) -> None:
    with pytest.raises(NotFound, match="no agent 'worker"):
        await verb()


async def test_a_node_ends_with_a_pool_at_work(virtual_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        async with open_test_node() as node:
            pool = await node.start_pool(Pool(Worker, 3))
            for _ in range(3):
                pool.tell_nowait(Worker.wait, 3)
            await settle()
            nursery.start_soon(pool.resize, 1)
            await settle()
        assert (pool.statistics().handled, pool.statistics().state) == (3, "gone")


# ---- counting and listening


async def test_counts_are_those_of_all_members_ever(virtual_clock: object) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 3, mailbox=MailboxOptions(2, "reject")))
        await asked(pool, 5)
        await crash(pool.members[1])
        await settle()
        await pool.resize(1)
        await pool.resize(2)
        statistics = pool.statistics()
        assert (statistics.accepted, statistics.handled, statistics.restarts) == (6, 6, 1)
        assert (statistics.incarnation, statistics.state) == (5, "running")
        for _ in range(2):
            pool.members[1].tell_nowait(Worker.where)
        mailboxes = pool.mailbox_statistics()
        assert (mailboxes.depth, mailboxes.size, mailboxes.when_full, mailboxes.parked) == (2, 4, "reject", 0)
        assert node.statistics().supervisors == 2
        assert node.statistics().agents == 2


async def test_a_pool_is_followed_from_its_start_on(virtual_clock: object) -> None:
    heard: list[str] = []
    async with open_test_node() as node:
        await node.start(Listener, pool=node.find(Worker, "worker"), heard=heard)
        pool = await node.start_pool(Pool(Worker, 2))
        for name in ("a", "b", "c"):
            await pool.invoke(Worker.where, name)
        await settle()
        assert heard == ["a", "b", "c"]


async def test_everybody_is_heard_who_is_or_becomes_a_member(virtual_clock: object) -> None:
    heard: list[str] = []
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 2))
        await node.start(Listener, pool=pool, heard=heard)
        refs = pool.members
        async with (
            pool.subscribe(Worker.said) as said,
            pool.subscribe_all() as everything,
            pool.monitor() as downs,
        ):
            await crash(refs[1])
            await settle()
            await pool.resize(3)
            for name in ("a", "b", "c"):
                await pool.invoke(Worker.where, name)
            await pool.resize(1)
            await refs[0].invoke(Worker.where, "d")
            await settle()
            assert [said.receive_nowait() for _ in range(4)] == list("abcd")
            assert [everything.receive_nowait() for _ in range(4)][3] == Occurrence("said", "d")
            reasons = [(down.agent[-1], down.reason.kind) for down in (await downs.receive(),) * 1]
            reasons += [(down.agent[-1], down.reason.kind) for down in [await downs.receive() for _ in "12"]]
            assert reasons == [("2", "error"), ("3", "shutdown"), ("2", "shutdown")]
            with pytest.raises(trio.WouldBlock):
                said.receive_nowait()
        assert heard == list("abcd")


async def test_members_come_and_go_by_resize_alone(virtual_clock) -> None:
    async with open_test_node() as node:
        pool = await node.start_pool(Pool(Worker, 2, name="crew"))
        crew = node.root.supervisor("crew")
        for change in (
            crew.start_child(ChildSpec("one", Worker)),
            crew.start_many(ChildSpec("many", Worker), 2),
            crew.start_supervisor(SupervisorSpec("below")),
            crew.start_pool(Pool(Worker, 2)),
        ):
            with pytest.raises(WrongState, match="its members come and go by resize"):
                await change
        assert pool.size == 2
        await crew.terminate_child("crew-1")  # a member may be stopped for a while, and started again
        await crew.restart_child("crew-1")
        assert pool.size == 2
