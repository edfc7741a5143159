"""Tools that are declared on the class, and that the clients of users carry out."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pytest
import trio

from lmos_actors import ChildSpec, open_node, simulate
from lmos_actors.errors import ToolFailed
from lmos_actors.facades import ChatAgent, ClientAnswer, Tool, ToolCalled, TurnDone
from lmos_actors.llm import ToolMessage
from lmos_actors.thinking import ThinkingAgent
from tests.thinking.models import Log, Script, answered, wants

if TYPE_CHECKING:
    from lmos_actors import Ref


def look_up(number: int) -> str:
    """Look something up."""
    return f"{number}"


class Guide(ThinkingAgent):
    """You guide people."""

    tools = (look_up,)
    client_tools = (
        Tool("position", "Return where the user is.", {"type": "object", "properties": {"accuracy": {}}}),
    )


@attrs.define
class Client:
    """A client that carries out tools: it answers each call by the next of its answers."""

    answers: list[ClientAnswer]
    calls: list[ToolCalled] = attrs.field(factory=list[ToolCalled])

    async def talk(self, agent: Ref[Any], text: str) -> str:
        asked, to_answer = trio.open_memory_channel[ToolCalled](9)

        async def answers() -> AsyncIterator[ClientAnswer]:
            async for call in to_answer:
                yield msgspec.structs.replace(self.answers.pop(0), call_id=call.id)

        async with agent.stream(ChatAgent.converse, answers(), text) as items:
            async for item in items:
                if isinstance(item, ToolCalled) and item.by_client:
                    self.calls.append(item)
                    await asked.send(item)
                if isinstance(item, TurnDone):
                    return item.text
        raise AssertionError("no end")


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (ClientAnswer("", "result", result={"town": "Bonn"}), {"town": "Bonn"}),
        (ClientAnswer("", "refused"), "refused"),
        (ClientAnswer("", "error", error="no satellite"), "no satellite"),
    ],
)
def test_tools_that_clients_carry_out(answer: ClientAnswer, seen: Any) -> None:
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            await node.start_child(
                ChildSpec(
                    "model", partial(Script, answers=(wants("position", accuracy=5), "there"), heard=log)
                )
            )
            guide = await node.start(Guide)
            client = Client([answer])
            assert await client.talk(guide, "where am I?") == "there"
            (call,) = client.calls
            assert (call.name, call.arguments) == ("position", {"accuracy": 5})

    simulate(main)
    assert [tool.name for tool in log.asked[0].tools] == ["position", "look_up"]
    (result,) = [each for each in log.asked[1].messages if isinstance(each, ToolMessage)]
    assert seen in (result.result, result.error)


def test_other_clients_are_offered_none() -> None:
    log = Log()

    async def main() -> None:
        async with open_node() as node:
            await node.start_child(
                ChildSpec("model", partial(Script, answers=(wants("position"), "nowhere"), heard=log))
            )
            assert await answered(await node.start(Guide), "where am I?") == "nowhere"

    simulate(main)
    assert [tool.name for tool in log.asked[0].tools] == ["look_up"]


@pytest.mark.parametrize("wrong", ["position", ("position",), (look_up,), 7])
def test_what_is_no_tool_of_clients(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"Lost.client_tools is a tuple of tools, such as"):
        type("Lost", (ThinkingAgent,), {"client_tools": wrong, "__doc__": "Lost."})


async def test_a_tool_of_clients_that_is_used_here() -> None:
    with pytest.raises(ToolFailed, match="it is for clients"):
        await Guide.client_tools[0].call({})
