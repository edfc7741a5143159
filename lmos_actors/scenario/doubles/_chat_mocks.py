"""Mocks and replays that speak Omnia's protocol: chat agents that answer by rules or from a recording."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import trio

from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.facades.chat import ChatPart, MediaPiece, TextChunk, ToolCalled, ToolReturned
from lmos_actors.system.model import USER, Chunk, Done, Waited

from ._mocks import RuleAnswer
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
    """A chat agent that answers by rules."""

    script: ClassVar[MockScript | None] = None

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        """Answer by the first rule that fits."""
        assert self.script is not None
        said: dict[str, Any] = {"content": turn.text, "session": turn.session}
        if turn.metadata:
            said["metadata"] = turn.metadata
        answer = RuleAnswer(self.script, self, Request(MESSAGE, said, USER), said)
        await answer.wait(answer.rule.delay)
        answer.fail()
        for part in answer.parts:
            if isinstance(part, Waited):
                await answer.wait(part.wait)
            elif isinstance(part, Chunk):
                yield part.chunk
            elif isinstance(part, Done) and part.done is not None:
                yield part.done


class ChatReplay(ChatAgent):
    """A chat agent that answers as another one did in a recording."""

    script: ClassVar[ReplayScript | None] = None

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        """Repeat the recorded answer, with the recorded delays."""
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


def chat_class(kind: type[ChatAgent], name: str, script: MockScript | ReplayScript) -> type[ChatAgent]:
    """Make the class of a mock or a replay that is a chat agent; `script` is its script in one run."""
    made: Any = type(kind)
    body = {"__module__": __name__, "__doc__": kind.__doc__, "script": script}
    return made(name, (kind,), body)  # type: ignore[no-any-return]


def chat_problem(entry: Replay, recording: Recording, recorded: RecordedAgent) -> str | None:
    """Return the first thing in a recording that a chat agent cannot replay; None if it can replay all."""
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
    """Return the input of a chat agent in the form used in recordings, without the session."""
    text = "".join(part.text or "" for part in turn.parts) or turn.text
    said: dict[str, Any] = {"content": text}
    if turn.metadata:
        said["metadata"] = turn.metadata
    media = [msgspec.to_builtins(part) for part in turn.parts if part.type != "text"]
    return {**said, "parts": media} if media else said
