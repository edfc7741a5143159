"""Records of message logs as text."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeGuard

import attrs

from lmos_actors._core import plain, printable
from lmos_actors.files import is_list, is_mapping, mapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LAST = 20
"""Number of last messages shown for a failed run."""

SHOWN = 160
"""Most characters shown of a value."""

_PASSED_OVER = re.compile('"kind":"(?:delivered|started|stopped)"')
_RENEWAL = '"agent":"directory","affordance":"partiallyUpdateThing"'
_OWN = frozenset({"n", "t", "kind", "agent"})


@attrs.frozen
class Record:
    """One line of a message log: what happened to an agent, and when, in seconds of virtual time."""

    number: int
    at: float
    kind: str
    agent: str
    fields: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """Return the value of a field; None if the record has no such field."""
        return self.fields.get(name)

    def as_data(self) -> dict[str, Any]:
        """Return the line as it was read."""
        return {"n": self.number, "t": self.at, "kind": self.kind, "agent": self.agent, **self.fields}


def read_record(line: str) -> Record | None:
    """Return the record in a line of a message log; None for the head, the end, and any other line."""
    try:
        data = mapped(json.loads(line))
    except (ValueError, RecursionError):
        return None
    if not data.keys() >= _OWN:
        return None
    number, at = data["n"], data["t"]
    if not isinstance(number, int) or not isinstance(at, int | float):
        return None
    fields = {name: value for name, value in data.items() if name not in _OWN}
    return Record(number, float(at), str(data["kind"]), str(data["agent"]), fields)


def records(lines: Sequence[str]) -> Iterator[Record]:
    """Yield the records of a log, or of a part of one."""
    for line in lines:
        record = read_record(line)
        if record is not None:
            yield record


def last_messages(lines: Sequence[str], count: int = LAST) -> tuple[str, ...]:
    """Return the last `count` lines about messages, faults and crashes, oldest first."""
    found: list[str] = []
    for line in reversed(lines):
        if len(found) == count:
            break
        head = line[:64]  # holds number, instant and kind
        if head.startswith('{"n":') and not _PASSED_OVER.search(head) and not is_renewal(line):
            found.append(line)
    return tuple(reversed(found))


def is_renewal(line: str) -> bool:
    """Return whether a line of a log records a successful renewal in a directory.

    Renewals are as frequent as heartbeats, and no more informative.
    """
    return _RENEWAL in line[:160] and ('"patch":{}' in line or line.endswith('"value":null}'))


def message_text(record: Record) -> str:
    """Return a record as one line: `0.600000  user -> weather  invoke getWeather {"question": ...}  #4`."""
    sender = record.get("from")
    to = record.get("to") if record.kind == "network" else record.agent
    who = f"{sender} -> {to}" if sender is not None else record.agent
    number = f"  #{record.get('id')}" if record.get("id") is not None else ""
    return printable(f"{record.at:.6f}  {who}  {what_of(record)}{number}")


def shorten(text: str, size: int = SHOWN) -> str:
    """Return a text on one printable line, cut to `size` characters."""
    text = printable(" ".join(text[: size + 1].splitlines()))
    return text if len(text) <= size else text[: size - 1] + "…"


def as_text(value: Any, size: int = SHOWN) -> str:
    """Return plain data as readable JSON on one line, cut to `size` characters."""
    try:
        return shorten(json.dumps(value, ensure_ascii=False), size)
    except (ValueError, TypeError, RecursionError):
        return shorten(repr(value), size)


def clean(value: Any, depth: int = 60) -> Any:
    """Return plain data that every JSON parser accepts, without infinities and lone surrogates.

    Data nested deeper than `depth` becomes text.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if depth == 0:
        return as_text(value)
    if is_mapping(value):
        return {clean(str(key)): clean(item, depth - 1) for key, item in value.items()}
    if is_list(value) or is_tuple(value):
        return [clean(item, depth - 1) for item in value]
    return plain(value)


