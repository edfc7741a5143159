"""The agents of the examples in the LMOS text, and the conversation that foreign clients have with them."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from lmos_actors import ActionFailed, Agent, ChildSpec, Event, Progress, Property, action, event, prop
from tests.source import ROOT
from tests.wire_conformance.agents import Stage

ASSISTANT: Final = "urn:uuid:3f1d3a7a-4f97-2e6b-c45f-f3c2e1c84c77"
FORECASTER: Final = "urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77"

_PAGE: Final = (ROOT / "tests/wire/lmos/spec-examples.md").read_text(encoding="utf-8")
TEXTS: Final[dict[str, str]] = dict(
    re.findall(r"^## (\S+)\n\n```json\n(.*?)\n```", _PAGE, re.DOTALL | re.MULTILINE)
)
"""The examples as they stand there, by the name of their section."""

EXAMPLES: Final[dict[str, dict[str, Any]]] = {name: json.loads(text) for name, text in TEXTS.items()}


class ModelConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """What model is used, and how."""

    model_name: str
    temperature: float
    max_tokens: int


class Feedback(msgspec.Struct, frozen=True):
    """What a user thinks."""

    rating: int
    comment: str


class Assistant(Agent, rename="camel"):
    """Has the properties and the event of the examples."""

    model_configuration: Property[ModelConfiguration] = prop(default=ModelConfiguration("gpt-4", 0.5, 100))
    other_property: Property[int] = prop(default=1)
    user_feedback_received: Event[Feedback] = event()

    @action
    def rate(self, rating: int, comment: str) -> None:
        """Have the event happen."""
        self.user_feedback_received.emit(Feedback(rating, comment))


class Forecaster(Agent, rename="camel"):
    """Has the action of the examples, and one that takes time."""

    stage: Any = None

    @action
    def get_weather(self, question: str, interaction_mode: str = "text") -> str:
        """Answer a question about the weather."""
        if "weather" not in question:
            raise ActionFailed({"question": question})
        return "The weather in New York is sunny with a temperature of 25°C."

    @action(concurrency=4)
    async def watch(self, progress: Progress[float]) -> str:
        """Report progress once, then go on until cancelled."""
        progress.report(0.5)
        await Stage().gate("", "never").wait()
        return "never"


def agents() -> list[ChildSpec[Any]]:
    """Give the specs of both agents, with the ids of the examples."""
    return [
        ChildSpec("assistant", Assistant, id=ASSISTANT),
        ChildSpec("forecaster", Forecaster, id=FORECASTER),
    ]


def said(kind: str, thing: str = ASSISTANT, number: int = 1, **members: Any) -> str:
    """Write a message in the spelling of the tables."""
    raw = {"thingID": thing, "messageID": f"00000000-0000-4000-8000-{number:012}", "messageType": kind}
    return json.dumps(raw | members)


WATCHED: Final = "00000000-0000-4000-8000-000000000011"

TURNS: Final[list[tuple[str, int]]] = [
    *(
        (TEXTS[name], 1)
        for name in ("readProperty", "writeProperty", "writeMultipleProperties", "observeProperty")
    ),
    (
        said("writeProperty", number=1, name="modelConfiguration", data=EXAMPLES["propertyReading"]["value"]),
        2,
    ),
    (TEXTS["unobserveProperty"], 0),
    (TEXTS["invokeAction"], 1),
    (TEXTS["queryAction"], 1),
    (TEXTS["cancelAction"], 1),
    (said("invokeAction", FORECASTER, 2, action="getWeather", input={"question": "who are you"}), 1),
    (TEXTS["subscribeEvent"], 0),
    (said("invokeAction", ASSISTANT, 3, action="rate", input=EXAMPLES["event"]["data"]), 2),
    (TEXTS["unsubscribeEvent"], 0),
    (TEXTS["subscribeAllEvents"], 0),
    (said("invokeAction", ASSISTANT, 4, action="rate", input=EXAMPLES["event"]["data"]), 2),
    (TEXTS["unsubscribeAllEvents"], 0),
    (said("invokeAction", ASSISTANT, 5, action="rate", input=EXAMPLES["event"]["data"]), 1),
    (said("readProperty", "urn:uuid:00000000-0000-4000-8000-000000000000", 6, name="x"), 1),
    (said("invokeAction", FORECASTER, 11, action="watch"), 1),
    (said("cancelAction", FORECASTER, 12, action="watch", reason="enough", correlationID=WATCHED), 1),
]
"""What a foreign client says, and how many answers come before it goes on."""


SHOWN: Final = (
    "name",
    "value",
    "data",
    "action",
    "status",
    "output",
    "progress",
    "event",
    "title",
    "cancelled",
    "reason",
)


def short(message: dict[str, Any]) -> str:
    """Write what came in one line: what it is, to which request it belongs, and what it says."""
    correlation = message.get("correlationID", message.get("correlationId"))
    rest = {key: message[key] for key in SHOWN if key in message}
    return f"{message['messageType']} of {correlation}: {json.dumps(rest, ensure_ascii=False)}"
