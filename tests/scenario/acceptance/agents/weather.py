"""A weather agent with the names of the LMOS specification."""

from __future__ import annotations

from typing import Annotated, Literal

import trio
from msgspec import UNSET, Meta, Struct, UnsetType

from lmos_actors import Agent, Event, Property, action, event, prop


class ModelConfiguration(Struct, frozen=True):
    """Which language model answers, and how."""

    modelName: str
    temperature: float
    maxTokens: int


class UserFeedback(Struct, frozen=True):
    """What a user thought of an answer."""

    rating: Annotated[int, Meta(ge=1, le=5)]
    comment: str | UnsetType = UNSET


class WeatherAgent(Agent, rename="camel"):
    """Answers questions about the weather."""

    model_configuration: Property[ModelConfiguration] = prop(
        default=ModelConfiguration(modelName="none", temperature=0.0, maxTokens=1), read_only=True
    )
    user_feedback_received: Event[UserFeedback] = event()

    @action(safe=True)
    async def get_weather(self, question: str, interaction_mode: Literal["text", "voice"] = "text") -> str:
        """Say what the weather is like."""
        await trio.sleep(0.1)
        return f"sunny, asked {question!r} in {interaction_mode}"

    @action
    def give_feedback(self, feedback: UserFeedback, /) -> None:
        """Tell everybody who has subscribed what a user thought."""
        self.user_feedback_received.emit(feedback)
