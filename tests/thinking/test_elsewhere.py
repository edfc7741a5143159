"""Models and tools of other nodes: over frames in memory and over sockets, by class and by description."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, Pool, action, open_node, simulate
from lmos_actors.actors import About
from lmos_actors.facades import ChatMedia, ChatPart, TextChunk, open_chat
from lmos_actors.llm import (
    Model,
    ModelEnd,
    ModelFile,
    Reasoning,
    TextDelta,
    ToolMessage,
    Usage,
    UserMessage,
)
from lmos_actors.security import Access, Bearer, BearerToken, Credentials, Security
from lmos_actors.testing import settle
from lmos_actors.thinking import ThinkingAgent, think, tools_of
from lmos_actors.transport import MemoryNetwork
from tests.security.nodes.guarded import Secrets
from tests.thinking.models import Log, Script, answered, said, wants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors.llm import ModelItem, ModelRequest


class Orders(Agent, tool=True, about=About(capabilities=("orders",))):
    """Knows orders."""

    @action(safe=True)
    def look_up(self, number: int) -> str:
        """Return the state of an order."""
        if number < 0:
            raise ActionFailed({"code": "NO_ORDER", "message": "there is none"})
        return "sent"

    @action
    def refund(self, number: int) -> str:
        """Pay the money back."""
        return "paid back"

    @action
    async def wait(self) -> None:
        """Wait."""
        await trio.sleep_forever()


class Desk(ThinkingAgent):
    """You help."""


ANSWER = [
    [
        Reasoning("Well.", state="signed"),
        TextDelta("I look. "),
        wants("look_up", number=17),
        ModelEnd("tools"),
    ],
    [TextDelta("Se"), TextDelta("nt."), ModelEnd(usage=Usage(100, 10))],
]


def whole(log: Log, items: list[Any]) -> None:
    """Check a conversation with a model elsewhere."""
    assert [item.text for item in items if isinstance(item, TextChunk)] == ["I look. ", "Se", "nt."]
    first, second = log.asked
    assert first.instructions == "You help."
    assert second.messages[0] == UserMessage("hello", [ModelFile("text/plain", b"\x00\xff")])
    assert second.messages[-1] == ToolMessage("1", "look_up", "sent")
    assert second.messages[1].reasoning == [Reasoning("Well.", state="signed")]  # type: ignore[union-attr]
    assert [each.name for each in first.tools] == ["look_up", "refund", "wait"]


PART = ChatPart("file", media=ChatMedia("text/plain", data="AP8="))


def test_model_and_tools_over_frames() -> None:
    network, log = MemoryNetwork(), Log()

    async def main() -> None:
        async with (
            open_node(listen="ws://far:80", network=network) as far,
            open_node(network=network) as here,
        ):
            await far.start(Script, answers=tuple(ANSWER), heard=log)
            await far.start(Orders)
            model = await here.consume(Script, "http://far/agents/script")
            orders = await here.consume(Orders, "http://far/agents/orders")
            desk = await here.start(Desk, model=model, tools=[orders])
            whole(log, (await said(desk, parts=[PART]))[1])

    simulate(main)


async def test_model_and_tools_over_sockets() -> None:
    log = Log()
    async with open_node(listen="ws://127.0.0.1:0") as far, open_node() as here:
        await far.start(Script, answers=tuple(ANSWER), heard=log)
        await far.start(Orders)
        url = far.urls[0].replace("ws", "http")
        model = await here.consume(Script, f"{url}/agents/script")
        orders = await here.consume(Orders, f"{url}/agents/orders")
        desk = await here.start(Desk, model=model, tools=[orders])
        whole(log, (await said(desk, parts=[PART]))[1])


def test_a_thing_without_a_class_is_a_tool_by_its_description() -> None:
    network, log = MemoryNetwork(), Log()

    async def main() -> None:
        async with (
            open_node(listen="ws://far:80", network=network) as far,
            open_node(network=network) as here,
        ):
            await far.start(Orders)
            thing = await here.consume_thing("http://far/agents/orders")
            calls = [
                wants("look_up", number=17),
                wants("look_up", "2", number="x"),
                wants("look_up", "3", number=-1),
            ]
            model = await here.start(Script, answers=([*calls, ModelEnd("tools")], "Done."), heard=log)
            thought = await think(model, "hello", tools=[thing])
            first, second, third = (each for each in thought.messages if isinstance(each, ToolMessage))
            assert first.result == "sent"
            assert second.error == 'its arguments are not right: "x" is not of type "integer" - at `$.number`'
            assert third.error == "NO_ORDER: there is none"
            offers = {each.name: each for each in log.asked[0].tools}
            assert offers["look_up"].description == "Return the state of an order."
            assert offers["look_up"].schema["properties"] == {"number": {"type": "integer"}}
            assert {name: tool.repeatable for name, tool in tools_of([thing]).items()} == {
                "look_up": True,
                "refund": False,
                "wait": False,
            }
            bare = await here.consume_thing("ws://far/agents/orders")
            with pytest.raises(TypeError, match="has no description"):
                tools_of([bare])

    simulate(main)


def test_a_tool_is_found_by_capability_in_a_directory() -> None:
    network, log = MemoryNetwork(), Log()

    class Finder(ThinkingAgent):
        """You help."""

        def tools_for(self, turn: Any) -> Any:
            return [self.find(Orders, capability="orders")]

    async def main() -> None:
        async with (
            open_node(listen="ws://hub:80", directory=True, network=network),
            open_node(listen="ws://far:80", register="http://hub", network=network) as far,
            open_node(lookup="http://hub", network=network) as here,
        ):
            orders = await far.start(Orders)
            await here.find(Orders, capability="orders").ready()
            await here.start(Script, answers=(wants("look_up", number=17), "Sent."), heard=log)
            assert await answered(await here.start(Finder)) == "Sent."
            assert log.asked[1].messages[-1] == ToolMessage("1", "look_up", "sent")
            assert orders.statistics().handled == 1

    simulate(main)


def test_a_model_without_a_name_is_found_in_a_directory() -> None:
    """It is any model, of whichever class: directories know descriptions, and no classes."""
    network = MemoryNetwork()

    async def main() -> None:
        async with (
            open_node(listen="ws://hub:80", directory=True, network=network),
            open_node(listen="ws://far:80", register="http://hub", network=network) as far,
            open_node(lookup="http://hub", network=network) as here,
        ):
            await far.start(Orders)
            desk = await here.start(Desk)
            with pytest.raises(ActionFailed, match=r"NO_MODEL: .*model=sibling\(\"model\"\)"):
                await answered(desk)
            model = await far.start(Script, answers=("From afar.",))
            await here.find(Model, affordance="generate").ready()
            assert await answered(desk) == "From afar."
            assert model.statistics().handled == 1
            await here.start(Script, answers=("From here.",))
            assert await answered(desk) == "From here."

    simulate(main)


def test_the_access_list_of_the_other_node_decides(tmp_path: Path) -> None:
    network, log, secrets = MemoryNetwork(), Log(), Secrets(tmp_path)
    guard = Security(
        schemes=(Bearer({"desk": secrets.put("desk", "token-d"), "ada": secrets.put("ada", "token-a")}),),
        access={"orders": Access(read=("desk", "ada"), invoke=("ada",))},
    )
    token = BearerToken(secrets.put("out", "token-d"))

    async def main() -> None:
        async with (
            open_node(listen="ws://far:80", network=network, security=guard, insecure=True) as far,
            open_node(
                network=network, credentials=Credentials({"http://far": token}, allow_insecure=True)
            ) as here,
        ):
            await far.start(Orders)
            orders = await here.consume(Orders, "http://far/agents/orders")
            model = await here.start(Script, answers=(wants("refund", number=17), "I may not."), heard=log)
            assert await answered(await here.start(Desk, model=model, tools=[orders])) == "I may not."
            last = log.asked[1].messages[-1]
            assert isinstance(last, ToolMessage)
            assert last.error.startswith("Forbidden: you may not use this.")

    simulate(main)


@pytest.mark.parametrize("tool", [False, True])
def test_a_connection_that_is_lost_in_the_middle(tool: bool) -> None:
    """A request to the model is MODEL_CUT or asked again; a tool has an unknown outcome, and says so."""
    network, log = MemoryNetwork(), Log()

    def hang(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            yield TextDelta("I ")
            await trio.sleep_forever()

        return items()

    async def main() -> None:
        async with open_node(network=network) as here, trio.open_nursery() as nursery:
            outcome: list[Any] = []
            async with open_node(listen="ws://far:80", network=network) as far:
                await far.start(Script, answers=(hang,), heard=log)
                await far.start(Orders)
                near = await here.start(Script, answers=(wants("wait"), "Unknown."), heard=Log())
                model = near if tool else await here.consume(Script, "http://far/agents/script")
                orders = await here.consume(Orders, "http://far/agents/orders")

                async def run() -> None:
                    try:
                        outcome.append(await think(model, "hello", tools=[orders]))
                    except ActionFailed as error:
                        outcome.append(error)

                nursery.start_soon(run)
                await settle()
            (found,) = outcome
            if tool:
                assert found.answer == "Unknown."
                assert found.messages[2].error.startswith("OutcomeUnknown")
            else:
                assert found.code == "MODEL_CUT"
            assert not log.open

    simulate(main)


def test_a_client_that_leaves_cancels_what_is_elsewhere() -> None:
    network, log = MemoryNetwork(), Log()

    def hang(request: ModelRequest) -> Any:
        async def items() -> AsyncGenerator[ModelItem]:
            yield TextDelta("I ")
            await trio.sleep_forever()

        return items()

    async def main() -> None:
        async with (
            open_node(listen="ws://far:80", network=network) as far,
            open_node(listen="ws://here:80", omnia=True, network=network) as here,
        ):
            await far.start(Script, answers=(hang,), heard=log)
            model = await here.consume(Script, "http://far/agents/script")
            await here.start(Desk, model=model)
            async with (
                open_chat("ws://here:80/?agent=desk", network=network) as chat,
                chat.stream("hello") as items,
            ):
                async for item in items:
                    if isinstance(item, TextChunk):
                        break
                assert log.open == 1
            await trio.sleep(60)
            assert log.open == 0
            assert "turn-" not in here.tree()

    simulate(main)


def test_a_model_may_be_a_pool() -> None:
    async def main() -> None:
        async with open_node() as node:
            pool = await node.start_pool(Pool(partial(Script, answers=("Yes.",)), 3, name="models"))
            assert (await think(pool, "hello")).answer == "Yes."

    simulate(main)
