"""Pools under random load: asked, told, crashed, stopped and resized at once, against what everybody saw."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from hypothesis import event, given, settings, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    MailboxFull,
    MailboxOptions,
    Pool,
    PoolRef,
    SupervisorSpec,
    action,
)
from lmos_actors.errors import WrongState
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from tests.matrix import examples

if TYPE_CHECKING:
    from lmos_actors import Node

SECONDS = st.sampled_from([0.0, 0.5, 2.0])
KEYS = st.integers(0, 9)
OPERATIONS = st.one_of(
    st.tuples(st.just("ask"), KEYS, SECONDS),
    st.tuples(st.just("turn"), KEYS, SECONDS),
    st.tuples(st.just("give up"), KEYS, SECONDS),
    st.tuples(st.just("tell"), KEYS, SECONDS),
    st.tuples(st.just("send"), KEYS, SECONDS),
    st.tuples(st.just("crash"), KEYS, SECONDS),
    st.tuples(st.just("stop"), KEYS, SECONDS),
    st.tuples(st.just("resize"), st.integers(1, 5), SECONDS),
    st.tuples(st.just("leave resize"), st.integers(1, 5), SECONDS),
    st.tuples(st.just("sleep"), KEYS, SECONDS),
)
POLICIES = st.sampled_from(["wait", "reject", "drop_oldest", "drop_newest"])


class Member(Agent):
    journal: Any

    def note(self, number: int) -> None:
        self.journal.began.setdefault(number, []).append(int(self.path.rpartition("-")[2]))

    @action(concurrency=2)
    async def work(self, key: int, number: int, seconds: float) -> int:
        self.note(number)
        await trio.sleep(seconds)
        return number

    @action
    def turn(self, key: int, number: int) -> int:
        self.note(number)
        return number

    @action
    def crash(self, key: int, number: int) -> None:
        self.note(number)
        raise KeyError(number)

    @action
    def finish(self, key: int, number: int) -> None:
        self.note(number)
        self.stop()


class Sender(Agent):
    pool: Any

    @action
    def pass_on(self, key: int, number: int) -> None:
        self.send(self.pool, Member.turn, key, number)


class Story:
    """One run: what was asked, who began what, and what everybody was told."""

    def __init__(self, node: Node, pool: PoolRef[Member], journal: Journal) -> None:
        self.pool = pool
        self.node = node
        self.journal = journal
        self.answers: dict[int, list[object]] = {}
        self.places: dict[int, tuple[int, int]] = {}  # the key of a request, and the size of the pool
        self.last = 0

    async def carry_out(self, name: str, key: int, seconds: float) -> None:
        self.last += 1
        number = self.last
        match name:
            case "ask":
                await self.ask(number, key, Member.work, key, number, seconds)
            case "turn":
                await self.ask(number, key, Member.turn, key, number)
            case "give up":
                with trio.move_on_after(seconds / 2) as scope:
                    await self.ask(number, key, Member.work, key, number, seconds)
                if scope.cancelled_caught:
                    self.answers.setdefault(number, []).append("cancelled")
            case "crash":
                await self.ask(number, key, Member.crash, key, number)
            case "stop":
                await self.ask(number, key, Member.finish, key, number)
            case "tell":
                self.tell(number, key, seconds)
            case "send":
                self.node.find(Sender).tell_nowait(Sender.pass_on, key, number)
            case "resize":
                await self.pool.resize(key)
            case "leave resize":
                with trio.move_on_after(seconds / 2):
                    await self.pool.resize(key)
            case _:
                await trio.sleep(seconds)

    async def ask(self, number: int, key: int, handle: Any, *args: Any) -> None:
        self.places[number] = (key, self.pool.size)
        outcome: object
        try:
            outcome = await self.pool.invoke(handle, *args)
        except (AgentDied, AgentUnavailable, MailboxFull) as exc:
            outcome = type(exc)
            began = getattr(exc, "started", False)
            assert began == (number in self.journal.began)
        self.answers.setdefault(number, []).append(outcome)

    def tell(self, number: int, key: int, seconds: float) -> None:
        self.places[number] = (key, self.pool.size)
        try:
            self.pool.tell_nowait(Member.work, key, number, seconds)
        except (trio.WouldBlock, AgentUnavailable, MailboxFull):
            assert number not in self.journal.began

    def check(self, by: str) -> None:
        s = self.pool.statistics()
        gone = s.cancelled + s.dropped + s.dead_lettered
        assert s.accepted == s.handled + gone + s.waiting + s.running
        takes: dict[tuple[int, int], list[int]] = {}
        for number, members in self.journal.began.items():
            assert len(members) == 1
            if by == "key" and number in self.places:
                assert takes.setdefault(self.places[number], members) == members


class Journal:
    def __init__(self) -> None:
        self.began: dict[int, list[int]] = {}


@settings(max_examples=examples(120))
@given(
    st.lists(st.tuples(OPERATIONS, st.booleans()), max_size=40),
    st.sampled_from(["round_robin", "least_loaded", "key"]),
    st.integers(1, 4),
    POLICIES,
    st.sampled_from([1, 1000]),
    st.integers(0, 3),
)
def test_everybody_gets_one_answer_and_the_counts_add_up(
    story: list[Any], by: Any, size: int, policy: Any, max_restarts: int, seed: int
) -> None:
    async def main() -> None:
        journal = Journal()
        root = SupervisorSpec("root", max_restarts=1000)
        async with open_test_node(root, seed=seed) as node:
            mailbox = MailboxOptions(3, policy)
            make = partial(Member, journal=journal)
            spec = Pool(make, size, by=by, name="pool", mailbox=mailbox, max_restarts=max_restarts)
            pool = await node.start_pool(spec)
            await node.start(Sender, pool=pool)
            told = Story(node, pool, journal)
            async with trio.open_nursery() as nursery:
                for (name, key, seconds), at_once in story:
                    nursery.start_soon(safely, told, name, key, seconds)
                    if not at_once:
                        await settle()
                        told.check(by)
                    if name == "sleep":
                        await trio.sleep(seconds)
            await trio.sleep(60)
            told.check(by)
            statistics = pool.statistics()
            assert (statistics.waiting, statistics.running) == (0, 0)
            assert len(told.answers) == sum(operation[0] in ASKED for operation, _ in story)
            assert all(len(answers) == 1 for answers in told.answers.values())
            values = [a for answers in told.answers.values() for a in answers if isinstance(a, int)]
            assert statistics.handled >= len(values)
            assert pool.size == node.tree().count("pool-")
            await pool.ready()
            for member in pool.members:
                await member.ready()
            event(f"restarted {node.root.supervisor('pool').incarnation > 1}")

    trio.run(main, clock=VirtualClock())


ASKED = ("ask", "turn", "give up", "crash", "stop")


async def safely(told: Story, name: str, key: int, seconds: float) -> None:
    try:
        await told.carry_out(name, key, seconds)
    except WrongState:
        assert "resize" in name  # the pool was giving up
