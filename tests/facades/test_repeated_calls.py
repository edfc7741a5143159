"""What a turn that is resumed would do twice is named, or refused in tests with `strict_resume`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Node, Ref, action, invoke_all, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.errors import RepeatedCallWarning
from lmos_actors.facades import ChatAgent, ChatTurn, tool_of
from lmos_actors.testing import open_test_node, settle
from lmos_actors.transport import MemoryNetwork
from tests.benchmarks.walks import Walked, counted, in_a_turn
from tests.facades.lives import virtual
from tests.facades.test_asked_turns import answer_of


class Ledger(Agent, durable=True):
    """Counts what it is asked."""

    paid: int = 0

    @action
    def pay(self, amount: int) -> int:
        self.paid += amount
        return self.paid

    @action(idempotent=True)
    def set_limit(self, amount: int) -> None:
        """Change nothing here."""

    @action(safe=True)
    def total(self) -> int:
        return self.paid


class Counter(Ledger, durable=False):
    """Keeps nothing."""


class Buyer(ChatAgent):
    """Does one thing with a ledger, as it is told."""

    ledger: Ref[Ledger]

    async def reply(self, turn: ChatTurn) -> str:
        match turn.text:
            case "pay":
                await self.ledger.invoke(Ledger.pay, 1)
            case "tell":
                await self.ledger.tell(Ledger.pay, 1)
            case "post":
                self.ledger.tell_nowait(Ledger.pay, 1)
            case "begin":
                async with self.ledger.begin(Ledger.pay, 1) as call:
                    await call.result()
            case "all":
                await invoke_all([self.ledger], Ledger.pay, 1)
            case "late tell":
                await self.ledger.within(1).tell(Ledger.pay, 1)
            case "set":
                await self.ledger.invoke(Ledger.set_limit, 1)
            case "look":
                await self.ledger.invoke(Ledger.total)
            case "keyed":
                await self.ledger.retrying(key="once").invoke(Ledger.pay, 1)
            case "tool":

                async def pay() -> int:
                    return await self.ledger.invoke(Ledger.pay, 1)

                await tool_of(pay, repeatable=True).call({})
            case "person":
                await self.approve("Pay?", key="pay")
            case _:
                await turn.record("paying")
                await self.ledger.invoke(Ledger.pay, 1)
        return "done"


class Forgetful(Buyer):
    resumes = False


async def _buyer(node: Node, ledger: Ref[Ledger], cls: type[Buyer] = Buyer) -> Ref[Buyer]:
    return await node.start_child(ChildSpec(cls.__name__, partial(cls, ledger=ledger)))


ACTS = ("pay", "tell", "late tell", "post", "begin", "all")


@pytest.mark.parametrize("text", ACTS)
@virtual
async def test_the_first_request_that_would_act_twice_is_named_with_what_to_do(text: str) -> None:
    async with open_node(store="memory:") as node:
        ledger = await node.start_child(ChildSpec("ledger", Ledger))
        buyer = await _buyer(node, ledger)
        with pytest.warns(RepeatedCallWarning, match=r"Buyer.reply asks 'ledger' for 'pay'.*key=") as caught:
            assert await answer_of(buyer, text) == "done"
        assert await answer_of(buyer, text) == "done"  # which would raise the warning
        assert [Path(each.filename).name for each in caught] == ["test_repeated_calls.py"]
        assert await ledger.invoke(Ledger.total) == 2


@pytest.mark.parametrize("text", ["set", "look", "keyed", "tool", "record"])
@virtual
async def test_what_is_safe_to_repeat_is_not_named(text: str) -> None:
    async with open_test_node(store="memory:", strict_resume=True) as node:
        buyer = await _buyer(node, await node.start_child(ChildSpec("ledger", Ledger)))
        assert await answer_of(buyer, text) == "done"


@virtual
async def test_a_question_to_a_person_is_asked_once_over_all_lives_and_is_not_named() -> None:
    async with open_test_node(store="memory:", strict_resume=True) as node:
        buyer = await _buyer(node, await node.start_child(ChildSpec("ledger", Ledger)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_of, buyer, "person")
            await settle()
            desk = node.find(Approvals)
            [asked] = await desk.invoke(Approvals.entries)
            await desk.invoke(Approvals.accept, asked.id)


@pytest.mark.parametrize("text", ACTS)
@virtual
async def test_strict_tests_refuse_what_would_act_twice(text: str) -> None:
    async with open_test_node(store="memory:", strict_resume=True) as node:
        ledger = await node.start_child(ChildSpec("ledger", Ledger))
        buyer = await _buyer(node, ledger)
        for _ in range(2):
            with pytest.raises(ActionFailed):
                await answer_of(buyer, text)
        assert await ledger.invoke(Ledger.total) == 0


@pytest.mark.parametrize("text", ACTS)
@virtual
async def test_turns_that_are_not_resumed_do_nothing_twice(text: str) -> None:
    async with open_test_node(store="memory:", strict_resume=True) as node:
        ledger = await node.start_child(ChildSpec("ledger", Ledger))
        assert await answer_of(await _buyer(node, ledger, Forgetful), text) == "done"


@virtual
async def test_an_agent_of_another_node_is_named_too() -> None:
    network = MemoryNetwork()
    async with (
        open_node(store="memory:", listen="ws://far", network=network) as far,
        open_node(store="memory:", network=network) as node,
    ):
        await far.start_child(ChildSpec("ledger", Ledger))
        buyer = await _buyer(node, await node.consume(Ledger, "http://far/agents/ledger"))
        assert await answer_of(buyer, "look") == "done"
        with pytest.warns(RepeatedCallWarning, match="'pay'"):
            assert await answer_of(buyer, "pay") == "done"


@virtual
async def test_a_chat_agent_without_a_turn_costs_the_requests_of_others_nothing() -> None:
    async with open_node(store="memory:") as node:
        ref = await node.start(Walked)
        before = await counted(partial(in_a_turn, ref))
        buyer = await _buyer(node, await node.start_child(ChildSpec("ledger", Counter)))
        assert await answer_of(buyer, "look") == "done"
        assert (await counted(partial(in_a_turn, ref))).calls == before.calls == 5
