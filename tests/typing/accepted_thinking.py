"""Agents that think, as users write them."""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 -- as users write it
from typing import Literal

from msgspec import Struct

from lmos_actors import Agent, ChildSpec, Ref, action, open_node, sibling
from lmos_actors.facades import ChatTurn  # noqa: TC001 -- as users write it
from lmos_actors.llm import Model, ModelEnd, ModelItem, ModelRequest, TextDelta
from lmos_actors.thinking import (
    Account,
    Budget,
    ThinkingAgent,
    Thought,
    ToolLimits,
    ToolSource,
    hand_over,
    think,
)


class Plan(Struct):
    steps: list[str]
    kind: Literal["short", "long"] = "short"


class Orders(Agent):
    @action
    def look_up(self, number: int) -> str:
        return str(number)


class Refunds(ThinkingAgent):
    """You pay back."""


def add(a: int, b: int) -> int:
    return a + b


class Desk(ThinkingAgent):
    """You help."""

    tools = (Orders, (Orders, Orders.look_up), add, hand_over(Refunds))
    answer = Plan
    budget = Budget(calls=3)
    limits = ToolLimits(seconds=5)

    def tools_for(self, turn: ChatTurn) -> list[ToolSource]:
        return [Orders, add] if turn.metadata else [add]


class Scripted(Model):
    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        yield TextDelta(request.instructions)
        yield ModelEnd()


class Planner(Agent):
    model: Ref[Model]

    @action
    async def plan(self, task: str) -> Plan:
        account = Account(Budget(tokens=None))
        text: Thought[str] = await think(self.model, task)
        plan: Thought[Plan] = await think(
            self.find(Model), text.answer, answer=Plan, tools=[Orders, add], find=self.find, budget=account
        )
        number: int = (await think(self.model, "How many?", answer=int)).answer
        return plan.answer if number else Plan([])


async def main() -> None:
    async with open_node() as node:
        model: Ref[Scripted] = await node.start(Scripted)
        desk: Ref[Desk] = await node.start(Desk, model=model, tools=[add], instructions="You help.")
        await node.start_child(ChildSpec("other", lambda: Desk(model=model, tools=[node.find(Orders)])))
        text: str = (await think(model, "hello", tools=[desk])).answer
        print(text, sibling("orders"))
