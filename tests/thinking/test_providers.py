"""A thinking agent from a chat client to the provider's socket, with the real SDKs, in both wire formats."""

from __future__ import annotations

import json

import pytest
import trio
from msgspec import Struct

from lmos_actors import ActionFailed, open_node
from lmos_actors.facades import TextChunk, open_chat
from lmos_actors.thinking import ThinkingAgent
from tests.llm.asking import PROVIDERS, start
from tests.llm.provider_server import Reply, Tool, open_provider
from tests.thinking.models import said

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("provider", PROVIDERS)]


def look_up(number: int) -> str:
    """Return the state of an order."""
    return f"order {number} is sent"


class Desk(ThinkingAgent):
    """You help."""

    tools = (look_up,)


class Plan(Struct):
    """A plan."""

    steps: list[str]


TWO = Reply(
    text=("I look.",),
    tools=(Tool("look_up", ('{"num', 'ber": 1', "7}")), Tool("look_up", ('{"number":', " 18}"))),
)


async def test_two_tools_in_pieces_and_an_answer(provider: str) -> None:
    async with open_provider() as server, open_node(listen="ws://127.0.0.1:0", omnia=True) as node:
        server.reply(TWO, Reply(text=("Both ", "are sent.")))
        await node.start(Desk, model=await start(node, server, provider))
        async with open_chat(f"{node.urls[0]}/?agent=desk") as chat:
            assert (await chat.say("17 and 18?")).text == "I look.\n\nBoth are sent."
        body = json.dumps(server.requests[1].body)
        assert "order 17 is sent" in body
        assert "order 18 is sent" in body
        assert server.requests[0].body["tools"] == server.requests[1].body["tools"]


async def test_a_user_that_leaves_ends_the_request_at_the_provider(provider: str) -> None:
    async with open_provider() as server, open_node(listen="ws://127.0.0.1:0", omnia=True) as node:
        server.reply(Reply(text=("Well", *(" and" for _ in range(10_000))), wait=0.02))
        await node.start(Desk, model=await start(node, server, provider))
        async with open_chat(f"{node.urls[0]}/?agent=desk") as chat, chat.stream("hello") as items:
            async for item in items:
                if isinstance(item, TextChunk):
                    break
        with trio.fail_after(30):
            await server.client_left()
            await server.until(lambda: not server.answering)
        async with open_chat(f"{node.urls[0]}/?agent=desk") as chat:
            assert (await chat.say("again")).text == "Hello there"


async def test_a_structured_answer_is_repaired(provider: str) -> None:
    async with open_provider() as server, open_node() as node:
        server.reply(Reply(text=("{", '"steps": 1}')), Reply(text=('{"steps": ', '["go"]}')))
        planner = await node.start(ThinkingAgent, model=await start(node, server, provider), answer=Plan)
        async with planner.stream(ThinkingAgent.chat, "plan") as items:
            texts = [item.text async for item in items if isinstance(item, TextChunk)]
        assert texts == ['{"steps":["go"]}']


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(status=401), "MODEL_KEY_REFUSED"),
        (Reply(status=400), "MODEL_REQUEST_REFUSED"),
        (Reply(text="abcd", fault="cut", after=5), "MODEL_CUT"),
        (Reply(text="abcd", fault="malformed", after=5), "MODEL_MALFORMED"),
    ],
)
async def test_a_fault_is_the_one_answer_of_a_turn(provider: str, reply: Reply, code: str) -> None:
    async with open_provider() as server, open_node() as node:
        server.reply(reply)
        desk = await node.start(Desk, model=await start(node, server, provider))
        with pytest.raises(ActionFailed) as failed:
            await said(desk)
        assert failed.value.code == code
        assert not node.crash_reports
