"""The time of a turn, and of its tools, stands still while a person is asked."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Node, Ref, action, open_node, simulate
from lmos_actors.llm import ToolMessage
from lmos_actors.testing import answer_approval
from lmos_actors.thinking import Budget, ThinkingAgent, ToolLimits, hand_over
from tests.thinking.models import Log, Script, answered, wants

HOUR = 3600.0


class Till(Agent):
    """Pays."""

    @action(concurrency=9)
    async def refund(self, order: str, hang: float = 0.0) -> str:
        """Refund an order."""
        if not await self.approve(f"Refund {order}?", key=order):
            return "refused"
        await trio.sleep(hang)
        return "refunded"


class Desk(ThinkingAgent):
    """You refund orders."""

    tools = (Till,)
    budget = Budget(seconds=60)
    limits = ToolLimits(seconds=30)

    async def may(self, order: str) -> bool:
        """Ask a person."""
        return await self.approve(f"May {order}?", key=order)


class Own(Desk):
    """You ask by yourself."""

    def tools_for(self, turn: Any) -> list[Any]:
        return [self.may]


class Porter(ThinkingAgent):
    """You send people on."""

    tools = (hand_over(Desk, name="desk", description="For refunds."),)
    budget = Budget(seconds=60)


def results(log: Log) -> list[Any]:
    return [each.result or each.error for each in log.asked[-1].messages if isinstance(each, ToolMessage)]


async def asked_after(node: Node, seconds: float, *, approve: bool = True) -> None:
    await trio.sleep(seconds)
    await answer_approval(node, approve)


def play(cls: type[Any], answers: list[Any], *hours: float) -> tuple[str, Log, float]:
    """Ask a desk; a person answers after so many hours each. Return its answer, and how long it took."""
    log = Log()

    async def main() -> tuple[str, float]:
        async with open_node() as node, trio.open_nursery() as nursery:
            await node.start(partial(Script, answers=tuple(answers), heard=log))
            await node.start(Till)
            await node.start_child(ChildSpec("desk", Desk))
            asked: Ref[Any] = (
                node.find(Desk) if cls is Desk else await node.start_child(ChildSpec("asked", cls))
            )

            async def person() -> None:
                for each in hours:
                    await asked_after(node, each * HOUR)

            nursery.start_soon(person)
            began = trio.current_time()
            try:
                text = await answered(asked, "please")
            except ActionFailed as error:
                text = str(error)
                nursery.cancel_scope.cancel()
            return text, trio.current_time() - began

    text, seconds = simulate(main)
    return text, log, seconds


REFUND = wants("refund", order="o-1")


def test_a_tool_may_wait_for_a_person_for_longer_than_its_time() -> None:
    text, log, seconds = play(Desk, [REFUND, "Done."], 5)
    assert (text, results(log)) == ("Done.", ["refunded"])
    assert seconds == pytest.approx(5 * HOUR, abs=1)


def test_its_time_goes_on_after_that() -> None:
    text, log, _ = play(Desk, [wants("refund", order="o-1", hang=31.0), "Hm."], 5)
    assert text == "Hm."
    assert "no answer within 30 s" in results(log)[0]


def test_two_questions_of_one_turn_wait_side_by_side() -> None:
    two = [wants("refund", "1", order="o-1"), wants("refund", "2", order="o-2")]
    _, log, _ = play(Desk, [two, "Done."], 1, 2)
    assert results(log) == ["refunded", "refunded"]


def test_an_agent_may_ask_by_itself() -> None:
    text, log, _ = play(Own, [wants("may", order="o-1"), "Done."], 9)
    assert (text, results(log)) == ("Done.", [True])


def test_who_has_handed_over_waits_as_well() -> None:
    text, log, _ = play(Porter, [wants("desk", reason="a refund"), REFUND, "Done."], 9)
    assert (text, results(log)) == ("Done.", ["refunded"])


def test_the_budget_of_time_goes_on_after_that() -> None:
    late = [wants("refund", "1", order="o-1", hang=25.0), wants("refund", "2", order="o-2", hang=25.0)]

    def slow(request: Any) -> Any:
        return wants("refund", str(len(request.messages)), order=f"o-{len(request.messages)}", hang=25.0)

    text, _, seconds = play(Desk, [late, slow, slow, slow], 1, 1, 1, 1, 1)
    assert text == "BUDGET_EXCEEDED: the budget of 60 s is used up"
    assert 4 * HOUR < seconds < 6 * HOUR
