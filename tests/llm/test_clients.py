"""Clients of providers: the real SDKs, over real sockets, against a server that speaks both formats."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import ActionFailed, open_node
from lmos_actors.llm import (
    AnthropicModel,
    Model,
    ModelEnd,
    OpenAIModel,
    TextDelta,
    ToolOffer,
    ToolRequest,
    Usage,
    UserMessage,
)
from tests.llm.provider_server import ProviderServer, Reply, Tool, open_provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmos_actors import Node, Ref

HI = [UserMessage("hi")]
END = ModelEnd("stop", Usage(12, 5), "test-model-1")
PROVIDERS = ("openai", "anthropic")


async def start(node: Node, server: ProviderServer, provider: str, **options: Any) -> Ref[Model]:
    """Start the client of a provider."""
    named = {"model": "test", "key": None, **options}
    if provider == "openai":
        return await node.start(OpenAIModel, url=server.openai_url, **named)
    return await node.start(AnthropicModel, url=server.anthropic_url, **named)


@asynccontextmanager
async def model_of(provider: str, **options: Any) -> AsyncIterator[tuple[ProviderServer, Ref[Model]]]:
    """A server, and a client of it."""
    async with open_provider() as server, open_node() as node:
        yield server, await start(node, server, provider, **options)


async def items(model: Ref[Model], messages: Any = HI, **request: Any) -> list[Any]:
    """Return all items of an answer; a failure is the last one."""
    found: list[Any] = []
    try:
        async with model.stream(Model.generate, messages, **request) as answer:
            async for item in answer:
                found.append(item)
    except ActionFailed as failed:
        found.append(failed)
    return found


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_text_comes_in_pieces_and_the_end_says_what_was_used(provider: str) -> None:
    async with model_of(provider) as (server, model):
        server.reply(Reply(text=("Hel", "lo"), input_tokens=20, cached_tokens=8))
        end = ModelEnd("stop", Usage(20, 5, 8), "test-model-1")
        assert await items(model) == [TextDelta("Hel"), TextDelta("lo"), end]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_tools_are_put_together_from_pieces(provider: str) -> None:
    asked = (
        Tool("look_up", ('{"num', 'ber": 1', "7}")),
        Tool("nothing", ("",)),
        Tool("broken", ('{"number": ', "seven")),
        Tool("a_list", ("[1]",)),
    )
    async with model_of(provider) as (server, model):
        server.reply(Reply(text=(), tools=asked))
        got = await items(model, tools=[ToolOffer("look_up", "Look up an order.", {"type": "object"})])
    assert got == [
        ToolRequest("call-0", "look_up", {"number": 17}),
        ToolRequest("call-1", "nothing"),
        ToolRequest("call-2", "broken", {}, '{"number": seven'),
        ToolRequest("call-3", "a_list", {}, "[1]"),
        ModelEnd("tools", Usage(12, 5), "test-model-1"),
    ]
