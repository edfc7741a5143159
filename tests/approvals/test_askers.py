"""Consents are spent by the act: an answer is handed to one run, which is kept before the run acts."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Ref, SupervisorSpec, action, open_node, simulate
from lmos_actors.approvals import Approval, Approvals
from lmos_actors.errors import AgentDied, AgentUnavailable, LmosActorsError, StoreFailed
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.persistence import MemoryStore
from lmos_actors.testing import answer_approval
from tests.facades.lives import Mortal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from lmos_actors import Node
    from lmos_actors.persistence import Batch, Conflict, Durability

ACTS: list[str] = []
"""What has been paid."""


class Desk(Agent, durable=True):
    """Pays, once a person agrees."""

    @action(concurrency=99, snapshot_safe=True)
    async def pay(
        self, order: str, euros: int = 5, seconds: float = 0.0, reuse: bool = False, new: bool = False
    ) -> str:
        """Pay, which takes some time."""
        reworded: Any = "new" if new else "fail"
        if not await self.approve(f"Pay {euros} for {order}?", key=order, reuse=reuse, reworded=reworded):
            return "refused"
        await trio.sleep(seconds)
        ACTS.append(order)
        return "paid"

    @action(concurrency=9, snapshot_safe=True)
    async def twice(self, order: str) -> list[bool]:
        """Ask twice in one run."""
        return [await self.approve("Again?", key=order) for _ in range(2)]

    @action(concurrency=9, snapshot_safe=True)
    async def use(self, what: str) -> bool:
        """Ask whether what is there now may be used, for all."""
        return await self.approve("Use it?", what, key="use", reuse=True, reworded="new")

    @action
    def begin(self, order: str) -> None:
        """Pay in a task of its own."""
        self.nursery.start_soon(self.pay, order)

    @action
    def fall(self) -> None:
        """Crash."""
        raise KeyError("a bug")


TREE = SupervisorSpec("root", [ChildSpec("desk", Desk, shutdown="brutal")], max_restarts=1000)


def in_a_world(body: Callable[[Node, Ref[Desk], trio.Nursery], Awaitable[None]]) -> None:
    async def world() -> None:
        ACTS.clear()
        async with (
            open_node(TREE, store=MemoryStore(), approvals=True) as node,
            trio.open_nursery() as nursery,
        ):
            desk = node.find(Desk)
            await desk.ready()
            await body(node, desk, nursery)
            nursery.cancel_scope.cancel()

    simulate(world, seed=3)


async def asked(node: Node) -> list[Approval]:
    """Return what waits once nothing happens any more."""
    await trio.sleep(1)
    return await node.find(Approvals).invoke(Approvals.entries)


def test_equal_calls_are_asked_one_after_the_other() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        for _ in range(2):
            nursery.start_soon(desk.invoke, Desk.pay, "o", 5, 60.0)
        await answer_approval(node, True)
        assert await asked(node) == []  # the one that was approved is about to act
        await trio.sleep(57)
        assert (await asked(node), ACTS) == ([], [])
        second = await answer_approval(node, True)
        assert (second.earlier, ACTS) == (1, ["o"])
        await trio.sleep(61)
        nursery.start_soon(desk.invoke, Desk.pay, "o", 7)  # other words are free behind them
        (third,) = await asked(node)
        assert (third.text, third.earlier, ACTS) == ("Pay 7 for o?", 2, ["o", "o"])

    in_a_world(body)


def test_each_consent_to_equal_calls_is_kept_whichever_of_them_has_the_first() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        for _ in range(5):
            nursery.start_soon(desk.invoke, Desk.pay, "o")
        told = [await answer_approval(node, True) for _ in range(5)]
        kept = await node.find(Approvals).invoke(Approvals.entries, "decided")
        assert [each.id for each in kept] == [each.id for each in told]
        assert [each.earlier for each in kept] == [0, 1, 2, 3, 4]
        assert (len({each.id for each in kept}), await asked(node), len(ACTS)) == (5, [], 5)

    in_a_world(body)


def test_a_refusal_is_for_one_run_too_and_is_no_consent() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        for _ in range(2):
            nursery.start_soon(desk.invoke, Desk.pay, "o")
        await answer_approval(node, False)
        (second,) = await asked(node)
        assert (second.earlier, ACTS) == (0, [])

    in_a_world(body)


def test_one_run_gets_its_answer_each_time() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        nursery.start_soon(answer_approval, node, True)
        assert await desk.invoke(Desk.twice, "o") == [True, True]

    in_a_world(body)


def test_an_answer_waits_for_the_next_run_where_none_is_there() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        with trio.move_on_after(5):
            await desk.invoke(Desk.pay, "o")
        (left,) = await asked(node)
        decided = await node.find(Approvals).invoke(Approvals.accept, left.id)
        assert (left.awaited, decided.awaited, decided.handed) == (False, False, "")
        assert await desk.invoke(Desk.pay, "o") == "paid"
        (handed,) = await node.find(Approvals).invoke(Approvals.entries, "decided")
        assert handed.handed

    in_a_world(body)


def test_who_decides_is_told_that_a_run_waits() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        nursery.start_soon(desk.invoke, Desk.pay, "o")
        assert (await answer_approval(node, True)).awaited

    in_a_world(body)


def test_a_task_of_an_agents_own_holds_its_answer_until_its_end() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        for _ in range(2):
            await desk.invoke(Desk.begin, "o")
        await answer_approval(node, True)
        (second,) = await asked(node)
        assert (second.earlier, ACTS) == (1, ["o"])

    in_a_world(body)


def test_a_shared_answer_is_for_all() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        for _ in range(2):
            nursery.start_soon(desk.invoke, Desk.pay, "o", 5, 0.0, True)
        await answer_approval(node, True)
        assert await asked(node) == []
        assert await desk.invoke(Desk.pay, "o", 5, 0.0, True) == "paid"
        assert ACTS == ["o"] * 3

    in_a_world(body)


def test_a_shared_answer_that_nobody_gave_in_time_is_asked_for_again() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        assert await desk.invoke(Desk.pay, "o", 5, 0.0, True) == "refused"
        nursery.start_soon(desk.invoke, Desk.pay, "o", 5, 0.0, True)
        assert (await answer_approval(node, True)).earlier == 0
        assert await asked(node) == []
        assert await desk.invoke(Desk.pay, "o", 5, 0.0, True) == "paid"

    in_a_world(body)


def test_what_takes_the_place_of_a_shared_answer_says_what_was_approved() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        for text, approved in (("one", True), ("two", False), ("three", True)):
            nursery.start_soon(desk.invoke, Desk.use, text)
            found = await answer_approval(node, approved)
            assert (found.data, found.former, found.earlier) == (text, *EXPECTED[text])

    in_a_world(body)


EXPECTED = {"one": (None, 0), "two": ("one", 1), "three": ("one", 1)}


def test_other_words_are_refused_or_take_the_place_of_the_first() -> None:
    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        ended: list[str | None] = []

        async def first() -> None:
            with pytest.raises(ActionFailed, match="in other words") as withdrawn:
                await desk.invoke(Desk.pay, "o", 5)
            ended.append(withdrawn.value.code)

        nursery.start_soon(first)
        await asked(node)
        with pytest.raises(ActionFailed, match="something else: Pay 5 for o") as refused:
            await desk.invoke(Desk.pay, "o", 500)
        assert refused.value.code == "QUESTION_CHANGED"
        nursery.start_soon(desk.invoke, Desk.pay, "o", 6, 0.0, False, True)
        (found,) = await asked(node)
        assert (found.text, ended) == ("Pay 6 for o?", ["QUESTION_CHANGED"])
        await answer_approval(node, True)
        await trio.sleep(1)
        assert (ACTS, node.crash_reports) == (["o"], ())

    in_a_world(body)


@pytest.mark.parametrize(("key", "asks"), [("request-1", False), (None, True)])
def test_what_was_handed_out_in_a_life_that_was_killed(key: str | None, asks: bool) -> None:
    """A repeat of the request gets the same answer; who comes without its key is asked about anew."""

    async def world() -> None:
        ACTS.clear()
        store = MemoryStore()
        for life in (0, 1):
            async with open_node(TREE, store=store, approvals=True) as node, trio.open_nursery() as nursery:
                desk = node.find(Desk)
                await desk.ready()
                far = desk if key is None else desk.retrying(key=key)
                nursery.start_soon(far.invoke, Desk.pay, "o", 5, 60.0 * (1 - life))
                if not life:
                    await answer_approval(node, True)
                    await trio.sleep(1)
                else:
                    found = await asked(node)
                    assert ([each.earlier for each in found], ACTS) == (([1], []) if asks else ([], ["o"]))
                nursery.cancel_scope.cancel()

    simulate(world, seed=1)


class Failing(MemoryStore):
    """A store whose commit of a number fails, and those of five seconds after."""

    def __init__(self, fails_at: int) -> None:
        super().__init__()
        self.commits = 0
        self.fails_at = fails_at

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        self.commits += 1
        if self.fails_at <= self.commits < self.fails_at + 3:
            raise StoreFailed(self.name, "it is full", "make room")
        return super().commit(batches, durability)


@pytest.mark.parametrize("fails_at", range(2, 8))
def test_a_store_that_fails_at_a_step_costs_time_and_no_consent(fails_at: int) -> None:
    async def world() -> int:
        ACTS.clear()
        consents = 0
        store = Failing(fails_at)
        async with open_node(TREE, store=store, approvals=True) as node, trio.open_nursery() as nursery:
            desk = node.find(Desk)
            await desk.ready()
            for _ in range(2):
                nursery.start_soon(desk.retrying().invoke, Desk.pay, "o")
            while consents < 2:
                with suppress(ActionFailed):  # the decision was not kept
                    await answer_approval(node, True)
                    consents += 1
                await trio.sleep(5)
            await trio.sleep(60)
            assert ACTS == ["o", "o"]
            nursery.cancel_scope.cancel()
        return store.commits

    assert simulate(world, seed=1) >= fails_at


@pytest.mark.parametrize("seed", range(12))
def test_there_are_no_more_acts_than_consents(seed: int) -> None:
    """Whatever callers, people, crashes and restarts do: without a kill between act and record."""
    random = Random(seed)
    consents: dict[str, int] = {}

    async def body(node: Node, desk: Ref[Desk], nursery: trio.Nursery) -> None:
        async def call(order: str) -> None:
            with trio.move_on_after(random.choice([3, 30, 300])):
                with suppress(LmosActorsError):
                    await desk.invoke(
                        Desk.pay, order, random.choice([5, 5, 6]), random.choice([0, 1.3, 9.1]), False,
                        random.random() < 0.2,
                    )  # fmt: skip

        async def person() -> None:
            while True:
                approves = random.random() < 0.7
                try:
                    found = await answer_approval(node, approves)
                except (ActionFailed, AgentDied, AgentUnavailable):  # approvals was restarted, or it is gone
                    await trio.sleep(0.1)
                    continue
                consents[found.key] = consents.get(found.key, 0) + approves
                await trio.sleep(random.random())

        nursery.start_soon(person)
        for _ in range(80):
            chance = random.random()
            if chance < 0.05:
                with pytest.raises(AgentDied):
                    await desk.invoke(Desk.fall)
                await desk.ready()
            elif chance < 0.1:
                await node.root.terminate_child("approvals")
                await node.root.restart_child("approvals")
            else:
                nursery.start_soon(call, random.choice("abc"))
            await trio.sleep(random.random() * 2)
        await trio.sleep(400)
        for order in "abc":
            assert ACTS.count(order) <= consents.get(order, 0)
        assert len(ACTS) > 10

    in_a_world(body)


class Talker(ChatAgent):
    """Pays in a turn, which takes a minute in its first life."""

    resumes = True

    async def reply(self, turn: ChatTurn) -> AsyncGenerator[str]:
        if await self.approve("Pay?", key="k"):
            await trio.sleep(0 if turn.is_resumed else 60)
            ACTS.append("k")
            yield "paid"


def test_a_turn_that_goes_on_in_its_next_life_has_its_answer_there() -> None:
    tree = SupervisorSpec("root", [ChildSpec("talker", Talker)])

    async def world() -> None:
        ACTS.clear()
        store = Mortal(MemoryStore())
        async with open_node(tree, store=store, approvals=True) as node, trio.open_nursery() as nursery:
            talker = node.find(Talker)

            async def ask() -> None:
                with suppress(LmosActorsError):
                    async with talker.stream(Talker.chat, "pay", "s", new=True) as items:
                        async for _ in items:
                            pass

            nursery.start_soon(ask)
            await answer_approval(node, True)
            await trio.sleep(1)
            store.is_dead = True
            node.force_stop()
        store.is_dead = False
        async with open_node(tree, store=store, approvals=True) as node:
            assert await asked(node) == []
            await node.find(Talker).invoke(Talker.history, "s", True)
            assert ACTS == ["k"]

    simulate(world, seed=1)
