"""Agents of which only a description is known: found in a directory or consumed, their actions are tools."""

from __future__ import annotations

import logging
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, open_node, simulate
from lmos_actors.directory import ThingDirectory
from lmos_actors.errors import RepeatedCallWarning, ToolFailed
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.llm import ModelEnd, ToolMessage
from lmos_actors.security import Access, Security
from lmos_actors.thinking import ThinkingAgent, ToolLimits, think, tools_of
from lmos_actors.transport import MemoryNetwork
from tests.thinking.models import Log, Script, answered, wants
from tests.thinking.test_elsewhere import Orders

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node

FAR = "http://far/agents/orders"
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


class Finder(ThinkingAgent):
    """You help."""

    def tools_for(self, turn: Any) -> Any:
        return [self.find(Agent, capability="orders")]


@asynccontextmanager
async def nodes(
    *, registers: bool = True, security: Security | None = None
) -> AsyncGenerator[tuple[Node, Node, Node]]:
    """A directory, a node that registers there, and one that looks there."""
    network, register = MemoryNetwork(), "http://hub" if registers else None
    async with (
        open_node(listen="ws://hub:80", directory=True, network=network) as hub,
        open_node(listen="ws://far:80", register=register, network=network, security=security) as far,
        open_node(lookup="http://hub", network=network) as here,
    ):
        yield hub, far, here


async def tools_of_stranger(hub: Node, here: Node, actions: dict[str, Any]) -> Any:
    """Return the ref to an agent that a stranger has described in the directory."""
    thing = {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "id": FAR,
        "title": "Stranger",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        "base": "ws://far/ws",
        "actions": {
            name: {
                "forms": [{"href": "ws://far/ws", "subprotocol": "lmosprotocol", "op": "invokeaction"}],
                **each,
            }
            for name, each in actions.items()
        },
    }
    await hub.find(ThingDirectory).invoke(ThingDirectory.put_thing, FAR, thing)
    (found,) = await here.search(title="Stranger")
    return found.ref(Agent)


async def results(here: Node, tools: Any, *calls: Any, **options: Any) -> list[Any]:
    """Return what a model gets for calls in one answer: a result, or an error."""
    model = await here.start(Script, answers=([*calls, ModelEnd("tools")], "Done."))
    thought = await think(model, "hello", tools=tools, **options)
    return [each.error or each.result for each in thought.messages if isinstance(each, ToolMessage)]


def test_an_agent_finds_tools_in_a_directory_by_what_it_looks_for() -> None:
    log = Log()

    async def main() -> None:
        async with nodes() as (_, far, here):
            await here.start(Script, answers=("None.", wants("look_up", number=17), "Sent."), heard=log)
            finder, began = await here.start(Finder), trio.current_time()
            assert await answered(finder) == "None."
            assert trio.current_time() - began < 10
            assert log.asked[0].tools == []
            orders = await far.start(Orders)
            await trio.sleep(5)
            assert await answered(finder) == "Sent."
            offers = {each.name: (each.description, each.schema) for each in log.asked[1].tools}
            assert offers["look_up"] == ("Return the state of an order.", NUMBER)
            assert list(offers) == ["look_up", "refund", "wait"]
            assert log.asked[2].messages[-1] == ToolMessage("1", "look_up", "sent")
            assert orders.statistics().handled == 1

    simulate(main)


class Caller(ChatAgent):
    """Uses what it finds, as code; its turns survive."""

    async def reply(self, turn: ChatTurn) -> str:
        tools = tools_of([self.find(Agent, capability="orders")])
        return str(await tools[turn.text].call({"number": 17}))


def test_a_turn_that_survives_uses_what_it_finds_and_what_acts_again_is_named() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with (
            open_node(listen="ws://hub:80", directory=True, network=network),
            open_node(listen="ws://far:80", register="http://hub", network=network) as far,
            open_node(lookup="http://hub", network=network, store="memory:") as here,
        ):
            await far.start(Orders)
            await here.find(Agent, capability="orders").ready()
            caller = await here.start(Caller)
            assert await answered(caller, "look_up") == "sent"
            with pytest.warns(RepeatedCallWarning, match=r"Caller.reply asks '.*orders' for 'refund'"):
                await answered(caller, "refund")

    simulate(main)


def test_what_was_found_or_consumed_is_a_source_of_tools_near_and_far() -> None:
    async def main() -> None:
        async with nodes() as (_, far, here):
            await far.start(Orders)
            await trio.sleep(1)
            (found,) = await here.search(capability="orders")
            with pytest.raises(TypeError, match=r"by its ref: found\.ref\(Agent\)"):
                tools_of([found])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
            (near,) = await far.search(capability="orders")
            refs = [found.ref(Agent), near.ref(Agent), await here.consume(Agent, FAR)]
            for ref in refs:
                again = {name: tool.repeatable for name, tool in tools_of([ref]).items()}
                assert again == {"look_up": True, "refund": False, "wait": False}
                assert await tools_of([ref])["look_up"].call({"number": 17}) == "sent"
            (tool, *_) = tools_of(refs[:1]).values()
            assert tool.agent == f"{FAR} at ws://far/ws"  # no agent here has that path

    simulate(main)


