"""The messages of Anthropic: requests to it, and answers from it. Imports its SDK."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import anthropic
import msgspec
from msgspec import Struct

from ._events import EventDecoder
from ._failures import REQUEST_REFUSED, model_failure
from ._keys import with_options
from ._messages import ModelEnd, ModelMessage, Reasoning, TextDelta, ToolMessage, Usage
from ._provider import PLACEHOLDER, BrokenOff, ErrorEvent, Provider, body_of
from ._texts import counted, file_text, result_text
from ._tool_pieces import Piece, ToolPieces, json_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from ._keys import Fields
    from ._messages import Message, ModelFile, ModelItem, ModelRequest, StopReason

REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}

REDACTED: Final = "redacted:"
"""Begins the `state` of reasoning that is not shown; any other is the signature of what is."""


NO_SPANS: Final[Any] = {"traces": {"enabled": False}, "propagation": False}  # there are spans already


class AnthropicClient:
    """The client of one `AnthropicModel`."""

    def __init__(self, model: Fields, provider: Provider) -> None:
        self._model = model
        self.provider = provider
        http = provider.http_client(model.max_tokens, model.concurrency)
        self._sdk = anthropic.AsyncAnthropic(
            api_key=PLACEHOLDER, base_url=model.url, max_retries=0, http_client=http, open_telemetry=NO_SPANS
        )
        self._messages: Any = self._sdk.messages  # imported now

    async def close(self) -> None:
        """Close all connections."""
        await self._sdk.close()

    async def attempt(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        """Ask once. Raises what the SDK raises."""
        stream = await self._messages.create(**request_body(self._model, request))
        answer, events = Answer(), EventDecoder()
        async with body_of(stream) as body:
            async for piece in body:
                for data in events.feed(piece):
                    if (item := answer.item_of(data)) is not None:
                        yield item  # noqa: ASYNC119 -- closed by `Provider.answer`
                if answer.is_complete:
                    break
            for data in events.end():
                if (item := answer.item_of(data)) is not None:
                    yield item  # noqa: ASYNC119 -- as above
            for item in answer.last_items():
                yield item  # noqa: ASYNC119 -- as above
            await body.drain()


# ---- requests


def request_body(model: Fields, request: ModelRequest) -> dict[str, Any]:
    """Return the arguments for a request. Raises MODEL_REQUEST_REFUSED for files that cannot be sent."""
    body: dict[str, Any] = {
        "model": model.model,
        "messages": list(_messages(request.messages)),
        "stream": True,
        "max_tokens": min(request.max_tokens or model.max_tokens, model.max_tokens),
    }
    if request.instructions:
        body["system"] = request.instructions
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.schema,
            }
            for tool in request.tools
        ]
    if request.answer is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.answer}}
    temperature = model.temperature if request.temperature is None else request.temperature
    if temperature is not None:
        body["extra_body"] = {"temperature": temperature}  # the SDK has no such argument
    return with_options(body, model, anthropic.omit)


def _messages(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Convert messages; the results of tools and what the user says after them are one message."""
    spoken: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ModelMessage):
            if spoken:
                yield {"role": "user", "content": spoken}
                spoken = []
            if content := _said(message):
                yield {"role": "assistant", "content": content}
        elif isinstance(message, ToolMessage):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.id}
            result["content"] = result_text(message)
            if message.error:
                result["is_error"] = True
            spoken.append(result)
        else:
            spoken += [_block(file) for file in message.files]
            if message.text.strip():
                spoken.append({"type": "text", "text": message.text})
    if spoken:
        yield {"role": "user", "content": spoken}


def _said(message: ModelMessage) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    thought = ""
    for piece in message.reasoning:
        thought += piece.text
        if piece.state.startswith(REDACTED):
            content.append({"type": "redacted_thinking", "data": piece.state.removeprefix(REDACTED)})
        elif piece.state:  # only what is signed is taken back
            content.append({"type": "thinking", "thinking": thought, "signature": piece.state})
            thought = ""
    if message.text:
        content.append({"type": "text", "text": message.text})
    content += [
        {"type": "tool_use", "id": tool.id, "name": tool.name, "input": tool.arguments}
        for tool in message.tools
    ]
    return content


