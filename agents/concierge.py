"""A concierge that asks the weather agent on behalf of others, and passes on what users think of it."""

from __future__ import annotations

from typing import Literal

from agents.weather import UserFeedback, WeatherAgent
from lmos_actors import Agent, Event, Property, Ref, action, event, prop


class ConciergeAgent(Agent, rename="camel"):
    """Delegates questions about the weather. `weather` points to whoever answers them."""

    weather: Ref[WeatherAgent]
    questions: Property[int] = prop(default=0, read_only=True)
    user_feedback_received: Event[UserFeedback] = event()

    def started(self) -> None:
        self.follow(self.weather, WeatherAgent.user_feedback_received, self.on_feedback)

    def on_feedback(self, feedback: UserFeedback) -> None:
        self.user_feedback_received.emit(feedback)

    @action(safe=True, concurrency=8)
    async def get_weather(self, question: str, interaction_mode: Literal["text", "voice"] = "text") -> str:
        """Asks the weather agent, within two seconds."""
        self.questions += 1
        answer = await self.weather.within(2.0).invoke(WeatherAgent.get_weather, question, interaction_mode)
        return f"The weather agent says: {answer}"
