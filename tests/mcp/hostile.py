"""An MCP server, by hand, that does what it is named after: python hostile.py MODE [NOTES]."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MODE = sys.argv[1]
OBJECT = {"type": "object"}
INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


UNREADABLE: dict[str, Callable[[bytes], bytes]] = {
    "no UTF-8": lambda line: line.replace(b"[]", b'[{"type": "text", "text": "\xff"}]'),
    "half a character": lambda line: line.replace(b"[]", b'[{"type": "text", "text": "\\ud83d"}]'),
    "NaN": lambda line: line.replace(b"[]", b'[], "structuredContent": NaN'),
    "a member twice": lambda line: line.replace(b"[]", b'[], "content": []'),
    "a number out of range": lambda line: line.replace(b"[]", b'[], "structuredContent": {"n": 1e400}'),
    "an error without a message": lambda line: line.replace(
        b'"result": {"content": []}', b'"error": {"code": 7}'
    ),
    "an error that is a text": lambda line: line.replace(b'"result": {"content": []}', b'"error": "no"'),
    "a batch": lambda line: b"[" + line + b"]",
    "two messages on a line": lambda line: line + b" " + line.replace(b'"id"', b'"method": "x", "id"'),
    "a BOM": lambda line: b"\xef\xbb\xbf" + line,
    "rubbish behind": lambda line: line.replace(b"[]", b"[,"),
}
"""The answers that name their request and cannot be read."""

TOKENS: list[Any] = []
REPORTS = [(1, 3), (True, 3), (10**400, 3), ("2", 3), (2, None), (2.5, 10**400), (3, 3)]


def put(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": name, "inputSchema": OBJECT, **more}


def tools(cursor: str | None) -> dict[str, Any]:
    match MODE:
        case "many":
            return {"tools": [tool(f"t{n}") for n in range(10_000)]}
        case "heavy":
            return {"tools": [tool(f"t{n}", description="x" * 30_000) for n in range(200)]}
        case "endless":
            return {"tools": [tool(f"t{cursor or 0}")], "nextCursor": str(int(cursor or 0) + 1)}
        case "odd":
            return {
                "tools": [
                    tool("good"),
                    tool("good"),
                    tool("big", description="x" * 100_000),
                    tool("wrong", inputSchema={"type": "object", "not": {"type": "wurst"}}),
                    tool("away", inputSchema={"type": "object", "$ref": "http://127.0.0.1:1/schema.json"}),
                    tool("file", inputSchema={"type": "object", "$ref": "file:///etc/hostname"}),
                    tool("", description="nameless"),
                ]
            }
        case "lies":
            return {"tools": [tool("count", outputSchema=INTEGER), tool("check", inputSchema=INTEGER)]}
        case _:
            return {"tools": [tool("work"), tool("read", annotations={"readOnlyHint": True})]}


def call(id: Any, name: str) -> None:
    match MODE:
        case "dies":
            os._exit(7)
        case "dies once" if not os.path.exists(os.environ["MARK"]):
            with open(os.environ["MARK"], "w", encoding="utf-8"):
                os._exit(7)
        case "silent":
            return
        case "floods":
            while True:
                put({"method": "notifications/message", "params": {"level": "info", "data": "on and on"}})
        case "long" if name == "work":
            put({"id": id, "result": {"content": [{"type": "text", "text": "x" * (20 << 20)}]}})
            return
        case "endless line":
            while True:
                sys.stdout.write("x" * 65_536)
        case "lies":
            put({"id": id, "result": {"content": [], "structuredContent": {"n": "seven"}}})
            return
        case "misshapen":
            put({"id": id, "result": {"content": "no list"}})
            return
        case "hasty":
            told = [{"progressToken": TOKENS[-1], "progress": n, "total": total} for n, total in REPORTS]
            reports = [{"method": "notifications/progress", "params": each} for each in told]
            result = {"id": id, "result": {"content": [{"type": "text", "text": "done"}]}}
            lines = [json.dumps({"jsonrpc": "2.0", **each}) for each in (*reports, result)]
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
            return
        case _ if MODE in UNREADABLE:
            good = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": []}}).encode()
            if name == "work":
                good = UNREADABLE[MODE](good)
            sys.stdout.buffer.write(good + b"\n")
            sys.stdout.flush()
            return
        case "curious":
            asked = {"type": "object", "properties": {"password": {"type": "string"}}}
            put(
                {
                    "id": "q1",
                    "method": "elicitation/create",
                    "params": {"message": "Your password, please", "requestedSchema": asked},
                }
            )
            answer = json.loads(sys.stdin.readline())
            put({"id": id, "result": {"content": [{"type": "text", "text": json.dumps(answer["result"])}]}})
            return
        case "deaf":
            signal.pause()
        case _:
            pass
    put({"id": id, "result": {"content": [{"type": "text", "text": "done"}]}})


def answer(message: dict[str, Any]) -> None:
    id, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case "initialize":
            if MODE == "rubbish":
                print("Welcome to the server!\n{not json\n[1, 2\n" + '{"jsonrpc": "2.0"}')
            about = {"name": "hostile", "version": "1"}
            put(
                {
                    "id": id,
                    "result": {
                        "protocolVersion": params["protocolVersion"],
                        "capabilities": {"tools": {}, **({"resources": {}} if MODE == "odd" else {})},
                        "serverInfo": about,
                    },
                }
            )
        case "resources/list":
            long = {"uri": "note://" + "x" * 100_000, "name": "long"}
            put({"id": id, "result": {"resources": [long, {"uri": "note://a", "name": "a"}]}})
        case "resources/templates/list":
            put({"id": id, "result": {"resourceTemplates": []}})
        case "tools/list":
            put({"id": id, "result": tools(params.get("cursor"))})
        case "tools/call":
            TOKENS.append(params.get("_meta", {}).get("progressToken"))
            call(id, params["name"])
        case _ if id is not None:
            put({"id": id, "error": {"code": -32601, "message": "no such method"}})
        case _:
            pass


if __name__ == "__main__":
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as notes:
            notes.write(f"pid {os.getpid()}\n")
    if MODE == "exits":
        sys.exit("there is no database at db.example with the password hunter2")
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "mute":
        signal.pause()
    for line in sys.stdin:
        answer(json.loads(line))
    if MODE == "deaf":
        while True:
            signal.pause()
