"""The tools by which models remember: of their own user, as data, and only where an agent says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import open_node, simulate
from lmos_actors.errors import StoreFailed, ToolFailed
from lmos_actors.facades import ChatTurn, VoiceCall, open_chat
from lmos_actors.llm import ToolMessage
from lmos_actors.memories import Memories
from lmos_actors.security import Access, Bearer, BearerToken, Credentials, NoSec, Security
from lmos_actors.thinking import MEMORY_TOOLS, ThinkingAgent, memory_tools, think, tools_of
from lmos_actors.transport import MemoryNetwork
from tests.memories.keepers import KEEPERS, Keeper, keeper_on
from tests.persistence.stores import StoreOfTest
from tests.security.nodes.guarded import Secrets
from tests.thinking.models import Log, Script, answered, wants

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.llm import ModelRequest


class Desk(ThinkingAgent):
    """You remember."""

    tools = (MEMORY_TOOLS,)

    def identity_for(self, turn: ChatTurn | VoiceCall) -> str | None:
        guest = turn.metadata.get("guest")
        return str(guest) if guest else turn.principal


def results(log: Log) -> list[Any]:
    """What the model has got of its tools, in all requests, each once."""
    last = log.asked[-1].messages
    return [each.error or each.result for each in last if isinstance(each, ToolMessage)]


async def test_a_model_remembers_recalls_and_forgets() -> None:
    log = Log()
    script = (
        [wants("remember", "1", text="likes tea", tags=["taste"])],
        "noted",
        wants("recall", "2", query="tea?"),
        lambda request: [wants("forget", "3", id=results(log)[0][0]["id"])],
        wants("recall", "4"),
        "gone",
    )
    async with open_node() as node:
        await node.start(Script, answers=script, heard=log)
        desk = await node.start(Desk)
        assert await answered(desk, "I like tea", metadata={"guest": "ann"}) == "noted"
        assert await answered(desk, "forget it", metadata={"guest": "ann"}) == "gone"
    first, then = results(log)[0], results(log)[1:]
    assert [(each["text"], each["tags"]) for each in first] == [("likes tea", ["taste"])]
    assert then == [True, []]
    assert [offer.name for offer in log.asked[0].tools] == ["remember", "recall", "forget"]


async def test_nothing_is_offered_unless_the_agent_says_so() -> None:
    class Plain(ThinkingAgent):
        """You answer."""

    log = Log()
    async with open_node() as node:
        await node.start(Script, answers=("hello",), heard=log)
        await answered(await node.start(Plain))
    assert not log.asked[0].tools


async def test_a_tool_of_the_same_name_is_a_mistake_that_is_named() -> None:
    def recall() -> str:
        """Recall a letter."""
        return "a"

    with pytest.raises(ValueError, match="two tools are named 'recall'"):
        async with keeper_on(None) as keeper:
            tools_of([recall, *memory_tools(Memories(keeper, "a"))])


def test_they_are_for_thinking_agents() -> None:
    with pytest.raises(TypeError, match="give memory_tools\\(memories\\)"):
        tools_of([MEMORY_TOOLS])


def test_a_model_has_the_memories_of_its_own_user(tmp_path: Path) -> None:
    """Whatever it asks, also with the id of another's memory; without a name it has none, and is told so."""
    secrets, log = Secrets(tmp_path), Log()
    ids: list[str] = []

    def last(request: ModelRequest) -> Any:
        return results(log)[-1]

    def forget(request: ModelRequest) -> Any:
        return [wants("forget", "3", id=ids[0])]

    script = (
        [wants("remember", "1", text="alice's secret")],
        lambda request: ids.append(last(request)) or "noted",
        [wants("recall", "2", query="alice's secret"), wants("recall", "3", query="", most=50)],
        forget,
        "nothing",
        [wants("recall", "4", query="secret")],
        "none",
    )

    async def main() -> None:
        tokens = {name: secrets.put(name, f"token-{name}") for name in ("alice", "bob")}
        anybody = Access(read="anyone", invoke="anyone")
        security = Security(schemes=(NoSec(), Bearer(tokens)), access={"*": anybody})
        network = MemoryNetwork()
        async with open_node(
            listen="ws://desk:80", omnia=True, network=network, security=security, insecure=True
        ) as node:
            await node.start(Script, answers=script, heard=log)
            await node.start(Desk)
            for name in ("alice", "bob", None):
                place = {"http://desk": BearerToken(secrets.put("out", f"token-{name}"))}
                shown = None if name is None else Credentials(place, allow_insecure=True)
                async with open_chat("ws://desk:80/agents/desk", network=network, credentials=shown) as chat:
                    await chat.say("hello")
                if name == "bob":
                    assert results(log) == [[], [], False]
        (error,) = results(log)
        assert "NO_IDENTITY" in error
        assert "has no name" in error

    simulate(main)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("remember", {}, "missing required field `text`"),
        ("remember", {"text": ""}, "1 to 4096"),
        ("remember", {"text": "x" * 5_000}, "1 to 4096"),
        ("remember", {"text": "a", "tags": ["x"] * 20}, "at most 16 tags"),
        ("remember", {"text": "a", "identity": "bob"}, "unknown field"),
        ("recall", {"query": "x", "most": 51}, "<= 50"),
        ("forget", {"id": 7}, "Expected `str`"),
    ],
)
async def test_what_a_model_asks_wrongly(name: str, arguments: dict[str, Any], why: str) -> None:
    async with keeper_on(None) as keeper:
        tools = {tool.name: tool for tool in memory_tools(Memories(keeper, "alice"))}
        with pytest.raises(ToolFailed, match=why):
            await tools[name].call(arguments)
        assert all(tool.repeatable for tool in tools.values())


async def test_a_store_that_fails_ends_no_turn() -> None:
    store = StoreOfTest()
    async with keeper_on(store) as keeper:
        (remember, *_) = memory_tools(Memories(keeper, "alice"))
        store.fails = True
        with pytest.raises(ToolFailed) as failed:
            await remember.call({"text": "likes tea"})
        assert isinstance(failed.value.__cause__, StoreFailed)
        store.fails = False


async def test_a_loop_of_ones_own() -> None:
    log = Log()
    async with open_node() as node:
        model = await node.start(Script, answers=([wants("recall", query="tea")], "yes"), heard=log)
        await node.start(Keeper)
        memories = Memories(KEEPERS["keeper"], "alice")
        await memories.remember("likes tea")
        thought = await think(model, "Does she like tea?", tools=memory_tools(memories))
    assert thought.answer == "yes"
    assert results(log)[0][0]["text"] == "likes tea"
