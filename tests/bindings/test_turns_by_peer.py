"""Turns, and the runs of a serial agent, go round among the peers that wait for them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, MailboxOptions, Ref, action
from lmos_actors.actors import set_service_time, slot_of
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, Serving, accounts, serving
from tests.matrix import few_or_all


class Book(Agent):
    names: tuple[str, ...] = ()
    seconds: float = 0.0

    @action
    def note(self, who: str) -> None:
        self.names += (who,)

    @action(when=("open",))
    def later(self, who: str) -> None:
        self.names += (who,)

    @action
    def open_up(self) -> None:
        self.become("open")

    @action
    async def run(self, who: str) -> None:
        self.names += (who,)
        await trio.sleep(1)

    @action
    def break_down(self) -> None:
        raise ValueError("lightning")


class Shelf(Book):
    @action(when=("open",), postpone=True)
    def later(self, who: str) -> None:
        self.names += (who,)


class Serial(Book, serial=True):
    pass


async def agent_of(node: Any, kind: type[Book] = Book, size: int = 1024) -> Ref[Book]:
    options = MailboxOptions(size=size)
    ref: Ref[Book] = await node.start_child(ChildSpec("weather", kind, mailbox=options))
    return ref


async def connect(there: Serving, count: int) -> list[Line]:
    return [await there.line(peer=f"10.0.0.{number}:1") for number in range(count)]


def ask(line: Line, *names: str, kind: str = "note", **members: Any) -> list[str]:
    return [line.put("invokeAction", action=kind, input={"who": name}, **members) for name in names]


def named(peer: str, count: int) -> list[str]:
    return [f"{peer}{number}" for number in range(count)]


def noted(ref: Ref[Book]) -> tuple[str, ...]:
    names: tuple[str, ...] = slot_of(ref).agent.names
    return names


ROUND = ("a0", "b0", "c0", "a1", "b1", "a2", "a3")


async def test_peers_take_turns_each_in_its_own_order(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node)
        for letter, count, line in zip("abc", (4, 2, 1), await connect(there, 3), strict=True):
            ask(line, *named(letter, count))
        await settle()
        assert noted(book) == ROUND
        accounts(node)


async def test_runs_of_a_serial_agent_and_its_turns_go_round(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, Serial)
        ask(await there.line(peer="consumer:9"), "first", kind="run")
        await settle()
        for letter, count, line in zip("abc", (4, 2, 1), await connect(there, 3), strict=True):
            ask(line, *named(letter, count), kind="note" if letter == "b" else "run")
        await trio.sleep(10)
        assert noted(book) == ("first", *ROUND)
        accounts(node)


@pytest.mark.parametrize("kind", ["note", "run"])
async def test_who_comes_after_twenty_greedy_connections_waits_for_one_turn_of_each(
    virtual_clock: Any, kind: str
) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, Serial)
        first, *lines, good = await connect(there, 22)
        ask(first, "first", kind="run")
        await settle()
        for line in lines:
            ask(line, *named("greedy", 40), kind=kind)
        ask(good, "good", "again", kind=kind)
        await trio.sleep(1000)
        assert [place for place, name in enumerate(noted(book)) if name in ("good", "again")] == [21, 42]
        accounts(node)


async def test_who_comes_while_others_have_their_turns_waits_for_one_turn_of_each(
    virtual_clock: Any,
) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, Serial)
        *greedy, good = await connect(there, 21)
        for line in greedy:
            ask(line, *named("greedy", 40), kind="run")
        for second in (105, 110, 199):
            await trio.sleep_until(second + 0.5)
            begun = len(noted(book))
            ask(good, f"good {second}", kind="run")
            await trio.sleep(30)
            assert noted(book).index(f"good {second}") - begun == 20
        accounts(node)


async def test_whoever_comes_anew_again_and_again_holds_up_nobody(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, Serial)
        first, other, good, *new = await connect(there, 13)
        ask(first, "first", kind="run")
        await settle()
        ask(other, "other", kind="run")
        ask(good, "good", "again", kind="run")
        for line in new:
            ask(line, "new", "newer", kind="run")
            await trio.sleep(1)
        assert noted(book)[:3] == ("first", "other", "good")
        assert noted(book).index("again") <= 6  # behind those who came before its first one had its turn
        accounts(node)


@pytest.mark.parametrize("kind", [Book.note, Book.run])
async def test_messages_from_near_keep_their_places(virtual_clock: Any, kind: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, Serial)
        greedy, late = await connect(there, 2)
        ask(greedy, "first", kind="run")
        await settle()
        ask(greedy, *named("a", 3))
        book.tell_nowait(kind, "near 0")
        ask(greedy, "a3")
        book.tell_nowait(kind, "near 1")
        ask(late, "b0", "b1")
        book.tell_nowait(kind, "near 2")
        await trio.sleep(10)
        assert noted(book) == ("first", "a0", "b0", "a1", "near 0", "b1", "near 1", "a2", "a3", "near 2")
        accounts(node)


async def test_one_way_messages_and_requests_of_a_connection_stay_in_order(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node)
        greedy, late = await connect(there, 2)
        ask(greedy, "a0")
        ask(greedy, "a1", tell=1)
        ask(greedy, "a2", "a3")
        ask(late, "b0", tell=1)
        ask(late, "b1")
        ask(late, "b2", tell=2)
        await settle()
        assert noted(book) == ("a0", "b0", "a1", "b1", "a2", "b2", "a3")
        accounts(node)


async def test_one_way_messages_and_requests_of_a_connection_begin_their_runs_in_order(
    virtual_clock: Any,
) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node)
        line, other = await connect(there, 2)
        ask(other, "first", kind="run")
        ask(line, "a0", kind="run", tell=1)
        ask(line, "a1", kind="run", tell=2)
        ask(line, "a2", "a3", kind="run")
        ask(other, "b0", kind="run", tell=1)
        await trio.sleep(10)
        assert noted(book) == ("first", "a0", "b0", "a1", "a2", "a3")
        accounts(node)


async def test_what_was_put_aside_comes_first_in_its_order(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, Shelf)
        greedy, late = await connect(there, 2)
        ask(greedy, *named("a", 3), kind="later")
        ask(late, "b0", kind="later")
        await settle()
        assert noted(book) == ()
        greedy.put("invokeAction", action="open_up")
        ask(greedy, "a3", "a4")
        ask(late, "b1")
        await settle()
        assert noted(book) == ("a0", "b0", "a1", "a2", "b1", "a3", "a4")
        accounts(node)


async def test_peers_go_round_among_the_thousand_that_wait_longest(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, size=4096)
        *greedy, late = await connect(there, 11)
        for line in greedy:
            ask(line, *named("a", 200))
        ask(late, "late")
        await settle()
        place = noted(book).index("late")
        assert 2000 - 1024 < place < 1100
        assert len(noted(book)) == 2001
        accounts(node)


async def test_an_agent_that_takes_time_takes_turns_as_well(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node)
        set_service_time(book, 1.0)
        for letter, count, line in zip("abc", (4, 2, 1), await connect(there, 3), strict=True):
            ask(line, *named(letter, count))
        await trio.sleep(20)
        assert noted(book) == ("a0", "a1", "b0", "c0", "a2", "b1", "a3")  # it began a0 when only a waited
        accounts(node)


async def test_cancelled_requests_leave_their_turns_to_others(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node)
        greedy, late = await connect(there, 2)
        ids = ask(greedy, *named("a", 6))
        ask(late, "b0", "b1", "b2")
        for gone in ids[1:5]:
            greedy.put("cancelAction", action="note", correlationID=gone)
        await settle()
        assert noted(book) == ("a0", "b0", "a5", "b1", "b2")
        accounts(node)


async def test_peers_that_wait_when_their_agent_dies_are_all_answered(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node)
        lines = await connect(there, 3)
        for line in lines:
            ask(line, *named("a", 20))
        lines[0].put("invokeAction", action="break_down")
        for line in lines:
            ask(line, *named("a", 20))
        await settle()
        assert [len(line.take()) for line in lines] == [41, 40, 40]
        assert book.statistics().dead_lettered == 60
        accounts(node)


@pytest.mark.parametrize("seed", few_or_all(range(3), range(8)))
async def test_each_peer_and_each_near_sender_is_served_in_order_whatever_happens(
    virtual_clock: Any, seed: int
) -> None:
    random = Random(seed)
    kind = random.choice((Book, Serial))
    async with open_test_node() as node, serving(node) as there:
        book = await agent_of(node, kind, size=random.choice((64, 200, 4096)))
        lines = await connect(there, 5)
        numbers = [0] * 6
        for _ in range(150):
            who = random.randrange(6)
            for _ in range(random.randrange(1, 12)):
                name = f"{who}:{numbers[who]}"
                numbers[who] += 1
                if who == 5:
                    if not slot_of(book).full():
                        book.tell_nowait(Book.note, name)
                    continue
                told = {"tell": numbers[who]} if random.random() < 0.2 else {}
                made = ask(lines[who], name, kind=random.choice(("note", "note", "run")), **told)
                if random.random() < 0.1:
                    lines[who].put("cancelAction", action="note", correlationID=made[0])
            if random.random() < 0.4:
                await trio.sleep(random.choice((0, 0.5, 3)))
            for line in lines:
                line.take()
        await trio.sleep(10_000)
        for who in range(6):
            mine = [int(name.partition(":")[2]) for name in noted(book) if name.startswith(f"{who}:")]
            # runs and turns of an agent that is not serial do not wait for each other
            assert kind is Book or mine == sorted(mine), who
        assert slot_of(book).waiting() == 0
        accounts(node)