def is_tuple(value: Any) -> TypeGuard[tuple[Any, ...]]:
    """Return whether a value is a tuple, of any items."""
    return isinstance(value, tuple)


def what_of(record: Record) -> str:
    """Return a text that describes the event of a record, without the agent's name."""
    name, kind = str(record.get("affordance") or ""), record.kind.replace("_", " ")
    match record.kind:
        case "sent":
            words = [str(record.get("verb")), name]
            talk = _asked(name, record.get("input"))
            shown = as_text(record.get("input")) if talk is None else shorten(talk)
            words += [shown] if "input" in record.fields else []
        case "answered" if "error" in record.fields:
            words = [name, "failed:", shorten(str(record.get("error")))]
        case "answered":
            words = [name, "=", as_text(record.get("value"))]
        case "event":
            words = [kind, str(record.get("event") or record.get("topic")), as_text(record.get("data"))]
        case "progress":
            words = [name, "goes on:", as_text(record.get("progress"))]
        case "item":
            talk = _said(name, record.get("value"))
            words = [name, f"gives {as_text(record.get('value'))}" if talk is None else shorten(talk)]
        case "changed":
            words = [str(record.get("property") or ""), "is now", as_text(record.get("value"))]
        case "crashed" | "stopped":
            words = [f"{kind}:", shorten(str(record.get("reason") or ""))]
        case "refused" | "dead_letter":
            words = [kind, name, shorten(str(record.get("error") or record.get("reason")))]
        case "fault" | "healed":
            rest = {key: value for key, value in record.fields.items() if key != "fault"}
            words = [kind, str(record.get("fault") or "")]
            words += [f"{key}={as_text(value)}" for key, value in rest.items()]
        case "network":
            words = [str(record.get("what")), name]
            words += [f"{record.get('bytes')} bytes"] if record.get("bytes") else []
        case "circle":
            words = [kind, name, shorten("; ".join(map(str, record.get("waits") or ())))]
        case "started" if record.get("incarnation") not in (None, 1):
            words = ["started again,", f"incarnation {record.get('incarnation')}"]
        case _:
            words = [kind, name]
    return " ".join(filter(None, words))


# ---- requests to language models and their answers, in a few words


def _asked(name: str, value: Any) -> str | None:
    """Return the last message of a request to a model, or its tool results; None for any other input."""
    messages = mapped(value).get("messages") if name == "generate" else None
    if not is_list(messages) or not messages or not all("role" in mapped(one) for one in messages):
        return None
    last = mapped(messages[-1])
    if last["role"] != "tool":
        return f"{_compact(last.get('text', ''))} ({_count(messages)})"
    spoke = max((place for place, one in enumerate(messages) if mapped(one)["role"] != "tool"), default=-1)
    results: list[str] = []
    for message in map(mapped, messages[spoke + 1 :]):
        error = message.get("error")
        outcome = f"failed: {error}" if error else f"= {_compact(message.get('result'))}"
        results.append(f"{message.get('name')} {outcome}")
    return f"{', '.join(results)} ({_count(messages)})"


def _said(name: str, value: Any) -> str | None:
    """Return an item of a model's answer as text; None for any other value."""
    item = mapped(value)
    if name != "generate":
        return None
    match item.get("type"):
        case "text":
            return f"says {_compact(item.get('text', ''))}"
        case "reasoning":
            return f"thinks {_compact(item.get('text', ''))}"
        case "tool_request":
            arguments = item.get("unreadable") or item.get("arguments", {})
            return f"calls {item.get('name')} {_compact(arguments)}"
        case "end":
            usage = mapped(item.get("usage"))
            tokens = f"{usage.get('input_tokens', 0)} and {usage.get('output_tokens', 0)} tokens"
            return f"ends: {item.get('reason', 'stop')}, {tokens}"
        case _:
            return None


def _count(messages: list[Any]) -> str:
    return f"{len(messages)} message{'s' * (len(messages) != 1)}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
