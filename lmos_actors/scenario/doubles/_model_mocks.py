"""Mocks of language models: their rules match what the user said, or the results of tools.

A rule sees a request not as the messages that the model gets, but as a person would describe it:

- `text`: what was said last; `instructions`: the model's instructions; `offered`: the names of its tools;
- `tools`: the results of tools since then, by name; `errors`: the errors of tools that have failed, by
  name;
- `messages`: all messages; `answer`: the schema that the answer has to meet, if there is one.

A rule matches either what was said or the answers of tools. Otherwise the rule that calls a tool would match
again after the tool has answered, since the text is still the last one said, and the mock would call the tool
forever. So rules are read from top to bottom as the turn goes on. A rule for the result of a tool does not
match its error: an agent whose tool is broken fails the run, and does not go on as if nothing had happened.

A call of a tool that is not offered, or with arguments that do not fit the tool, means that the file is wrong
or the agent has changed. It fails the run, unless the rule marks the call as intentionally wrong.
"""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._core import read_json
from lmos_actors.actors import answered, double_of
from lmos_actors.errors import hint_at
from lmos_actors.files import is_mapping, mapped
from lmos_actors.llm import ModelEnd, Reasoning, TextDelta, ToolRequest, Usage, estimated_tokens
from lmos_actors.system.model import USER, Called, Chunk, Done, Reasoned, Waited
from lmos_actors.system.values import misfits, show

from ._mocks import RuleAnswer
from ._rules import Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from lmos_actors.actors import Agent, DoubleRequest
    from lmos_actors.llm import ModelItem
    from lmos_actors.system.model import ToolCall

    from ._mocks import MockScript

GENERATE: Final = "generate"
"""The action of rules: the only one that a model has."""


def model_class(cls: type[Agent], script: MockScript) -> type[Agent]:
    """Make the class of a mock that is a model, for one run. `cls` is the class that the mock replaces."""

    async def respond(request: DoubleRequest) -> Any:
        answer = _ModelAnswer(script, request)
        await answer.wait(answer.rule.delay)
        answer.fail()
        return answer.items()

    return double_of(cls, lambda key, op: answered(op, respond) if op.name == GENERATE else op, {})


def model_request(asked: Mapping[str, Any], sender: str, trace: int | None = None) -> Request:
    """Return a request to a model in the form that rules match; see `Request`.

    `asked` is the input of the request, as plain data.
    """
    messages = [mapped(message) for message in asked["messages"]]
    said = max((place for place, one in enumerate(messages) if one.get("role") == "user"), default=-1)
    spoke = max((place for place, one in enumerate(messages) if one.get("role") != "tool"), default=-1)
    tools: dict[str, Any] = {}
    errors: dict[str, str] = {}
    latest: dict[str, str] = {}
    for place, message in enumerate(messages):
        if message.get("role") != "tool" or place < said:
            continue
        name, error = str(message["name"]), str(message.get("error", ""))
        tools.pop(name, None)
        errors.pop(name, None)
        if error:
            errors[name] = error
        else:
            tools[name] = message.get("result")
        if place > spoke:
            latest[name] = error
    last = messages[said] if said >= 0 else {}
    seen = {
        "text": last.get("text", ""),
        "instructions": asked.get("instructions", ""),
        "offered": [tool["name"] for tool in asked.get("tools") or ()],
        "tools": tools,
        "errors": errors,
        "files": [
            {key: value for key, value in file.items() if key != "data"} for file in last.get("files", ())
        ],
        "messages": messages,
        "answer": asked.get("answer"),
    }
    searched = {"text": seen["text"], "tools": tools, "errors": errors}
    return Request(GENERATE, seen, sender, searched, latest, trace)


def shown_request(request: Request) -> dict[str, Any]:
    """Return the part of a request to a model that failures show.

    This is the last text said, and the results and errors of tools since then.
    """
    shown = {"text": request.input["text"]}
    for key in ("tools", "errors"):
        if request.input[key]:
            shown[key] = request.input[key]
    return shown


