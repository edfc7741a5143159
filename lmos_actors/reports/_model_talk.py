"""Requests to language models and their answers, in a few words: what was said last, which tool is called."""

from __future__ import annotations

import json
from typing import Any

from lmos_actors.files import is_list, mapped


def asked(name: str, value: Any) -> str | None:
    """Return what is asked of a model, None for what is no such request: its last message, or the results."""
    messages = mapped(value).get("messages") if name == "generate" else None
    if not is_list(messages) or not messages or not all("role" in mapped(one) for one in messages):
        return None
    last = mapped(messages[-1])
    if last["role"] != "tool":
        return f"{_text(last.get('text', ''))} ({_count(messages)})"
    spoke = max((place for place, one in enumerate(messages) if mapped(one)["role"] != "tool"), default=-1)
    results = [_result(mapped(one)) for one in messages[spoke + 1 :]]
    return f"{', '.join(results)} ({_count(messages)})"


def said(name: str, value: Any) -> str | None:
    """Return what a model gives, None for what is no item of its answer."""
    item = mapped(value)
    if name != "generate":
        return None
    match item.get("type"):
        case "text":
            return f"says {_text(item.get('text', ''))}"
        case "reasoning":
            return f"thinks {_text(item.get('text', ''))}"
        case "tool_request":
            arguments = item.get("unreadable") or item.get("arguments", {})
            return f"calls {item.get('name')} {_text(arguments)}"
        case "end":
            usage = mapped(item.get("usage"))
            tokens = f"{usage.get('input_tokens', 0)} and {usage.get('output_tokens', 0)} tokens"
            return f"ends: {item.get('reason', 'stop')}, {tokens}"
        case _:
            return None


def _result(message: dict[str, Any]) -> str:
    error = message.get("error")
    return (
        f"{message.get('name')} failed: {error}"
        if error
        else f"{message.get('name')} = {_text(message.get('result'))}"
    )


def _count(messages: list[Any]) -> str:
    return f"{len(messages)} message{'s' * (len(messages) != 1)}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
