"""Models for tests: their answers are listed, one for each request, and may be functions of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.facades import ChatAgent, TurnBegan, TurnDone
from lmos_actors.llm import Model, ModelEnd, ModelItem, ModelRequest, TextDelta, ToolRequest

if TYPE_CHECKING:
    from lmos_actors import Ref


@attrs.define
class Log:
    """What a model was asked, over all its lives, and how many requests are in progress."""

    asked: list[ModelRequest] = attrs.field(factory=list)
    open: int = 0


class Script(Model):
    """Answers each request by the next of its answers, the last one again and again."""

    answers: tuple[Any, ...]
    """Texts, lists of items, failures, functions of the request, or async generator functions."""
    heard: Log = attrs.field(factory=Log)

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        log = self.heard
        log.asked.append(request)
        answer = self.answers[min(len(log.asked), len(self.answers)) - 1]
        log.open += 1
        try:
            if callable(answer):
                answer = answer(request)
            if isinstance(answer, AsyncGenerator):
                async with aclosing(answer):
                    async for item in answer:
                        yield item  # noqa: ASYNC119 -- the runtime closes what it runs
                return
            for item in items_of(answer):
                yield item  # noqa: ASYNC119
        finally:
            log.open -= 1


def items_of(answer: Any) -> Iterable[ModelItem]:
    if isinstance(answer, BaseException):
        raise answer
    if isinstance(answer, str):
        return [TextDelta(answer), ModelEnd()]
    if isinstance(answer, ToolRequest):
        return [answer, ModelEnd("tools")]
    return answer  # type: ignore[no-any-return]


def wants(name: str, id: str = "1", /, **arguments: Any) -> ToolRequest:
    """The request for a tool."""
    return ToolRequest(id, name, arguments)


async def said(
    agent: Ref[Any], text: str = "hello", session: str | None = None, **more: Any
) -> tuple[str, list[Any]]:
    """Say something; return the session and all items of the answer."""
    found: list[Any] = []
    async with agent.stream(ChatAgent.chat, text, session, **more) as items:
        async for item in items:
            found.append(item)
    assert isinstance(found[0], TurnBegan)
    assert isinstance(found[-1], TurnDone)
    assert sum(isinstance(item, TurnDone) for item in found) == 1
    return found[0].session, found


async def answered(agent: Ref[Any], text: str = "hello", session: str | None = None, **more: Any) -> str:
    """Say something; return the whole answer."""
    done: TurnDone = (await said(agent, text, session, **more))[1][-1]
    return done.text
