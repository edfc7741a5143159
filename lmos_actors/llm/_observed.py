"""Metrics and spans of requests to models. A node with neither makes none of this.

Spans follow OpenTelemetry's conventions for generative AI. Prompts and answers are in them only if the model
has `record_prompts` set, each cut after `MOST_RECORDED` characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from lmos_actors.errors import ActionFailed

from ._messages import ModelEnd, ModelMessage, TextDelta, ToolMessage, ToolRequest, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from lmos_actors.actors import Edge, Inquiry

    from ._limits import Tally
    from ._messages import Message, ModelItem, ModelRequest

MOST_RECORDED: Final = 1 << 17
"""Characters of a prompt, or of an answer, in a span."""

CANCELLED: Final = "cancelled"
FINISHED: Final = {"stop": "stop", "tools": "tool_call", "length": "length", "refused": "content_filter"}
"""The reasons for which answers end, as the conventions call them."""


class Observed:
    """A request that is counted, traced, or both, until the block ends."""

    def __init__(self, inquiry: Inquiry, recorded: dict[str, str] | None) -> None:
        self.tally: Tally | None = None  # of its tokens, once it is carried out
        self._inquiry = inquiry
        self._recorded = recorded
        self._since = trio.current_time()
        self._first: float | None = None
        self._end: ModelEnd | None = None
        self._text: list[str] = []
        self._tools: list[ToolRequest] = []

    def __enter__(self) -> Observed:
        return self

    def take(self, item: ModelItem) -> None:
        """Note an item of the answer."""
        if self._first is None:
            self._first = trio.current_time()
        if type(item) is ModelEnd:
            self._end = item
        elif self._recorded is not None:
            if type(item) is TextDelta:
                self._text.append(item.text)
            elif type(item) is ToolRequest:
                self._tools.append(item)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        end = self._end
        outcome = _outcome(error) if error is not None and end is None else end.reason if end else "no end"
        failed = error is not None and end is None and outcome != CANCELLED
        usage = Usage() if self.tally is None else self.tally.spent(error)
        attributes = self._attributes(usage) if self._inquiry.records else dict[str, Any]()
        self._inquiry.ended(outcome, _amounts(usage), attributes, failed=failed)

    def _attributes(self, usage: Usage) -> dict[str, Any]:
        end, attributes = self._end, dict[str, Any]()
        if self._first is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = self._first - self._since
        if usage.tokens:
            attributes["gen_ai.usage.input_tokens"] = usage.input_tokens
            attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
        if usage.cached:
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached
        if end is not None:
            attributes["gen_ai.response.finish_reasons"] = [FINISHED[end.reason]]
            if end.model:
                attributes["gen_ai.response.model"] = end.model
        if self._recorded is not None:
            said = ModelMessage("".join(self._text), self._tools)
            reason = {} if end is None else {"finish_reason": FINISHED[end.reason]}
            attributes.update(self._recorded)
            attributes["gen_ai.output.messages"] = _json([{**_spoken(said), **reason}])
        return attributes


def observed(edge: Edge, provider: str, model: str, request: ModelRequest, *, prompts: bool) -> Observed:
    """Return the observer of a request; with `prompts`, its span has the prompt and the answer."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.request.stream": True,
    }
    if request.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = request.max_tokens
    if request.temperature is not None:
        attributes["gen_ai.request.temperature"] = request.temperature
    if request.answer is not None:
        attributes["gen_ai.output.type"] = "json"
    inquiry = edge.asks(model, f"chat {model}", attributes)
    return Observed(inquiry, _prompts(request) if prompts and inquiry.records else None)


def _outcome(error: BaseException) -> str:
    if isinstance(error, ActionFailed):
        return error.code or "failed"
    if isinstance(error, trio.Cancelled | GeneratorExit):
        return CANCELLED
    return type(error).__name__


def _amounts(usage: Usage) -> dict[str, int]:
    return {"input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.cached}


# ---- what is said, in the form of the conventions


def _prompts(request: ModelRequest) -> dict[str, str]:
    recorded = {"gen_ai.input.messages": _json(map(_spoken, request.messages))}
    if request.instructions:
        recorded["gen_ai.system_instructions"] = _json([_text(request.instructions)])
    if request.tools:
        recorded["gen_ai.tool.definitions"] = _json(
            {"type": "function", "name": t.name, "description": t.description, "parameters": t.schema}
            for t in request.tools
        )
    return recorded


def _spoken(message: Message) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        part = {"type": "tool_call_response", "id": message.id, "response": message.error or message.result}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = [_text(message.text)] if message.text else []
    if isinstance(message, ModelMessage):
        parts += [
            {"type": "tool_call", "id": t.id, "name": t.name, "arguments": t.unreadable or t.arguments}
            for t in message.tools
        ]
        return {"role": "assistant", "parts": parts}
    parts += [{"type": "file", "mime_type": file.mime_type, "name": file.name} for file in message.files]
    return {"role": "user", "parts": parts}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _json(values: Iterable[dict[str, Any]]) -> str:
    text = msgspec.json.encode(list(values)).decode()
    return text if len(text) <= MOST_RECORDED else f"{text[:MOST_RECORDED]}..."
