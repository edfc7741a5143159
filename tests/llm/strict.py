"""What strict providers refuse: a judge of requests in both formats, for the server of `provider_server`.

    server.default = strict("mistral")

Each `_refuse` is a rule that users of other frameworks have run into, of providers that answer with status
400. The family `anthropic` in the format of OpenAI is a gateway to it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.llm.provider_server import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.llm.provider_server import Received

IDS = {
    "openai": r"[!-~]{1,40}",
    "ollama": r".{1,}",
    "gemini": r".{1,}",
    "mistral": r"[a-zA-Z0-9]{9}",
    "anthropic": r"[a-zA-Z0-9_-]+",
}
NAMES = {"gemini": r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}"}
LENIENT = ("openai", "ollama")
"""They take a history whose last word is the model's."""


class _Refused(Exception):
    pass


def _refuse(when: object, why: str) -> None:
    if when:
        raise _Refused(why)


def refusal(family: str, body: dict[str, Any], *, messages: bool = False) -> str | None:
    """Return why a request is refused; `messages` is the format of Anthropic."""
    try:
        if messages:
            _blocks(body)
        else:
            _completions(family, body)
    except _Refused as refused:
        return str(refused)
    return None


def strict(family: str, answer: Reply = Reply()) -> Callable[[Received], Reply]:  # noqa: B008 -- is frozen
    """Return the answers of a strict provider."""

    def judge(received: Received) -> Reply:
        why = refusal(family, received.body, messages=received.path.endswith("/messages"))
        return answer if why is None else Reply(status=400, error=why, error_type="invalid_request_error")

    return judge


def _completions(family: str, body: dict[str, Any]) -> None:
    name = re.compile(NAMES.get(family, r"[a-zA-Z0-9_-]{1,64}"))
    offered = [tool["function"]["name"] for tool in body.get("tools", ())]
    _names(offered, name)
    for tool in body.get("tools", ()):
        _parameters(family, tool["function"].get("parameters"))
    spoken = [message for message in body["messages"] if message["role"] != "system"]
    _refuse(spoken[0]["role"] != "user", "the first message must be of the user")
    _refuse(
        spoken[-1]["role"] == "assistant" and family not in LENIENT, "the last message is of the assistant"
    )
    waiting: list[str] = []
    taken: set[str] = set()
    before = ""
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        _refuse(waiting and role != "tool", f"no result behind the calls {waiting}")
        _refuse(role == before == "user", "roles must alternate")
        _refuse(role == before == "assistant", "roles must alternate")
        _refuse(family == "mistral" and (before, role) == ("tool", "user"), "user after tool")
        if role == "assistant":
            waiting = _calls(family, message, name, taken)
        elif role == "tool":
            _refuse(message["tool_call_id"] not in waiting, "a result without a call")
            _refuse(family == "gemini" and not message.get("name"), "the name cannot be empty")
            waiting.remove(message["tool_call_id"])
        _refuse(role != "assistant" and _is_blank(content), f"blank content of role {role}")
        before = role
    _refuse(waiting, f"no result behind the calls {waiting}")
    _refuse(family == "anthropic" and taken and not offered, "tools must be defined for calls")


def _calls(family: str, message: dict[str, Any], name: re.Pattern[str], taken: set[str]) -> list[str]:
    calls, content = message.get("tool_calls", []), message["content"]
    _refuse(not calls and _is_blank(content), "the assistant has neither content nor tool_calls")
    _refuse(content is None and family in ("ollama", "mistral"), "invalid message content type: <nil>")
    _refuse(content is not None and _is_blank(content) and family == "anthropic", "text must be non-empty")
    for call in calls:
        _refuse(not re.fullmatch(IDS[family], call["id"]), f"the id {call['id']!r} of a call")
        _refuse(call["id"] in taken, "ids must be unique")
        _refuse(not name.fullmatch(call["function"]["name"]), f"the name {call['function']['name']!r}")
        taken.add(call["id"])
    return [call["id"] for call in calls]


def _names(offered: Sequence[str], name: re.Pattern[str]) -> None:
    for each in offered:
        _refuse(not name.fullmatch(each), f"the name {each!r} of a tool")
    _refuse(len(set(offered)) < len(offered), "names of tools must be unique")


