"""The message format of Anthropic: requests to its models, and their answers. Imports its SDK."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import anthropic
import msgspec
from msgspec import Struct

from ._client import Format
from ._failures import REQUEST_REFUSED, model_failure
from ._fitting import Fitting, Halves
from ._keys import with_options
from ._messages import ModelMessage, Reasoning, TextDelta, ToolMessage, Usage
from ._provider import PLACEHOLDER, unfinished
from ._reports import ErrorEvent, aside, checked_reason, end_of, told
from ._texts import counted, file_text, result_text
from ._tool_pieces import Piece, ToolPieces, json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import httpx2

    from ._families import Rules
    from ._keys import Fields
    from ._messages import Message, ModelFile, ModelItem, ModelRequest

REDACTED: Final = "redacted:"
"""Begins the `state` of reasoning that is not shown; any other state is the signature of shown reasoning."""

NO_SPANS: Final[Any] = {"traces": {"enabled": False}, "propagation": False}  # there are spans already


# ---- requests


def request_body(model: Fields, request: ModelRequest, _: Rules) -> dict[str, Any]:
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
    """Convert messages; the results of tools and the user's text after them become one message."""
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
        elif piece.state:  # the provider takes back only signed reasoning
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


# ---- answers: the members that are used here


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Head(Struct):
    model: str = ""
    usage: _Usage | None = None


class _Block(Struct):
    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
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
    type: str = ""
    index: int | None = None
    message: _Head | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None
    model: str = ""  # from here on: of an answer that comes whole
    content: list[_Block] | None = None
    stop_reason: str | None = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class Answer:
    """One answer, event by event; the arguments of a tool come in pieces."""

    def __init__(self, tools: frozenset[str]) -> None:
        self.is_complete = False
        self._read = Fitting(_Event, _EVENT)
        self._text, self._thought = Halves(), Halves()
        self._tools = ToolPieces(tools)
        self._not_ours: set[int | None] = set()  # blocks of tools that the provider calls itself
        self._signature: list[str] = []
        self._input = self._output = self._cached = 0
        self._finished: str | None = None
        self._begun = self._spoke = False
        self._beside: object = None  # of the last event without a part of the answer
        self._model = ""

    @property
    def replaced(self) -> int:
        """The number of bytes that were not UTF-8."""
        return self._read.replaced

    def items_of(self, data: bytes, name: bytes) -> Iterator[ModelItem]:
        """Return the items of an event. Raises ErrorEvent, ValueError or RecursionError."""
        for event in self._read.read(data):
            kind = event.type or name.decode("utf-8", "replace")
            if kind == "content_block_delta":
                if event.delta is not None:
                    yield from self._piece(event.delta, event.index)
            elif kind == "content_block_stop":
                yield from self._block_end()
            elif kind == "content_block_start" and event.content_block is not None:
                yield from self._begin(event.content_block, event.index)
            elif kind == "message":
                yield from self._whole(event)
            elif kind == "error" or event.error:
                raise ErrorEvent(told(data))
            else:
                self._take(kind, event, data)

    def _take(self, kind: str, event: _Event, data: bytes) -> None:
        if kind == "message_start":
            head = event.message or _Head()
            self._begun, self._model = True, head.model
            self._take_usage(head.usage)
        elif kind == "message_delta":
            if event.delta is not None and event.delta.stop_reason:
                self._finished = checked_reason(event.delta.stop_reason)
            self._take_usage(event.usage)
        elif kind == "message_stop":
            self.is_complete = True
        elif kind != "ping":  # of later versions, or a report
            self._beside = aside(data)

    def _whole(self, event: _Event) -> Iterator[ModelItem]:
        """Return the items of an answer that arrives whole, although a stream was requested."""
        self._begun, self._model = True, event.model
        if event.stop_reason:
            self._finished = checked_reason(event.stop_reason)
        self._take_usage(event.usage)
        for index, block in enumerate(event.content or ()):
            yield from self._begin(block, index)
            yield from self._block_end()

    def _begin(self, block: _Block, index: int | None) -> Iterator[ModelItem]:
        self._not_ours.discard(index)
        if block.type == "tool_use":
            self._tools.add([Piece(block.id, index, block.name, json_text(block.input or ""))])
        elif block.type.endswith("tool_use"):
            self._not_ours.add(index)
        elif block.type == "redacted_thinking":
            yield Reasoning(state=REDACTED + block.data)
        else:
            yield from self._piece(
                _Delta(text=block.text, thinking=block.thinking, signature=block.signature), index
            )

    def _piece(self, delta: _Delta, index: int | None) -> Sequence[ModelItem]:
        said: list[ModelItem] = []
        if delta.text and (text := self._text.take(delta.text)):
            self._spoke = True
            said.append(TextDelta(text))
        if delta.thinking and (thought := self._thought.take(delta.thinking)):
            said.append(Reasoning(thought))
        if delta.partial_json and index not in self._not_ours:
            self._tools.add([Piece("", index, "", delta.partial_json)])
        if delta.signature:
            self._signature.append(delta.signature)
        return said

    def _block_end(self) -> Iterator[ModelItem]:
        if self._signature:
            signature, self._signature = "".join(self._signature), []
            yield Reasoning(state=signature)

    def _take_usage(self, usage: _Usage | None) -> None:
        """Update the token counts. The new counts are totals; missing counts leave the old ones unchanged."""
        if usage is None:
            return
        cached = counted(usage.cache_read_input_tokens)
        fresh = counted(usage.input_tokens) + counted(usage.cache_creation_input_tokens)
        if fresh or cached:  # the provider counts cached tokens apart
            self._input, self._cached = fresh + cached, cached
        self._output = max(self._output, counted(usage.output_tokens))

    def last_items(self) -> Iterator[ModelItem]:
        """Return the requested tools, and the end of the answer. Raises ValueError, ErrorEvent, BrokenOff."""
        tools = self._tools.requests()
        if self._finished is None:
            raise unfinished(self._beside, begun=self._begun)
        usage = Usage(self._input, self._output, self._cached)
        end = end_of(self._finished, usage, self._model, tools, spoke=self._spoke)
        if text := self._text.rest():
            yield TextDelta(text)
        yield from tools
        yield end


def _connect(url: str, http: httpx2.AsyncClient) -> tuple[Any, Any]:
    sdk = anthropic.AsyncAnthropic(
        api_key=PLACEHOLDER, base_url=url, max_retries=0, http_client=http, open_telemetry=NO_SPANS
    )
    return sdk, sdk.messages  # imported now


FORMAT: Final = Format(_connect, request_body, Answer)
