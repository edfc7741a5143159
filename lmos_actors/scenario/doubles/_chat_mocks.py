"""Mocks and replays that speak Omnia's protocol: chat agents that answer by rules, or as one once did."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import msgspec
import trio
from msgspec import UNSET

from lmos_actors.errors import ActionFailed
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.facades.chat import ChatPart, MediaPiece, TextChunk, ToolCalled, ToolReturned
from lmos_actors.system.model import USER, Chunk, Done, Rule, Waited
from lmos_actors.system.values import exception_class

from ._replays import error_of
from ._rules import Request

if TYPE_CHECKING:
    from lmos_actors.system.model import Replay

    from ._mocks import MockScript
    from ._recordings import RecordedAgent, Recording
    from ._replays import ReplayScript

MESSAGE: Final = "message"
"""The action of rules: something is said to the mock."""

CALL: Final = "call"
"""The action of a recorded call with sound."""


class ChatMock(ChatAgent):
    """Answers by rules."""

    script: ClassVar[MockScript | None] = None

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        """Answer by the first rule that fits."""
        assert self.script is not None
        async with aclosing(_answer(self, self.script, turn)) as pieces:
            async for piece in pieces:
                yield piece  # noqa: ASYNC119 -- the runtime closes what it runs


def chat_class(name: str, script: MockScript | None = None) -> type[ChatMock]:
    """Make the class of a mock that is a chat agent; `script` is that of a run."""
    made = cast("Any", type(ChatMock))
    body = {"__module__": __name__, "__doc__": ChatMock.__doc__, "script": script}
    return cast("type[ChatMock]", made(name, (ChatMock,), body))


class ChatReplay(ChatAgent):
    """Answers as a chat agent did in a recording."""

    script: ClassVar[ReplayScript | None] = None

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        """Answer as it was recorded, after the same time."""
        assert self.script is not None
        exchange = self.script.match("invoke", MESSAGE, _said(turn), USER, allow_missing=True)
        began, silent = trio.current_time(), True
        for after, kind, what in exchange.effects:
            await trio.sleep_until(began + after)
            if kind != "item":
                continue
            silent, item = False, _item(what)
            if isinstance(item, TextChunk):
                yield item.text
                for part in item.parts:
                    yield part
            else:
                await turn.show(item)
        if exchange.ended is None:
            await trio.sleep_forever()
        await trio.sleep_until(began + (exchange.ended or 0.0))
        if exchange.error is not None:
            raise error_of(exchange)
        if silent and exchange.value:
            yield str(exchange.value)


def chat_replay_class(name: str, script: ReplayScript) -> type[ChatReplay]:
    """Make the class of a replay that is a chat agent; `script` is that of a run."""
    made = cast("Any", type(ChatReplay))
    body = {"__module__": __name__, "__doc__": ChatReplay.__doc__, "script": script}
    return cast("type[ChatReplay]", made(name, (ChatReplay,), body))


def chat_problem(entry: Replay, recording: Recording, recorded: RecordedAgent) -> str | None:
    """Return what of a recording cannot be played by a chat agent, None if all can."""
    for exchange in recorded.exchanges:
        place = f"{recording.name}:{exchange.line}"
        if exchange.affordance == CALL and entry.unused != "allowed":
            return f'{place}: a call with sound, which cannot be replayed; "unused: allowed" leaves it out'
        try:
            for _, kind, what in exchange.effects:
                if kind == "item" and exchange.affordance == MESSAGE:
                    _item(what)
        except msgspec.ValidationError as error:
            return f"{place}: the answer has an item that cannot be replayed: {error}"
    return None


def _item(what: Any) -> TextChunk | ToolCalled | ToolReturned | MediaPiece:
    """Return a recorded item of an answer. Raises ValidationError."""
    if isinstance(what, str):
        return TextChunk(what)
    return msgspec.convert(what, TextChunk | ToolCalled | ToolReturned | MediaPiece)


def _said(turn: ChatTurn) -> dict[str, Any]:
    """Return what is said to a chat agent as recordings have it: in which session does not count."""
    text = "".join(part.text or "" for part in turn.parts) or turn.text
    said: dict[str, Any] = {"content": text}
    if turn.metadata:
        said["metadata"] = turn.metadata
    media = [msgspec.to_builtins(part) for part in turn.parts if part.type != "text"]
    return {**said, "parts": media} if media else said


async def _answer(agent: Any, script: MockScript, turn: ChatTurn) -> AsyncGenerator[str]:
    said: dict[str, Any] = {"content": turn.text, "session": turn.session}
    if turn.metadata:
        said["metadata"] = turn.metadata
    rule = script.take(Request(MESSAGE, said, USER), said)
    if rule is None:
        raise ActionFailed(f"no rule of mock {script.name} fits")
    if rule.delay is not UNSET:
        await trio.sleep(script.seconds(agent, rule.delay))
    if rule.fail is not UNSET:
        raise ActionFailed({"code": rule.fail.code, "message": rule.fail.message})
    if rule.crash is not UNSET:
        raise (exception_class(rule.crash) or RuntimeError)(f"mock {script.name} crashes by its rule")
    for part in _parts(rule):
        if isinstance(part, Waited):
            await trio.sleep(script.seconds(agent, part.wait))
        elif isinstance(part, Chunk):
            yield part.chunk
        elif isinstance(part, Done) and part.done is not None:
            yield part.done


def _parts(rule: Rule) -> tuple[Any, ...]:
    return (Chunk(chunk=rule.output),) if rule.reply is UNSET else rule.reply
