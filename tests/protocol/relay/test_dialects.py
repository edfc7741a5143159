"""What three relays were sent, said to our hub: it does alike, but for the rows of the page.

And what they sent, to our client: it understands every frame of them.
"""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.protocol.relay import (
    Hub,
    HubConnection,
    HubOptions,
    RelayAnswer,
    RelayClient,
    RelayFault,
    RelayMessage,
    Welcomed,
)
from tests.protocol.relay.dialects import ALL, PAGE, ROWS, write_page

if TYPE_CHECKING:
    from collections.abc import Iterator

CAPTURES = Path(__file__).parent / "captures"
LONG = "long"

Record = dict[str, Any]


def cases(relay: str) -> dict[str, list[Record]]:
    """Return the frames and closes of a relay, by case."""
    found: dict[str, list[Record]] = {}
    for line in (CAPTURES / f"{relay}.jsonl").read_text(encoding="utf-8").strip("\n").split("\n"):
        record = json.loads(line)
        is_close = record["kind"] == "close" and (record["to"] == "relay" or record.get("code", 0) > 1001)
        if record["kind"] == "frame" or is_close:
            found.setdefault(record["case"], []).append(record)
    return found


def is_welcome(record: Record) -> bool:
    return record["from"] == "relay" and '"type":"welcome"' in record.get("text", "")


def plain(text: str | bytes) -> Any:
    """Return a frame without what the relay gives, and of its own answers what they are about."""
    frame = json.loads(text)
    for name in ("id", "ts"):
        frame.pop(name, None)
    payload = frame.get("payload")
    if frame.get("from") == "relay" and frame.get("type") in ("error", "pong", "subscribed", "unsubscribed"):
        return frame["type"], payload.get("code") if frame["type"] == "error" else None
    return LONG if isinstance(payload, str) and len(payload) > 1_000 else frame


def sent(record: Record) -> bytes:
    """Return the bytes of a frame of a client, with what was cut from it."""
    text = record.get("text")
    if text is None:
        return bytes.fromhex(record["hex"])
    cut = re.fullmatch(r"(.*?)([x\[])+… \((\d+) characters\)", text)
    if cut is None:
        return str(text).encode()
    return cut[1].encode() + cut[2].encode() * (int(cut[3]) - len(cut[1]) - 2) + b'"}'


def without_from(record: Record) -> str:
    return re.sub(r'^\{"from": ?"agent-\d+", ?', "{", record.get("text") or record["hex"])


def differences(relay: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield each frame that our hub answers otherwise: as it was sent, what was recorded, what ours does."""
    for case in cases(relay).values():
        hub = Hub(HubOptions(rates=()), new_id=map(str, count()).__next__, now=lambda: 0)
        opened: dict[str, HubConnection] = {}
        for number, record in enumerate(case):
            if is_welcome(record):
                name = record["to"]
                opened[name] = hub.connect(name.split("/")[0], 0.0)
                taken(opened)
            elif record["kind"] == "close" and record["to"] == "relay":
                hub.disconnect(opened.pop(record["from"]), 0.0)
            elif record["to"] == "relay" and record.get("opcode") in ("text", "binary"):
                if "fragments" in record["text" if "text" in record else "hex"]:
                    continue  # a note of the recording
                theirs = recorded(case[number + 1 :])
                opened[record["from"]].receive(sent(record), 0.0)
                ours = taken(opened)
                if ours != theirs:
                    yield without_from(record), theirs, ours


def recorded(after: list[Record]) -> dict[str, list[Any]]:
    """Return what came of a frame: to whom what."""
    found: dict[str, list[Any]] = {}
    for record in after:
        if record["from"] != "relay":
            break
        if record["kind"] == "close":
            found.setdefault(record["to"], []).append(("close", record["code"]))
        elif record["opcode"] != "pong" and not is_welcome(record):
            is_cut = "… (" in record["text"]
            found.setdefault(record["to"], []).append(LONG if is_cut else plain(record["text"]))
    return found


def taken(opened: dict[str, HubConnection]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, connection in opened.items():
        frames = [plain(frame) for frame in connection.frames(1 << 30)]
        if connection.closing is not None and not connection.is_gone:
            connection.is_gone = True
            frames.append(("close", connection.closing[0]))
        if frames:
            found[name] = frames
    return found


@pytest.mark.slow
def test_every_difference_is_a_row_and_every_row_a_difference() -> None:
    used: set[int] = set()
    without: list[Any] = []
    for relay in ALL:
        for frame, theirs, ours in differences(relay):
            rows = [number for number, row in enumerate(ROWS) if row.covers(relay, frame)]
            used |= set(rows[:1])
            if not rows:
                without.append((relay, frame[:200], theirs, ours))
    assert without == []
    assert [row.what for number, row in enumerate(ROWS) if number not in used] == []


def test_the_page_has_the_rows() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page()


@pytest.mark.parametrize("relay", [*ALL, "cli"])
def test_the_client_understands_every_frame_of_every_relay(relay: str) -> None:
    clients: dict[str, RelayClient] = {}
    kinds: set[str] = set()
    for case in cases(relay).values():
        for record in case:
            text = record.get("text", "")
            if (
                record["kind"] != "frame"
                or record["to"] == "relay"
                or record["opcode"] != "text"
                or "… (" in text
            ):
                continue
            client = clients.setdefault(record["to"], RelayClient())
            if is_welcome(record):
                client = clients[record["to"]] = RelayClient()
            event = client.receive(text.encode())
            frame = json.loads(text)
            if event is None:
                assert client.repeated, text
                continue
            kinds.add(type(event).__name__)
            if isinstance(event, RelayMessage):
                assert (event.id, event.sender, event.payload) == (
                    frame["id"],
                    frame["from"],
                    frame["payload"],
                )
            elif isinstance(event, Welcomed):
                assert [event.id] == frame["to"] == [client.id]
            elif isinstance(event, RelayFault):
                assert event.code == frame["payload"]["code"]
            else:
                assert (event.type, event.payload) == (frame.get("type", ""), frame.get("payload"))
    assert {"Welcomed", "RelayMessage"} <= kinds
    assert all(client.unread == 0 for client in clients.values())
    assert RelayAnswer.__name__ in kinds or relay in ("seed-day", "cli")