AT_THE_TOP = ("oneOf", "anyOf", "allOf", "enum", "const", "not", "if", "$ref")
GEMINI = {
    *("type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems"),
    *("properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern"),
    *("example", "anyOf", "default", "minimum", "maximum"),
}


def _parameters(family: str, schema: dict[str, Any] | None) -> None:
    if schema is None:
        _refuse(family != "gemini", "there is no schema")
        return
    _refuse(schema.get("type") != "object", f"schema must have type 'object', got {schema.get('type')!r}")
    _refuse([word for word in AT_THE_TOP if word in schema], "no union at the top level")
    _refuse("properties" not in schema, "object schema missing properties")
    for name in schema["properties"]:
        wrong = family == "anthropic" and not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name)
        _refuse(wrong, f"property keys should match: {name!r}")
    _part(family, schema, schema)


def _part(family: str, schema: Any, root: dict[str, Any]) -> None:
    _refuse(not isinstance(schema, dict), f"{schema!r} is no object")
    kind = schema.get("type")
    is_array = "array" in (kind if isinstance(kind, list) else [kind])
    _refuse(is_array and not {"items", "prefixItems"} & set(schema), "array schema missing items")
    if "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            _refuse(step not in found, f"{schema['$ref']} leads nowhere")
            found = found[step]
    _refuse(not isinstance(schema.get("properties", {}), dict), "properties must be an object")
    _refuse(not isinstance(schema.get("required", []), list), "required must be a list")
    if family == "gemini":
        _refuse(set(schema) - GEMINI, f"unknown names {set(schema) - GEMINI}")
        _refuse("anyOf" in schema and len(schema) > 1, "anyOf must be the only field")
        _refuse("anyOf" not in schema and not isinstance(kind, str), "type must be one, and not a list")
        _refuse(kind == "null", "no type null")
        _refuse(kind == "object" and not schema.get("properties"), "properties: should be non-empty")
        _refuse(kind != "object" and {"properties", "required"} & set(schema), "only for OBJECT")
        _refuse(
            set(schema.get("required", ())) - set(schema.get("properties", ())), "required is not defined"
        )
        _refuse([each for each in schema.get("enum", ()) if not isinstance(each, str)], "enum is of strings")
    for word in ("properties", "$defs", "definitions", "patternProperties"):
        for each in schema.get(word, {}).values():
            _part(family, each, root)
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for each in schema.get(word, ()):
            _part(family, each, root)
    if "items" in schema:
        _part(family, schema["items"], root)


def _is_blank(content: Any) -> bool:
    if isinstance(content, list):
        return any(part["type"] == "text" and not part["text"].strip() for part in content)
    return not (content or "").strip()


def _blocks(body: dict[str, Any]) -> None:
    name = re.compile(r"[a-zA-Z0-9_-]{1,128}")
    _names([tool["name"] for tool in body.get("tools", ())], name)
    for tool in body.get("tools", ()):
        _parameters("anthropic", tool["input_schema"])
    _refuse(not body.get("system", "-").strip(), "system: text must be non-empty")
    role = "user"
    waiting: list[str] = []
    taken: set[str] = set()
    for message in body["messages"]:
        _refuse(message["role"] != role, "roles must alternate, and begin with the user")
        role = "assistant" if role == "user" else "user"
        results = [block for block in message["content"] if block["type"] == "tool_result"]
        _refuse(message["content"][: len(results)] != results, "results must be first")
        _refuse(
            sorted(waiting) != sorted(each["tool_use_id"] for each in results), "calls and results differ"
        )
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        waiting = [call["id"] for call in calls]
        for call in calls:
            _refuse(not re.fullmatch(IDS["anthropic"], call["id"]), f"the id {call['id']!r} of a call")
            _refuse(call["id"] in taken, "ids must be unique")
            _refuse(not name.fullmatch(call["name"]), f"the name {call['name']!r}")
            taken.add(call["id"])
        _refuse(not message["content"] or _is_blank(message["content"]), "text must be non-empty")
        _refuse(message["content"][-1]["type"] == "thinking", "the last block is thinking")
    _refuse(role == "user", "the conversation must end with a message of the user")
    _refuse(taken and not body.get("tools"), "tools must be defined for calls")
