"""What the tests of models have in common: a client of a local provider, and all items of an answer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lmos_actors import ActionFailed, open_node
from lmos_actors.llm import AnthropicModel, Model, ModelEnd, OpenAIModel, Usage, UserMessage
from tests.llm.provider_server import ProviderServer, open_provider

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from lmos_actors import Node, Ref

HI = [UserMessage("hi")]
END = ModelEnd("stop", Usage(12, 5), "test-model-1")
PROVIDERS = ("openai", "anthropic")
SECRET = "sk-5ecret-of-the-tests"
AFTER_HELLO = {"openai": 2, "anthropic": 4}
"""Events until the first text has come."""


async def start(node: Node, server: ProviderServer, provider: str, **options: Any) -> Ref[Any]:
    """Start the client of a provider."""
    named = {"model": "test", "key": None, **options}
    if provider == "openai":
        return await node.start(OpenAIModel, **{"url": server.openai_url, **named})
    return await node.start(AnthropicModel, **{"url": server.anthropic_url, **named})


@asynccontextmanager
async def model_of(
    provider: str, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[tuple[ProviderServer, Ref[Any]]]:
    """A server, and a client of it."""
    async with open_provider(tls=tls) as server, open_node() as node:
        yield server, await start(node, server, provider, **options)


async def items(model: Ref[Any], messages: Any = HI, **request: Any) -> list[Any]:
    """Return all items of an answer; a failure is the last one."""
    found: list[Any] = []
    try:
        async with model.stream(Model.generate, messages, **request) as answer:
            async for item in answer:
                found.append(item)
    except ActionFailed as failed:
        found.append(failed)
    return found


def shown(got: list[Any]) -> str:
    """Return how an answer went: its text, and its end or the code of the failure."""
    text = "".join(getattr(item, "text", "") for item in got)
    last = got[-1]
    return f"{text}|{last.code if isinstance(last, ActionFailed) else last.reason}"
