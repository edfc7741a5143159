"""A concierge that asks a weather agent, and has a language model put the answer into words."""

from __future__ import annotations

from typing import Literal

from agents.weather import WeatherAgent
from lmos_actors import Agent, Ref, action


class LanguageModel(Agent):
    """What the concierge knows of a language model; a mock stands for it."""

    @action
    async def message(self, text: str) -> str:
        """Answer."""
        raise NotImplementedError


class ConciergeAgent(Agent, rename="camel"):
    """Delegates questions about the weather."""

    weather: Ref[WeatherAgent]
    llm: Ref[LanguageModel]

    @action(safe=True)
    async def get_weather(self, question: str, interaction_mode: Literal["text", "voice"] = "text") -> str:
        """Ask the weather agent, and have its answer put into words."""
        report = await self.weather.invoke(WeatherAgent.get_weather, question, interaction_mode)
        return await self.llm.invoke(LanguageModel.message, f"weather: {report}")
