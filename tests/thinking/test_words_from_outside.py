"""What a model, a caller or a tool says ends no agent: at most the turn in which it is said."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator  # noqa: TC003 -- types of agents are read
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, ChildSpec, open_node, simulate
from lmos_actors._core import schema_problem
from lmos_actors.facades import ChatAgent, ChatMedia, ChatPart, ChatTurn, Tool
from lmos_actors.llm import Model, ModelEnd, ModelItem, ModelRequest, TextDelta, ToolMessage, ToolRequest
from lmos_actors.thinking import Budget, ThinkingAgent
from tests.thinking.models import Log, Script, answered, wants

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node, Ref

DEEP: Any = []
for _ in range(5_000):
    DEEP = [DEEP]
ROUND: list[Any] = []
ROUND.append(ROUND)


class Assistant(ThinkingAgent):
    """You assist."""


def in_a_world(act: Callable[[Ref[Any], Node], Any], model: Any, **fields: Any) -> Any:
    """Return what is done with an assistant; then it answers others, and nothing has crashed."""

    async def main() -> Any:
        async with open_node() as node:
            await node.start_child(ChildSpec("model", model))
            agent = await node.start_child(ChildSpec("agent", partial(Assistant, **fields)))
            found = await act(agent, node)
            assert node.crash_reports == ()
            return found

    return simulate(main)


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def surrogate(x: str = "") -> None:
    raise ActionFailed({"code": "NO_FILE", "message": "no file \udcff"})


def wordless(x: str = "") -> None:
    raise Odd


def exits(x: str = "") -> None:
    sys.exit(2)


async def _value(value: Any, _: Any) -> Any:
    return value


TOOLS = [
    surrogate,
    wordless,
    exits,
    Tool("deep", "", {"type": "object"}, partial(_value, DEEP)),
    Tool("round", "", {"type": "object"}, partial(_value, ROUND)),
]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda each: getattr(each, "name", None) or each.__name__)
def test_a_tool_that_says_the_strangest_things_has_failed(tool: Any) -> None:
    log, name = Log(), getattr(tool, "name", None) or tool.__name__

    async def act(agent: Ref[Any], _: Node) -> list[str]:
        return [await answered(agent, text) for text in ("one", "two")]

    model = partial(Script, answers=(wants(name), "done"), heard=log)
    assert in_a_world(act, model, tools=(tool,)) == ["done", "done"]
    (result, *_) = [each for each in log.asked[1].messages if isinstance(each, ToolMessage)]
    assert result.error


@pytest.mark.parametrize("name", ["turn", "tool", "of_client", "self", "name"])
def test_a_model_names_arguments_as_it_likes(name: str) -> None:
    log = Log()

    def look_up(x: str = "") -> str:
        return "found"

    async def act(agent: Ref[Any], _: Node) -> str:
        return await answered(agent, "one")

    model = partial(Script, answers=(wants("look_up", **{name: "x"}), "done"), heard=log)
    assert in_a_world(act, model, tools=(look_up,)) == "done"


class Raving(Model):
    """Says one thing."""

    said: Any

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        yield self.said
        yield ModelEnd()


@pytest.mark.parametrize(
    "said",
    [
        ToolRequest("1", "x", {"a": float("nan")}),
        ToolRequest("1", "x", {"a": DEEP}),
        ToolRequest("1", "\ud800", {}),
        TextDelta("\ud800"),
        "a text",
        None,
        TextDelta(7),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    ],
    ids=["nan", "deep", "surrogate name", "surrogate text", "text", "none", "number"],
)
def test_a_model_that_says_what_cannot_be_sent_has_failed(said: Any) -> None:
    async def act(agent: Ref[Any], _: Node) -> None:
        for _ in range(2):
            with pytest.raises(ActionFailed, match="MODEL_MALFORMED"):
                await answered(agent, "one")

    in_a_world(act, partial(Raving, said=said))


def test_a_message_with_very_many_files_is_read_in_a_moment() -> None:
    part = ChatPart("image", media=ChatMedia("image/png", data=""))

    async def act(agent: Ref[Any], _: Node) -> str:
        return await answered(agent, "one", parts=[part] * 20_000)

    budget = Budget(tokens=10**9)
    assert in_a_world(act, partial(Script, answers=("done",)), budget=budget) == "done"


class Careless(ChatAgent):
    """Says what cannot be sent."""

    async def reply(self, turn: ChatTurn) -> AsyncGenerator[Any]:
        if turn.text == "wait":
            await trio.sleep(10)
        elif turn.text == "use":
            await turn.use(str, object=float("nan"))
        else:
            yield "\ud800" if turn.text == "text" else ChatPart("text", text=7)  # type: ignore[arg-type] # pyright: ignore
        yield "done"


def test_what_cannot_be_sent_ends_the_turn_that_says_it_and_no_other() -> None:
    async def main() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            agent = await node.start(Careless)
            said = list[str]()

            async def wait() -> None:
                said.append(await answered(agent, "wait"))

            nursery.start_soon(wait)
            for text in ("text", "part", "use"):
                with pytest.raises(ActionFailed):
                    await answered(agent, text)
            await trio.sleep(11)
            assert said == ["done"]

    simulate(main)


def doubling(depth: int) -> str:
    """Return a schema whose references lead to one another twice."""
    ends: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, depth):
        ends[f"d{number}"] = {"anyOf": [{"$ref": f"#/$defs/d{number - 1}"}] * 2}
    return json.dumps({"$defs": ends, "$ref": f"#/$defs/d{depth - 1}"})


def test_a_schema_that_unfolds_without_an_end_is_none() -> None:
    assert schema_problem(doubling(5)) is None
    problem = schema_problem(doubling(40))
    assert problem is not None
    assert "10,000 places" in problem
    hidden = json.loads(doubling(40))
    hidden["properties"] = {"definitions": {"anyOf": [{"$ref": hidden.pop("$ref")}]}}
    assert schema_problem(json.dumps(hidden)) is not None
    within = {"properties": {"of": {"items": {"$ref": "#/$defs/tree"}}}}
    assert schema_problem(json.dumps({"$defs": {"tree": within}, "$ref": "#/$defs/tree"})) is None
    itself = [{"type": "null"}, {"$ref": "#/anyOf/0"}, {"$ref": "#"}]
    assert schema_problem(json.dumps({"anyOf": itself})) is None
