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


def _is_blank(content: Any) -> bool:
    if isinstance(content, list):
        return any(part["type"] == "text" and not part["text"].strip() for part in content)
    return not (content or "").strip()


def _blocks(body: dict[str, Any]) -> None:
    name = re.compile(r"[a-zA-Z0-9_-]{1,128}")
    _names([tool["name"] for tool in body.get("tools", ())], name)
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
