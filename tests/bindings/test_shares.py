"""No peer can hold an agent: the seats of its mailbox, and its runs, are shared among those who ask."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, MailboxFull, MailboxOptions, Ref, action
from lmos_actors.actors import slot_of
from lmos_actors.protocol import lmos
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, Serving, accounts, serving
from tests.bindings.web import World, served
from tests.matrix import few_or_all

SIZE = 64
LATER = {"Prefer": "respond-async"}


class Busy(Agent):
    order: tuple[str, ...] = ()

    @action
    async def slow(self, who: str = "") -> str:
        self.order += (who,)
        await trio.sleep(10)
        return who

    @action(concurrency=8)
    async def wide(self) -> None:
        await trio.sleep(10)

    @action
    def quick(self) -> int:
        return 1

    @action
    async def fatal(self) -> None:
        raise ValueError("lightning")


async def agent_of(node: Any, **mailbox: Any) -> Ref[Busy]:
    options = MailboxOptions(**mailbox) if mailbox else MailboxOptions(size=SIZE)
    ref: Ref[Busy] = await node.start_child(ChildSpec("weather", Busy, mailbox=options))
    return ref


def ask(line: Line, count: int, kind: str = "slow", who: str = "") -> None:
    for _ in range(count):
        line.put("invokeAction", action=kind, input={"who": who} if kind == "slow" else ...)


def seats_of(there: Serving, ref: Ref[Busy], *lines: Line) -> list[int]:
    return [there.server.context.seats.taken(slot_of(ref), line.handler._peer) for line in lines]


def refused(line: Line) -> list[dict[str, Any]]:
    """What was refused of what was asked, before anything ended."""
    return [each for each in line.take() if each["messageType"] == "error"]


async def test_a_peer_that_is_alone_may_have_all(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        line = await there.line()
        ask(line, 100)
        await settle()
        assert busy.mailbox_statistics().depth == SIZE
        assert busy.mailbox_statistics().displaced == 0
        (first, *_) = errors = refused(line)
        assert len(errors) == 100 - SIZE - 1 == busy.statistics().refused
        assert (first["status"], first["about"]) == ("503", {"size": SIZE})
        accounts(node)


async def test_who_comes_later_gets_as_many_seats_at_once(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        greedy, late = await there.line(), await there.line(peer="consumer:2")
        for who in range(100):
            ask(greedy, 1, who=f"{who}")
        greedy.take()
        ask(late, 1, "quick")
        await settle()
        (answer,) = late.take()
        assert answer["output"] == 1
        ask(late, 100)
        await settle()
        assert seats_of(there, busy, greedy, late) == [32, 32]
        lost, late_refused = refused(greedy), refused(late)
        assert len(lost) == 32 == busy.mailbox_statistics().displaced == busy.statistics().dropped
        assert lost[0]["about"] == {"size": SIZE, "share": 64}
        assert lost[0]["started"] is False
        assert len(late_refused) == 68
        assert late_refused[0]["about"] == {"size": SIZE, "share": 32}
        assert "32 of them are yours" in late_refused[0]["detail"]
        accounts(node)
        await trio.sleep(650)
        assert [int(who) for who in slot_of(busy).agent.order if who] == list(range(33))  # its oldest stayed
        accounts(node)


async def test_twenty_greedy_connections_lock_nobody_out(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        greedy = [await there.line(peer=f"consumer:{number}") for number in range(20)]
        for line in greedy:
            ask(line, 40)
        await settle()
        assert set(seats_of(there, busy, *greedy)) == {3, 4}
        good = await there.line(peer="consumer:99")
        for _ in range(3):
            ask(good, 1, "quick")
            await settle()
            assert good.take()[-1]["output"] == 1
        ask(good, 1, who="good")
        for _ in range(22):
            for line in greedy:
                ask(line, 3)
            await trio.sleep(10)
        assert good.take()[-1]["output"] == "good"  # after one run of each of the others at most
        accounts(node)


async def test_peers_take_turns_for_runs_each_in_its_own_order(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        for number, count in enumerate((4, 2, 1)):
            line = await there.line(peer=f"consumer:{number}")
            for place in range(count):
                ask(line, 1, who=f"{'abc'[number]}{place}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy.invoke, Busy.slow, "near")
            await trio.sleep(100)
        assert slot_of(busy).agent.order == ("a0", "a1", "b0", "c0", "near", "a2", "b1", "a3")
        accounts(node)


async def test_the_last_of_several_runs_at_once_is_for_another_peer(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        greedy, late = await there.line(), await there.line(peer="consumer:2")
        ask(greedy, 20, "wide")
        await settle()
        assert busy.statistics().running == 7
        ask(late, 2, "wide")
        await settle()
        assert busy.statistics().running == 8
        await trio.sleep(10)
        await settle()
        late.take()
        assert busy.statistics().running == 7
        await trio.sleep(100)
        assert busy.statistics().handled == 22
        accounts(node)


async def test_near_callers_are_not_held_back_for_peers(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        for _ in range(20):
            busy.tell_nowait(Busy.wide)
        await settle()
        assert busy.statistics().running == 8
        for _ in range(SIZE - 12 + 1):
            busy.tell_nowait(Busy.slow)
        await settle()
        with pytest.raises(trio.WouldBlock):
            busy.tell_nowait(Busy.slow)
        line = await there.line()
        ask(line, 1)
        await settle()
        (answer,) = refused(line)
        assert answer["about"] == {"size": SIZE}  # it is full, which is no matter of shares


async def test_many_connections_from_one_address_are_no_match_for_another_address(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        many = [await there.line(peer=f"10.0.0.1:{number}") for number in range(100)]
        for line in many:
            ask(line, 1)
        await settle()
        assert busy.mailbox_statistics().depth == SIZE
        other = await there.line(peer="10.0.0.2:1")
        ask(other, 40)
        await settle()
        assert seats_of(there, busy, other) == [32]
        one_more = await there.line(peer="10.0.0.1:999")
        ask(one_more, 1, "quick")
        await settle()
        assert refused(one_more)[0]["about"] == {"size": SIZE, "share": 0}
        accounts(node)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
async def test_where_a_full_mailbox_drops_it_does_so_as_before(virtual_clock: Any, policy: str) -> None:
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node, size=SIZE, when_full=policy)
        line = await there.line()
        ask(line, 100)
        await settle()
        assert busy.mailbox_statistics().depth == SIZE
        assert busy.statistics().dropped == 100 - SIZE - 1
        accounts(node)


DEEDS = ("ask", "ask", "ask", "cancel", "leave", "come", "wait", "within")


@pytest.mark.parametrize("seed", few_or_all(range(2), range(6)))
async def test_all_seats_are_given_up_whatever_becomes_of_requests(virtual_clock: Any, seed: int) -> None:
    random = Random(seed)
    async with open_test_node() as node, serving(node) as there:
        busy = await agent_of(node)
        lines: list[Line] = []
        every: list[Line] = []
        for number in range(200):
            deed = "fatal" if number in (50, 51) else random.choice(DEEDS)
            if deed == "come" or not lines:
                line = await there.line(peer=f"consumer:{len(every)}")
                lines.append(line)
                every.append(line)
            line = random.choice(lines)
            if deed == "ask":
                ask(line, random.randrange(10), random.choice(("slow", "wide", "quick")))
            elif deed == "within":
                line.put("invokeAction", action="slow", remaining=random.random())
            elif deed == "cancel":
                line.put("cancelAction", action="slow", correlationID=f"m{random.randrange(1, 30)}")
            elif deed == "fatal":
                ask(line, 1, "fatal")
            elif deed == "leave":
                line.leave()
                lines.remove(line)
            else:
                await trio.sleep(random.random() * 20)
            line.take()
            await settle()
            waiting = busy.mailbox_statistics().depth
            assert sum(seats_of(there, busy, *every)) == waiting, deed
        for line in lines:
            line.leave()
        await settle()
        assert set(seats_of(there, busy, *every)) == {0}
        assert there.server.context.seats.counted == {}
        accounts(node)


def test_a_refusal_names_the_share_on_both_ends() -> None:
    near = MailboxFull("weather", 64, 58)
    assert (near.share, str(near)) == (
        58,
        "mailbox of 'weather' is full (64, 58 of them this peer's, and others want some)",
    )
    problem = lmos.problem_of(near)
    assert problem.about == {"size": 64, "share": 58}
    assert MailboxFull("weather", 64).share is None


def test_clients_over_http_and_their_connections_share_the_seats() -> None:
    async def main(there: World) -> None:
        async with trio.open_nursery() as nursery:
            greedy = await there.client()
            size = there.ref.mailbox_statistics().size
            for _ in range(size + 1):
                answer = await greedy.ask(
                    "POST", "actions/print_out", {"seconds": 60.0}, Prefer="respond-async"
                )
                assert answer.status == 201
            answer = await greedy.ask("POST", "actions/print_out", {"seconds": 60.0}, **LATER)
            assert answer.status == 503
            assert answer.problem == (503, "mailbox-full")
            answer = await there.ask("POST", "actions/tell", {"city": "Bonn"})
            assert answer.status == 200
            assert there.ref.mailbox_statistics().displaced == 1
            nursery.cancel_scope.cancel()

    served(main)
