"""What the newest facade was sent, said to our server: it answers alike, but for the frames that are listed.

The reasons are in `docs/explanation/omnia.md`, which names each of these frames.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lmos_actors.protocol.omnia import MessageReceived, ServerConnection, ServerOptions
from tests.source import ROOT

HEAD = Path(__file__).parent / "captures/head"
PAGE = (ROOT / "docs/explanation/omnia.md").read_text(encoding="utf-8")

EMPTY = "a message without content is a mistake"
TYPE = "a frame of no known type is a mistake"
RACE = "a place is free once its turn has ended"
ANY = "metadata is any object"
TWICE = "a frame with a member twice has two meanings"
PART = "a part of no known type is a mistake"

DIFFERENT: dict[str, dict[str, str]] = {
    "not_understood": {"null": TYPE, '{"type":"message","content":null}': EMPTY},
    "odd_but_taken": {
        '{"content": "no type"}': TYPE,
        '{"type": "", "content": "empty type"}': TYPE,
        '{"type": "ping"}': TYPE,
        '{"type": "no_such_type", "content": "unknown type"}': TYPE,
        '{"type": "message"}': EMPTY,
        '{"type": "message", "content": ""}': EMPTY,
        '{"type": "message", "content": "unknown member", "x": {"y": 1}}': RACE,
        '{"TYPE": "message", "Content": "other case"}': TYPE,
        '{"type":"message","content":"first","content":"second"}': TWICE,
    },
    "binary_not_understood": {},
    "json_in_a_binary_frame": {},
    "empty_text": {},
    "metadata": {
        '{"type": "message", "content": "!metadata", "metadata": {"n": 1}}': ANY,
        '{"type": "message", "content": "!metadata", "metadata": {"nested": {}}}': ANY,
    },
    "parts": {
        '{"type": "message", "parts": []}': EMPTY,
        '{"type": "message", "parts": [{"type": "no_such_part"}]}': PART,
    },
}


def ends(frames: list[dict[str, Any]]) -> list[str]:
    """Return how turns and frames ended: `done`, or the code of an error."""
    return [
        frame["error"]["code"] if frame["type"] == "error" else "done"
        for frame in frames
        if frame["type"] in ("done", "error")
    ]


def answered(server: ServerConnection, line: dict[str, Any], at: float) -> list[str]:
    """Have our server take a frame, and its agent answer."""
    if line["kind"] == "binary":
        data = bytes.fromhex(line["hex"])
        event = server.receive_binary(data.ljust(line["bytes"], b"\0"), at)
    else:
        event = server.receive(written(line), at)
    if isinstance(event, MessageReceived):
        event.turn.done("yes")
    return ends([json.loads(frame) for frame in server.frames(1 << 30)])


def written(line: dict[str, Any]) -> str:
    return json.dumps(line["json"], ensure_ascii=False) if "json" in line else str(line["text"])


def is_whole(line: dict[str, Any]) -> bool:
    return line["kind"] == "binary" or "json" in line or ("text" in line and "bytes" not in line)


@pytest.mark.parametrize("story", DIFFERENT)
def test_what_is_answered_differently(story: str) -> None:
    lines = [json.loads(line) for line in (HEAD / f"{story}.jsonl").read_text().splitlines()]
    different: set[str] = set()
    for name in dict.fromkeys(line["connection"] for line in lines if "connection" in line):
        mine = [line for line in lines if line.get("connection") == name]
        frames = [line for line in mine if line["kind"] in ("text", "binary")]
        binary = any("binary=true" in line.get("request", "") for line in mine)
        server = ServerConnection(
            ServerOptions(binary=binary), new_id=lambda: "s", now=lambda: datetime(2026, 1, 1, tzinfo=UTC)
        )
        for number, line in enumerate(frames):
            if line["from"] != "client" or not is_whole(line):
                continue
            theirs: list[dict[str, Any]] = []
            for after in frames[number + 1 :]:
                if after["from"] == "client":
                    break
                theirs.append(after.get("json", {"type": "binary"}))
            if answered(server, line, 10.0 * number) != ends(theirs):
                different.add(written(line))
    assert different == set(DIFFERENT[story])


def test_every_difference_has_its_reason_on_the_page() -> None:
    reasons = {reason for frames in DIFFERENT.values() for reason in frames.values()}
    assert [reason for reason in reasons if reason not in PAGE] == []
