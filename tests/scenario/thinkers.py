"""A desk that asks a model and calls tools, written out: what scenarios of models are tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project, story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.reports import RunResult

DESK = '''\
from __future__ import annotations

from typing import Any

from lmos_actors import ActionFailed, Agent, Ref, action
from lmos_actors.llm import (
    Model,
    ModelMessage,
    TextDelta,
    ToolMessage,
    ToolOffer,
    ToolRequest,
    UserMessage,
)


def offer(name: str, doc: str) -> ToolOffer:
    number = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    return ToolOffer(name, doc, number)


class Orders(Agent):
    """Knows orders."""

    @action
    def look_up(self, number: int) -> dict[str, str]:
        if number == 404:
            raise ActionFailed({"code": "NO_ORDER", "message": "no such order"})
        return {"state": "shipped" if number == 17 else "lost"}

    @action
    def refund(self, number: int) -> str:
        return "refunded"


class Desk(Agent):
    """Thinks with a model, and orders as its tools. `fault` is how it is broken."""

    model: Ref[Model]
    orders: Ref[Orders]
    fault: str = ""
    doc: str = "Look an order up."

    @action(concurrency=64)
    async def ask(self, text: str) -> str:
        messages: list[Any] = [UserMessage(text)]
        tools = [offer("look_up", self.doc), offer("refund", "Pay an order back.")]
        if self.fault == "renamed":
            tools[0] = offer("find", self.doc)
        for _ in range(8):
            said, asked = "", []
            async with self.model.stream(
                Model.generate, messages=messages, tools=tools, instructions="Be kind."
            ) as items:
                async for item in items:
                    if isinstance(item, TextDelta):
                        said += item.text
                    elif isinstance(item, ToolRequest):
                        asked.append(item)
            if not asked:
                return said
            messages.append(ModelMessage(said, asked))
            for one in asked:
                messages.append(await self._call(one))
        return "enough"

    async def _call(self, one: ToolRequest) -> ToolMessage:
        if one.unreadable:
            return ToolMessage(one.id, one.name, error="that is no JSON")
        try:
            if one.name not in ("look_up", "refund"):
                raise ActionFailed("no such tool")
            if self.fault == "no calls":
                raise ActionFailed("not today")
            name = Orders.look_up if one.name == "look_up" else Orders.refund
            result = await self.orders.invoke(name, **one.arguments)
        except ActionFailed as error:
            return ToolMessage(one.id, one.name, error=str(error))
        return ToolMessage(one.id, one.name, result)
'''


def write_desk(project: Project) -> None:
    """Write the module of the desk into a project."""
    project.write("pyproject.toml", "")
    project.write("thinking_desk.py", DESK)


def agents(model: Any, **desk: Any) -> dict[str, Any]:
    """Return the agents of a file with a desk; `model` is the entry of its model."""
    args = {"model": "$(agents.model)", "orders": "$(agents.orders)", **desk}
    return {
        "desk": {"from": "agent", "use": "thinking_desk.py:Desk", "args": args},
        "orders": {"from": "agent", "use": "thinking_desk.py:Orders"},
        "model": model,
    }


def scripted(*rules: Any, **more: Any) -> dict[str, Any]:
    """Return the entry of a mock that is a model."""
    return {"from": "mock", "speaks": "model", "rules": list(rules), **more}


def calls(tool: str, number: Any = 17, **more: Any) -> dict[str, Any]:
    """Return the part of a reply that calls a tool."""
    return {"call": {"tool": tool, "arguments": {"number": number}, **more}}


LOOK_UP = {"when": {"contains": "order"}, "reply": [calls("look_up")]}
SHIPPED = {
    "when": {"after": "look_up", "match": {"$.tools.look_up.state": "shipped"}},
    "output": "It is on its way.",
}


def ask(text: str = "Where is my order?", **more: Any) -> dict[str, Any]:
    """Return a step that asks the desk."""
    return {"do": "invoke", "id": "ask", "target": "desk", "action": "ask", "input": {"text": text}, **more}


def said(output: str, of: str = "ask") -> dict[str, Any]:
    """Return a step that expects an answer."""
    return {"do": "expect", "that": "output", "of": of, "equals": output}


def run(project: Project, steps: Sequence[Any], cast: dict[str, Any], **more: Any) -> RunResult:
    """Run steps with a cast."""
    file = project.root / project.write("story.yaml", story(*steps, agents=cast, **more))
    resolved = load_scenario(file)
    return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


def passes(project: Project, steps: Sequence[Any], cast: dict[str, Any], **more: Any) -> RunResult:
    """Run steps, which pass."""
    result = run(project, steps, cast, **more)
    assert result.failures == ()
    assert [check.saw for check in result.judged if not check.ok] == []
    assert result.ended == "passed"
    return result


def fails(project: Project, steps: Sequence[Any], cast: dict[str, Any], **more: Any) -> str:
    """Run steps, which fail; return all that is said of it."""
    result = run(project, steps, cast, **more)
    assert result.ended == "failed"
    found = [f"{one.what}: {one.expected}: {one.saw}" for one in result.failures]
    found += [f"{one.name}: {one.expected}: {one.saw}" for one in result.judged if not one.ok]
    return "\n".join(found)


def mistakes(project: Project, steps: Sequence[Any], cast: dict[str, Any], **more: Any) -> list[str]:
    """Return the mistakes of a file that is wrong."""
    file = project.root / project.write("wrong.yaml", story(*steps, agents=cast, **more))
    try:
        load_scenario(file)
    except FileError as error:
        return [mistake.message for mistake in error.mistakes]
    return []