def _block(file: ModelFile) -> dict[str, Any]:
    kind = file.mime_type.partition(";")[0].strip().lower()
    if kind.startswith("image/") or kind == "application/pdf":
        block = "image" if kind.startswith("image/") else "document"
        if file.url:
            return {"type": block, "source": {"type": "url", "url": file.url}}
        data = base64.b64encode(file.data).decode()
        return {"type": block, "source": {"type": "base64", "media_type": kind, "data": data}}
    if file.url:
        text = (
            f"{file.name or file.url} is a file by URL of type {kind}: only pictures and PDFs can be sent so"
        )
        raise model_failure(REQUEST_REFUSED, text)
    return {"type": "text", "text": file_text(file, kind)}


# ---- answers: of what is sent, the members that are used here


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Head(Struct):
    model: str = ""
    usage: _Usage | None = None


class _Block(Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    data: str = ""
    input: Any = None


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(Struct):
    type: str
    index: int | None = None
    message: _Head | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class Answer:
    """One answer, event by event; the arguments of a tool come in pieces."""

    def __init__(self) -> None:
        self.is_complete = False
        self._tools = ToolPieces()
        self._not_ours: set[int | None] = set()  # blocks of tools that the provider calls itself
        self._signature: list[str] = []
        self._input = self._output = self._cached = 0
        self._finished: str | None = None
        self._begun = False
        self._model = ""

    def item_of(self, data: bytes) -> ModelItem | None:
        """Return the item of an event, if it has one. Raises ErrorEvent, ValueError or RecursionError."""
        event = _EVENT.decode(data)
        if event.type == "content_block_delta" and event.delta is not None:
            return self._piece(event.delta, event.index)
        match event.type:
            case "message_start" if event.message is not None:
                self._begun, self._model = True, event.message.model
                self._take_usage(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                return self._begin(event.content_block, event.index)
            case "content_block_stop":
                return self._block_end()
            case "message_delta" if event.delta is not None:
                self._finished = event.delta.stop_reason or self._finished
                self._take_usage(event.usage)
            case "message_stop":
                self.is_complete = True
            case "error":
                raise ErrorEvent(event.error)
            case _:  # a ping, or one of later versions
                pass
        return None

    def _begin(self, block: _Block, index: int | None) -> ModelItem | None:
        self._not_ours.discard(index)
        if block.type == "tool_use":
            self._tools.add([Piece(block.id, index, block.name, json_text(block.input or ""))])
        elif block.type.endswith("tool_use"):
            self._not_ours.add(index)
        elif block.type == "redacted_thinking":
            return Reasoning(state=REDACTED + block.data)
        elif block.type == "text" and block.text:
            return TextDelta(block.text)
        return None

    def _piece(self, delta: _Delta, index: int | None) -> ModelItem | None:
        if delta.text:
            return TextDelta(delta.text)
        if delta.thinking:
            return Reasoning(delta.thinking)
        if delta.partial_json and index not in self._not_ours:
            self._tools.add([Piece("", index, "", delta.partial_json)])
        if delta.signature:
            self._signature.append(delta.signature)
        return None

    def _block_end(self) -> ModelItem | None:
        if self._signature:
            signature, self._signature = "".join(self._signature), []
            return Reasoning(state=signature)
        return None

    def _take_usage(self, usage: _Usage | None) -> None:
        """Take counts, which are totals so far; those that are not said stay as they were."""
        if usage is None:
            return
        cached = counted(usage.cache_read_input_tokens)
        fresh = counted(usage.input_tokens) + counted(usage.cache_creation_input_tokens)
        if fresh or cached:  # the provider counts apart what was cached
            self._input, self._cached = fresh + cached, cached
        self._output = max(self._output, counted(usage.output_tokens))

    def last_items(self) -> Iterator[ModelItem]:
        """Return the tools that are asked for, and the end. Raises ValueError, BrokenOff."""
        tools = self._tools.requests()
        if self._finished is None:
            raise BrokenOff() if self._begun else ValueError("there is no answer in it")
        yield from tools
        reason = REASONS.get(self._finished, "stop")
        yield ModelEnd(reason, Usage(self._input, self._output, self._cached), self._model)
