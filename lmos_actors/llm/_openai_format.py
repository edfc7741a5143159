"""The chat completions of OpenAI: requests to a model, and its answers. Imports the SDK."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import openai
from msgspec import Struct

from ._client import Format
from ._failures import REQUEST_REFUSED, model_failure
from ._fitting import Fitting, Halves, fitted
from ._keys import OPENAI_URL, with_options
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


# ---- requests


def request_body(model: Fields, request: ModelRequest, rules: Rules) -> dict[str, Any]:
    """Return the arguments for a request. Raises MODEL_REQUEST_REFUSED for files that cannot be sent."""
    system = [{"role": "system", "content": request.instructions}] if request.instructions else []
    member = "max_completion_tokens" if model.url == OPENAI_URL else "max_tokens"  # others kept the old name
    body: dict[str, Any] = {
        "model": model.model,
        "messages": [*system, *_messages(request.messages, rules)],
        "stream": True,
        "stream_options": {"include_usage": True},
        member: min(request.max_tokens or model.max_tokens, model.max_tokens),
    }
    temperature = model.temperature if request.temperature is None else request.temperature
    if temperature is not None:
        body["temperature"] = temperature
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    **({"parameters": tool.schema} if tool.schema else {}),
                },
            }
            for tool in request.tools
        ]
    if request.answer is not None:
        named = {"name": "answer", "schema": request.answer}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    return with_options(body, model, openai.omit)


def _messages(messages: Sequence[Message], rules: Rules) -> list[dict[str, Any]]:
    """Convert messages; user messages in a row become one, as the templates of many models require."""
    made: list[dict[str, Any]] = []
    for message in messages:
        said = _message(message, rules)
        if made and said["role"] == made[-1]["role"] == "user":
            before, now = made[-1]["content"], said["content"]
            if isinstance(before, str) and isinstance(now, str):
                made[-1]["content"] = f"{before}\n\n{now}"
            else:
                made[-1]["content"] = [*_parts(before), *_parts(now)]
        else:
            made.append(said)
    return made


def _parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(message: Message, rules: Rules) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        result = {"role": "tool", "tool_call_id": message.id, "content": result_text(message)}
        return {**result, "name": message.name} if rules.names_results else result
    if isinstance(message, ModelMessage):
        said: dict[str, Any] = {"role": "assistant", "content": message.text or rules.blank}
        if message.tools:
            said["tool_calls"] = [
                {
                    "id": tool.id,
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        # not `unreadable`, as some endpoints refuse a history with text that is no JSON
                        "arguments": msgspec.json.encode(tool.arguments).decode(),
                    },
                }
                for tool in message.tools
            ]
        return said
    if message.files:
        parts = [_part(file) for file in message.files]
        if message.text.strip():
            parts.append({"type": "text", "text": message.text})
        return {"role": "user", "content": parts}
    return {"role": "user", "content": message.text}


def _part(file: ModelFile) -> dict[str, Any]:
    kind = file.mime_type.partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file.url or _data_url(file, kind)}}
    if file.url:
        text = f"{file.name or file.url} is a file by URL of type {kind}: only pictures can be sent so"
        raise model_failure(REQUEST_REFUSED, text)
    if kind in ("audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"):
        form = "wav" if kind.endswith("wav") else "mp3"
        return {
            "type": "input_audio",
            "input_audio": {"data": base64.b64encode(file.data).decode(), "format": form},
        }
    if kind == "application/pdf":
        named = {"filename": file.name or "document.pdf", "file_data": _data_url(file, kind)}
        return {"type": "file", "file": named}
    return {"type": "text", "text": file_text(file, kind)}


def _data_url(file: ModelFile, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(file.data).decode()}"


# ---- answers: the members that are used here


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolPiece(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None  # as other endpoints call it; some send objects
    tool_calls: list[_ToolPiece] | None = None
    function_call: _Function | None = None  # from the time before there were several calls


class _Choice(Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None  # of an answer that comes whole
    finish_reason: str | None = None


class _Cached(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class Answer:
    """One answer, chunk by chunk; requests for tools arrive in pieces and are returned once whole."""

    def __init__(self, tools: frozenset[str]) -> None:
        self.is_complete = False
        self._read = Fitting(_Chunk, _CHUNK)
        self._text, self._thought = Halves(), Halves()
        self._tools = ToolPieces(tools)
        self._finished: str | None = None
        self._spoke = self._refused = False
        self._beside: object = None  # of the last event without a part of the answer
        self._usage = Usage()
        self._model = ""

    def items_of(self, data: bytes, name: bytes) -> Iterator[ModelItem]:
        """Return the items of an event. Raises ErrorEvent, ValueError or RecursionError."""
        if data.startswith(b"[DONE]"):
            self.is_complete = True
            return
        for chunk in self._read.read(data):
            if chunk.error:
                raise ErrorEvent(told(data))
            if chunk.usage is not None:
                self._usage = _usage(chunk.usage)
            self._model = chunk.model or self._model
            if not chunk.choices:
                self._beside = aside(data)
                continue
            for choice in chunk.choices:
                if choice.index == 0:  # one answer was asked for
                    if choice.finish_reason:
                        self._finished = checked_reason(choice.finish_reason, data)
                    if (said := choice.delta or choice.message) is not None:
                        yield from self._pieces(said)

    @property
    def replaced(self) -> int:
        """The number of bytes that were not UTF-8."""
        return self._read.replaced

    def _pieces(self, delta: _Delta) -> Iterator[ModelItem]:
        thought, content = delta.reasoning_content or delta.reasoning, delta.content
        if isinstance(content, list):
            thought, content = _thought_and_said(content)
        if isinstance(thought, str) and (thought := self._thought.take(thought)):
            yield Reasoning(thought)
        if delta.refusal:
            self._refused = True
        if (text := content or delta.refusal) and (text := self._text.take(text)):
            self._spoke = True
            yield TextDelta(text)
        if delta.function_call is not None:
            self._tools.add([_piece(_ToolPiece(index=-1, function=delta.function_call))])
        if delta.tool_calls:
            self._tools.add([_piece(piece) for piece in delta.tool_calls])

    def last_items(self) -> Iterator[ModelItem]:
        """Return the requested tools, and the end of the answer. Raises ValueError, ErrorEvent, BrokenOff."""
        tools = self._tools.requests()
        if self._finished is None:
            raise unfinished(self._beside, begun=bool(tools or self._model))
        reason = "refusal" if self._refused else self._finished
        end = end_of(reason, self._usage, self._model, tools, spoke=self._spoke)
        if text := self._text.rest():
            yield TextDelta(text)
        yield from tools
        yield end


def _thought_and_said(content: list[Any]) -> tuple[str, str]:
    """Separate the parts of a message's content; return the reasoning and the text."""
    thought: list[str] = []
    said: list[Any] = []
    for part in content:
        thinks = cast("dict[str, Any]", part).get("thinking") if type(part) is dict else None
        if thinks:
            thought.append(fitted([thinks] if isinstance(thinks, str) else thinks, str))
        else:
            said.append(part)
    return "".join(thought), fitted(said, str)


def _piece(piece: _ToolPiece) -> Piece:
    said = piece.function or _Function()
    return Piece(piece.id or "", piece.index, said.name or "", json_text(said.arguments or ""))


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details
    cached = 0 if details is None else details.cached_tokens or 0
    return Usage(counted(usage.prompt_tokens), counted(usage.completion_tokens), counted(cached))


def _connect(url: str, http: httpx2.AsyncClient) -> tuple[Any, Any]:
    sdk = openai.AsyncOpenAI(api_key=PLACEHOLDER, base_url=url, max_retries=0, http_client=http)
    return sdk, sdk.chat.completions  # imported now


FORMAT: Final = Format(_connect, request_body, Answer)