def test_a_found_agent_has_the_checks_and_limits_of_other_tools() -> None:
    async def main() -> None:
        async with nodes() as (_, far, here):
            orders = await far.start(Orders)
            await trio.sleep(1)
            (found,) = await here.search(capability="orders")
            calls = [
                wants("look_up", "1", number="x"),
                wants("look_up", "2", number=-1),
                wants("wait", "3"),
                wants("refund", "4", number=1),
            ]
            got = await results(here, [found.ref(Agent)], *calls, limits=ToolLimits(seconds=5))
            assert got == [
                'its arguments are not right: "x" is not of type "integer" - at `$.number`',
                "NO_ORDER: there is none",
                "no answer within 5 s: it was broken off, and may have done its work or not",
                "paid back",
            ]
            assert orders.statistics().accepted == 3  # the first call has not left

    simulate(main)


def test_references_and_names_in_inputs_are_what_they_were() -> None:
    pair = {"type": "array", "items": [{"type": "integer"}]}
    inputs = {
        "look_up": {"type": "array", "items": {"$ref": "#/$defs/number"}, "$defs": {"number": NUMBER}},
        "refund": {"type": "object", "properties": {"const": pair, "items": {"type": "integer"}}},
    }

    async def main() -> None:
        async with nodes(registers=False) as (hub, _, here):
            actions = {name: {"input": schema} for name, schema in inputs.items()}
            tools = tools_of([await tools_of_stranger(hub, here, actions)])
            with pytest.raises(ToolFailed, match=r"is not of type .*integer.* at `\$\.input\[0\]\.number`"):
                await tools["look_up"].call({"input": [{"number": "x"}]})
            with pytest.raises(ToolFailed, match=r"is not of type .*integer.* at `\$\.const\[0\]`"):
                await tools["refund"].call({"const": ["x"]})

    simulate(main)


def test_an_agent_that_lets_nobody_in_is_said_to_do_so() -> None:
    async def main() -> None:
        async with nodes(registers=False, security=Security(access={"orders": Access(invoke=())})) as (
            hub,
            far,
            here,
        ):
            await far.start(Orders)
            ref = await tools_of_stranger(hub, here, {"look_up": {"input": NUMBER}})
            (got,) = await results(here, [ref], wants("look_up", number=17))
            assert "you may not use this" in got

    simulate(main)


def test_inputs_that_are_no_plain_object_are_one_argument() -> None:
    async def main() -> None:
        async with nodes(registers=False) as (hub, far, here):
            await far.start(Orders)
            whole = {
                "look_up": {"input": {**NUMBER, "oneOf": [{"minProperties": 1}]}},
                "refund": {"input": {"type": "array", "items": [{"type": "integer"}]}},
            }
            ref = await tools_of_stranger(hub, here, whole)
            tools = tools_of([ref])
            assert tools["look_up"].schema["required"] == ["input"]
            items = tools["refund"].schema["properties"]["input"]
            assert items == {"type": "array", "prefixItems": [{"type": "integer"}]}
            got = await results(
                here,
                [ref],
                wants("look_up", "1", input={"number": 17}),
                wants("look_up", "2", number=17),
                wants("refund", "3", input=[1]),
            )
            assert got[0] == "sent"
            assert '"input" is a required property' in got[1]
            assert "its arguments are not right" in got[2]  # the agent says so: the description lies

    simulate(main)


ODD: dict[str, Any] = {
    "": {"title": "Nameless"},
    "посмотреть": {},
    "look up": {"title": "Look"},
    "look/up": {},
    "mine": {},
    "umlaut": {"input": {"type": "object", "properties": {"größe": {"type": "integer"}}}},
    "away": {"input": {"type": "object", "$ref": "http://127.0.0.1:1/schema.json"}},
    "wurst": {"input": {"type": "object", "not": {"type": "wurst"}}},
    "huge": {"description": "x" * 100_000},
    "flood": {"lmosx:streams": {"output": {"contentType": "application/json"}}},
}


def test_what_a_stranger_says_of_itself_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    def mine(x: str = "") -> str:
        return "mine"

    async def main() -> None:
        async with nodes() as (hub, _, here):
            tools = tools_of([await tools_of_stranger(hub, here, ODD), mine])
            assert [re.sub("_[0-9a-f]{8}$", "_#", each) for each in tools] == [
                "mine", "tool_#", "look_up_#", "look_up_#", "Stranger_mine", "umlaut",
            ]  # fmt: skip
            assert tools["mine"].agent == ""
            assert [each.description for name, each in tools.items() if "look" in name] == ["Look", ""]
            assert list(tools["umlaut"].schema["properties"]) == ["input"]
            (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
            assert line.startswith("left out of the tools of 'orders': '': it has no name; 'away': ")
            assert "a schema must not refer to another document" in line
            assert line.endswith("; and 1 more")
            many = await tools_of_stranger(hub, here, {f"a{n}": {} for n in range(300)})
            assert len(tools_of([many])) == 128
            long = {f"a{n}": {"description": "x" * 30_000} for n in range(8)}
            assert len(tools_of([await tools_of_stranger(hub, here, long)])) == 4

    simulate(main)


def test_an_agent_that_has_gone_has_not_begun() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(network=network) as here:
            async with open_node(listen="ws://far:80", network=network) as far:
                await far.start(Orders)
                ref = await here.consume(Agent, FAR)
            (got,) = await results(here, [ref], wants("look_up", number=17))
            assert got == "the tool is busy or not there now; it has not begun"

    simulate(main)