def brief_input(asked: Any) -> Any:
    """Return the part of a model's input that failures show; any other input is returned unchanged."""
    return shown_request(model_request(asked, USER)) if is_mapping(asked) and "messages" in asked else asked


def tokens_in(value: Any) -> int:
    """Return an estimate of the number of tokens in plain data; no provider has counted them."""
    return ceil(estimated_tokens(json.dumps(value, ensure_ascii=False)))


class _ModelAnswer(RuleAnswer):
    """One answer of a mock that is a model."""

    def __init__(self, script: MockScript, request: DoubleRequest) -> None:
        self.asked = request.input(request.args)
        mark = getattr(request.message, "trace", None)
        trace = None if mark is None else mark[1]
        seen = model_request(self.asked, request.sender or USER, trace)
        super().__init__(script, request.agent, seen, shown_request(seen))

    async def items(self) -> AsyncGenerator[ModelItem]:
        """Yield the items of the answer; the last one is the `ModelEnd`."""
        said: list[Any] = []
        reason = "stop"
        end: Any = None
        for part in self.parts:
            if isinstance(part, Waited):
                await self.wait(part.wait)
            elif isinstance(part, Chunk):
                said.append(text_of(part.chunk))
                yield TextDelta(said[-1])
            elif isinstance(part, Reasoned):
                said.append(part.reasoning)
                yield Reasoning(part.reasoning)
            elif isinstance(part, Called):
                reason = "tools"
                asked = self._call(part.call)
                said.append([asked.name, asked.arguments, asked.unreadable])
                yield asked
            elif isinstance(part, Done) and isinstance(part.done, str):
                said.append(part.done)
                yield TextDelta(part.done)
            elif isinstance(part, Done):
                end = part.done
        yield self._end(mapped(end), reason, said)

    def _end(self, given: Mapping[str, Any], reason: str, said: list[Any]) -> ModelEnd:
        usage = Usage(
            input_tokens=given.get("input_tokens", tokens_in(self.asked)),
            output_tokens=given.get("output_tokens", sum(map(tokens_in, said))),
            cached=given.get("cached", 0),
        )
        return ModelEnd(given.get("reason", reason), usage, self.script.name)

    def _call(self, call: ToolCall) -> ToolRequest:
        """Return the request to call a tool, and record a failure if the agent cannot carry out the call."""
        offers = {tool["name"]: tool for tool in self.asked.get("tools") or ()}
        if call.unfit != "allowed":
            if call.tool not in offers:
                hint = hint_at(call.tool, offers, '"')
                saw = f"offered are {', '.join(offers) or 'no tools'}{hint}"
                self.script.wrong(self.rule, f'a tool "{call.tool}" that is offered', saw)
            else:
                for problem in _unfit(call.arguments, mapped(offers[call.tool].get("schema"))):
                    self.script.wrong(self.rule, f"arguments that {call.tool} takes", problem)
        id = call.id or f"call-{self.script.count()}"
        arguments = _read(call.arguments)
        if arguments is None:
            return ToolRequest(id, call.tool, unreadable=str(call.arguments))
        return ToolRequest(id, call.tool, arguments)


def text_of(chunk: Any) -> str:
    """Return a piece of an answer as text: a string unchanged, other data as JSON.

    An answer that meets a schema consists of such data.
    """
    return chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False)


def _read(arguments: Any) -> dict[str, Any] | None:
    """Return the arguments of a call; None if they are not a JSON object."""
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        read = read_json(arguments)
    except (ValueError, RecursionError):
        return None
    return read if is_mapping(read) else None


def _unfit(arguments: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    read = _read(arguments)
    if read is None:
        yield f"{show(arguments)}, which is no JSON object"
        return
    for path, message, _ in misfits(read, schema):
        yield f"{'.'.join(map(str, ('$', *path)))}: {message}"
    for name in schema.get("required", ()):
        if name not in read:
            yield f'"{name}" is missing'
