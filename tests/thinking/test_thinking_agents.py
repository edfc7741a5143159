"""Thinking agents as their callers see them: answers, tools, history, budgets, failures."""

from __future__ import annotations

from typing import Any

import trio

from lmos_actors import ActionFailed, Agent, Progress, action, open_node, simulate
from lmos_actors.facades import (
    TextChunk,
    ToolCalled,
    ToolReturned,
)
from lmos_actors.llm import (
    ModelEnd,
    ModelMessage,
    TextDelta,
    ToolMessage,
    UserMessage,
)
from lmos_actors.thinking import ThinkingAgent
from tests.thinking.models import Log, Script, answered, said, wants


class Weather(Agent, tool=True):
    """Knows the weather."""

    asked: int = 0

    @action(safe=True)
    def forecast(self, city: str, days: int = 1) -> str:
        """Forecast the weather of a city."""
        self.asked += 1
        return f"{city}: sun for {days}"

    @action
    async def measure(self, progress: Progress[float], city: str) -> float:
        """Measure the temperature."""
        progress.report(0.5)
        await trio.sleep(1)
        return 21.5


def look_up(number: int) -> dict[str, Any]:
    """Return an order by its number."""
    if number != 17:
        raise ActionFailed({"code": "UNKNOWN_ORDER", "message": f"there is no order {number}"})
    return {"number": number, "state": "sent"}


class Assistant(ThinkingAgent):
    """You help people.

    Be brief.
    """

    tools = (Weather, look_up)


def play(answers: Any, act: Any, *agents: Any, cls: type[ThinkingAgent] = Assistant, **fields: Any) -> Any:
    """Have `act` talk to an agent whose model gives these answers; return the log and what it returns."""
    log = Log()

    async def main() -> Any:
        async with open_node() as node:
            await node.start(Script, answers=tuple(answers), heard=log)
            for agent in agents:
                await node.start(agent)
            result = await act(await node.start(cls, **fields))
            assert not log.open
            assert not node.crash_reports
            assert "turn-" not in node.tree()
            return result

    return log, simulate(main)


def test_an_answer_comes_in_pieces() -> None:
    model, (_, items) = play([[TextDelta("Hel"), TextDelta("lo"), ModelEnd()]], said)
    assert [item.text for item in items if isinstance(item, TextChunk)] == ["Hel", "lo"]
    assert items[-1].text == "Hello"
    (request,) = model.asked
    assert request.instructions == "You help people.\n\nBe brief."
    assert request.messages == [UserMessage("hello")]
    assert [offer.name for offer in request.tools] == ["forecast", "measure", "look_up"]


def test_tools_are_actions_of_agents_and_functions() -> None:
    answers = [[wants("forecast", city="Bonn"), wants("look_up", "2", number=17), ModelEnd("tools")], "Fine."]
    model, (_, items) = play(answers, said, Weather)
    first, second = model.asked
    offers = {offer.name: offer for offer in first.tools}
    assert set(offers) == {"forecast", "measure", "look_up"}
    assert offers["forecast"].description == "Forecast the weather of a city."
    assert offers["forecast"].schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert second.messages[1:] == [
        ModelMessage("", [wants("forecast", city="Bonn"), wants("look_up", "2", number=17)]),
        ToolMessage("1", "forecast", "Bonn: sun for 1"),
        ToolMessage("2", "look_up", {"number": 17, "state": "sent"}),
    ]
    assert sum(isinstance(item, ToolCalled) for item in items) == 2
    assert sum(isinstance(item, ToolReturned) for item in items) == 2
    assert items[-1].text == "Fine."


def test_an_action_with_progress_is_a_tool() -> None:
    model, answer = play([wants("measure", city="Bonn"), "Warm."], answered, Weather)
    assert answer == "Warm."
    assert model.asked[1].messages[-1] == ToolMessage("1", "measure", 21.5)
