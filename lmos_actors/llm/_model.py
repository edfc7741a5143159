"""Models as agents: the contract that every language model has here.

A model is an agent, and not an object inside each agent that uses it. So all that agents have holds for
models too: many agents share one, with its limits; its key is in one process, and others reach it by a ref;
a caller that leaves cancels its request; a mock, a recording or a fault takes its place in a scenario; it is
supervised, traced and counted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 -- types of actions are read
from contextlib import aclosing
from typing import Annotated, Any, Final

from msgspec import Meta

from lmos_actors.actors import Agent, MailboxOptions, action

from ._failures import NO_MODEL, model_failure
from ._messages import Message, ModelItem, ModelRequest, ToolOffer

MAX_REQUESTS: Final = 4_096
"""Requests of one model at once, those that wait included."""


class Model(Agent, mailbox=MailboxOptions(size=MAX_REQUESTS)):
    """A language model. Subclass it and write `respond`, or use the client of a provider.

    `respond(self, request)` answers one request: an async generator of `ModelItem`s, the last of which is a
    `ModelEnd`. It raises what `model_failure` returns.
    """

    def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        """Answer a request. To be written by subclasses, as an async generator."""
        raise model_failure(NO_MODEL, f"{type(self).__name__} has no respond: it is no model")

    @action(safe=True, concurrency=MAX_REQUESTS)
    async def generate(
        self,
        messages: Annotated[list[Message], Meta(min_length=1)],
        instructions: str = "",
        tools: list[ToolOffer] | None = None,
        answer: dict[str, Any] | None = None,
        max_tokens: Annotated[int, Meta(ge=1)] | None = None,
        temperature: Annotated[float, Meta(ge=0, le=2)] | None = None,
    ) -> AsyncGenerator[ModelItem]:
        """Answer messages, piece by piece; the last item is the end, with what was used.

        `answer` is a JSON Schema that the text has to meet.
        """
        request = ModelRequest(messages, instructions, tools or [], answer, max_tokens, temperature)
        async with aclosing(self.respond(request)) as items:
            async for item in items:
                yield item  # noqa: ASYNC119 -- the runtime closes what it runs
