"""An MCP server, by hand, that asks the user what its caller says: python -S -E asking.py."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

OBJECT = {"type": "object"}

later: list[Any] = []
"""Questions that are asked outside a call."""


def put(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(params: Any, number: int = 0) -> None:
    put({"id": f"q{number}", "method": "elicitation/create", "params": params})


def answers(count: int) -> list[Any]:
    """Read so many answers; return them in the order of the questions."""
    found: dict[str, Any] = {}
    while len(found) < count:
        message = json.loads(sys.stdin.readline())
        if "method" not in message:
            found[message["id"]] = message.get("result", message.get("error"))
    return [found[f"q{number}"] for number in range(count)]


def call(name: str, given: dict[str, Any]) -> Any:
    match name:
        case "ask":
            ask(given["params"])
            return answers(1)[0]
        case "flood":
            for number in range(given["count"]):
                ask(given["params"], number)
            return answers(given["count"])
        case "again":
            found: list[Any] = []
            for _ in range(given["count"]):
                ask(given["params"])
                found += answers(1)
            return found
        case "die":
            ask(given["params"])
            os._exit(3)
        case "leave":
            ask(given["params"])
            return "left"
        case _:
            return "done"


def answer(message: dict[str, Any]) -> None:
    id, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case "initialize":
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "asking", "version": "1"},
            }
            put({"id": id, "result": about})
        case "tools/list":
            if later:
                ask(later.pop())
            names = ("ask", "flood", "again", "leave", "later", "die")
            put({"id": id, "result": {"tools": [{"name": name, "inputSchema": OBJECT} for name in names]}})
        case "tools/call":
            found = call(params["name"], params.get("arguments", {}))
            put({"id": id, "result": {"content": [{"type": "text", "text": json.dumps(found)}]}})
            if params["name"] == "later":  # while its tools are listed, and no call is in progress
                later.append(params["arguments"]["params"])
                put({"method": "notifications/tools/list_changed"})
        case _ if id is not None and "method" in message:
            put({"id": id, "error": {"code": -32601, "message": "no such method"}})
        case _:
            pass


if __name__ == "__main__":
    while line := sys.stdin.readline():
        answer(json.loads(line))
