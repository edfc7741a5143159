"""Mistakes with agents that think."""

from __future__ import annotations

from msgspec import Struct

from lmos_actors import Agent, Ref, action
from lmos_actors.llm import Model
from lmos_actors.thinking import Budget, Thought, think


class Plan(Struct):
    steps: list[str]


class Planner(Agent):
    model: Ref[Model]

    @action
    async def plan(self, task: str) -> Plan:
        thought = await think(self.model, task)
        answer: int = thought.answer  # E
        plan: Thought[int] = await think(self.model, task, answer=Plan)  # E
        await think(self.model, task, budget=Budget(call=3))  # E
        await think(self.model, 17)  # E
        await think(task, task)  # E
        return Plan([str(answer), str(plan)])
