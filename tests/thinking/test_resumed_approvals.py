"""A turn waits for a person while its process ends: it asks again, and acts once."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import ChildSpec, open_node, simulate
from lmos_actors.approvals import Approvals
from lmos_actors.errors import LmosActorsError
from lmos_actors.facades import ChatAgent, ChatTurn, tool_of
from lmos_actors.llm import ToolMessage
from lmos_actors.testing import answer_approval, settle
from lmos_actors.thinking import ThinkingAgent
from tests.facades.lives import Mortal, in_memory
from tests.thinking.models import Script, answered, wants

if TYPE_CHECKING:
    from lmos_actors import Node
    from lmos_actors.llm import ModelRequest

PAID: list[str] = []


class Payer(ThinkingAgent):
    """You pay what a person has approved."""

    def tools_for(self, turn: ChatTurn) -> list[Any]:
        return [tool_of(self.may_pay, repeatable=True), self.pay]

    async def may_pay(self, order: str) -> bool:
        """Ask a person whether an order may be paid."""
        return await self.approve(f"Pay {order}?", key=order)

    async def pay(self, order: str) -> str:
        """Pay an order."""
        PAID.append(order)
        return "paid"


def plan(request: ModelRequest) -> Any:
    """Ask, again if the outcome is not known, and pay then."""
    results = [each for each in request.messages if isinstance(each, ToolMessage)]
    if not results or "It may be called again" in results[-1].error:
        return [wants("may_pay", f"ask-{len(results)}", order="o-1")]
    if results[-1].name == "may_pay":
        return [wants("pay", "pay", order="o-1")] if results[-1].result else "It is refused."
    return f"It is {results[-1].result}."


async def begun(node: Node) -> Any:
    await node.start(partial(Script, answers=(plan,)))
    return await node.start_child(ChildSpec("payer", Payer))


async def cut_off(store: Mortal) -> None:
    """Have a life that ends while a person is asked."""
    async with open_node(store=store, approvals=True) as node, trio.open_nursery() as nursery:
        payer = await begun(node)

        async def ask() -> None:
            with suppress(LmosActorsError):
                await answered(payer, "pay o-1", "s", new=True)

        if not store.commits:
            nursery.start_soon(ask)
        await trio.sleep(3_600)
        await settle()
        store.is_dead = True
        node.force_stop()
    store.is_dead = False


def test_a_person_is_asked_once_over_several_lives_and_it_is_paid_once() -> None:
    async def main() -> None:
        PAID.clear()
        store = in_memory()
        for _ in range(6):  # more often than a turn is resumed whose lives end at once
            await cut_off(store)
        async with open_node(store=store, approvals=True) as node:
            payer = await begun(node)
            assert (await answer_approval(node, True)).text == "Pay o-1?"
            _, answer = await payer.invoke(ChatAgent.history, "s", settled=True)
            assert (answer.text, answer.failed) == ("It is paid.", None)
            (kept,) = await node.find(Approvals).invoke(Approvals.entries, "all")
            assert kept.state == "approved"
        assert PAID == ["o-1"]

    simulate(main)
