"""The weather agent of the LMOS specification: its names and its schemas.

Beyond them it has the action `giveFeedback`, which makes it emit its event, and the property `units`,
which consumers may write. A language model is not needed here: the weather of a town follows from its name.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Literal, TypeAlias

import trio
from msgspec import UNSET, Meta, Struct, UnsetType

from lmos_actors import About, Agent, Event, Property, Vendor, action, event, prop
from lmos_actors.protocol.td import Link

ABOUT = About(
    vendor=Vendor(name="Deutsche Telekom AG", url="https://telekom.de"),
    links=(
        Link(
            rel="service-doc",
            href="https://weatherai.example.com/manual.pdf",
            type="application/pdf",
            hreflang="en",
        ),
    ),
)
SKIES = ("sunny", "cloudy", "rainy", "windy")


class ModelConfiguration(Struct, frozen=True):
    """Which language model answers, and how."""

    modelName: Annotated[str, Meta(description="Name of the model in use, e.g., gpt-4o.")]
    temperature: Annotated[
        float, Meta(ge=0, le=1, description="Temperature setting for controlling response randomness.")
    ]
    maxTokens: Annotated[int, Meta(description="Maximum number of tokens the model is allowed to generate.")]


class UserFeedback(Struct, frozen=True):
    """What a user thought of an answer."""

    rating: Annotated[
        int, Meta(ge=1, le=5, description="User rating, where 1 is the lowest and 5 is the highest.")
    ]
    comment: (
        Annotated[str, Meta(description="Optional user comment providing additional feedback.")] | UnsetType
    ) = UNSET


Report: TypeAlias = Annotated[str, Meta(description="Natural language output providing weather information.")]


class WeatherAgent(Agent, rename="camel", about=ABOUT):
    """Answers questions about the weather in natural language."""

    model_configuration: Property[ModelConfiguration] = prop(
        default=ModelConfiguration(modelName="none", temperature=0.0, maxTokens=256),
        read_only=True,
        doc="Current configuration of the underlying LLM, "
        "including version, temperature, and maximum tokens.",
    )
    units: Property[Literal["celsius", "fahrenheit"]] = prop(default="celsius")
    user_feedback_received: Event[UserFeedback] = event(
        doc="Emitted when a user provides feedback on the service, with a rating from 1 to 5."
    )

    @action(safe=True, synchronous=True, answers={"interaction_mode": "text"})
    async def get_weather(self, question: str, interaction_mode: Literal["text", "voice"]) -> Report:
        """Fetches weather information based on user input."""
        await trio.sleep(0.2)
        town = town_of(question)
        number = zlib.crc32(town.encode())
        degrees = number % 25 + 5
        if self.units == "fahrenheit":
            degrees = degrees * 9 // 5 + 32
        report = f"It is {SKIES[number % len(SKIES)]} in {town}, {degrees} degrees {self.units}"
        return f"{report}." if interaction_mode == "text" else f"<speak>{report}</speak>"

    @action
    def give_feedback(self, feedback: UserFeedback, /) -> None:
        """Tells everybody who has subscribed what a user thought."""
        self.user_feedback_received.emit(feedback)


def town_of(question: str) -> str:
    """Give what a question ends with, as in `What is the weather in New York?`"""
    return question.rstrip("?!. ").rpartition(" in ")[2] or "the world"
