"""The page that specifies our extension: its examples can be read, and it leaves out no message or member."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from lmos_actors.protocol.lmos import OFFERS, SessionOptions, _messages as m, _problems
from lmos_actors.protocol.lmos._frames import HEADER, MAX_STREAM, Frame, pack_frame, parse_frame
from lmos_actors.protocol.lmos._streams import DEFAULT_CREDIT, MAX_CREDIT
from lmos_actors.protocol.lmos.thing._streams import MAX_GATHERED, MAX_INPUTS
from lmos_actors.protocol.td import EXTENSIONS_PREFIX, EXTENSIONS_URI, OFFERS as ANNOUNCED, load
from tests.rows import each_row
from tests.source import ROOT

PAGE = (ROOT / "docs/reference/lmos-extensions.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
MESSAGES = [text for text in EXAMPLES if "messageType" in text]
DESCRIPTIONS = [text for text in EXAMPLES if "@context" in text]
OWN = (m.Gap, m.StreamOpen, m.StreamItem, m.StreamEnd, m.StreamCredit, m.TellCredit, m.TellWindow)
"""The messages that are ours as a whole."""

OF_LMOS = {
    m.ReadMultipleProperties: {"properties"},
    m.InvokeAction: {"action", "input"},
    m.CancelAction: {"action", "reason"},
    m.ActionStatus: {"action", "status", "output"},
    m.Error: {"type", "title", "status", "detail", "instance"},
    m.Acknowledgement: {"message"},
}
PLAIN = {"name", "action", "event", "data", "value", "timestamp"}
COMMON = {"thingID", "messageID", "correlationID", "traceparent", "tracestate"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, up to the next one."""
    text = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", cell)


def members(kind: type[m.Base]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)} - COMMON


def extended() -> set[tuple[str, str]]:
    """Every member that is ours, of messages that are not."""
    return {
        (tag, name)
        for tag, kind in m.MESSAGES.items()
        if kind not in OWN
        for name in members(kind) - OF_LMOS.get(kind, PLAIN)
    }


@each_row("text", MESSAGES)
def test_an_example_is_a_message_as_it_is_sent(text: str) -> None:
    message = m.strict_decoder.decode(text)
    assert json.loads(msgspec.json.encode(message)) == {
        name: value
        for name, value in json.loads(text).items()
        if name != "contentType" or value != "application/json"
    }


def test_every_message_of_ours_has_an_example() -> None:
    shown = {type(m.strict_decoder.decode(text)) for text in MESSAGES}
    assert shown >= {*OWN, m.Acknowledgement, m.InvokeAction, m.ActionStatus}


def test_every_member_of_ours_is_in_the_table() -> None:
    listed = {(tag, name) for row in rows("Members") for tag in code(row[0]) for name in code(row[1])}
    assert {pair for pair in listed if pair[0] in m.MESSAGES} == extended()


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_every_member_of_our_messages_is_named(kind: type[m.Base]) -> None:
    assert members(kind) <= set(code(PROSE))


def test_the_words_of_an_announcement_are_all() -> None:
    words = [word for row in rows("Announcement") for word in code(row[0])]
    assert set(words) == set(ANNOUNCED)
    assert set(OFFERS) == set(ANNOUNCED) - {"exited"}
    assert f"prefix for `{EXTENSIONS_URI}`" in PAGE


@pytest.mark.parametrize("text", DESCRIPTIONS)
def test_the_description_can_be_read(text: str) -> None:
    description = load(text)
    assert {"acks", "streams"} <= set(json.loads(text)[f"{EXTENSIONS_PREFIX}:offers"])
    streams = description.streams_of("talk")
    assert streams is not None
    assert streams.input is not None
    assert streams.input["voice"].content_type == "audio/pcm"


def test_every_problem_type_of_ours_is_in_the_table() -> None:
    ours = {
        value.removeprefix(_problems.OURS)
        for value in vars(_problems).values()
        if isinstance(value, str) and value.startswith(_problems.OURS) and value != _problems.OURS
    }
    found = {word for row in rows("Members") for word in code(row[0]) if "-" in word or word in ours}
    assert found == ours
    assert f"`{_problems.OURS}`" in PAGE


BINARY = [row for row in rows("Binary frames") if re.match(r"`[0-9a-f]{2} ", row[0])]


@pytest.mark.parametrize("row", BINARY)
def test_an_example_frame_is_what_is_said_of_it(row: list[str]) -> None:
    frame = parse_frame(bytes.fromhex(code(row[0])[0]))
    assert isinstance(frame, Frame)
    said = f"item {frame.sequence} of stream {frame.stream}" + (", the last" if frame.last else "")
    payload = repr(frame.payload)[2:-1]
    assert row[1] == (f"{said}: `{payload}`" if payload else f"{said}, empty")


def test_there_are_examples_of_frames() -> None:
    assert len(BINARY) == 3


def test_the_table_of_the_header_is_the_header() -> None:
    frame = pack_frame(Frame(0x01020304, 0x05060708, b"item", last=True))
    fields = {
        row[2]: frame[int(row[0]) :][: int(row[1] or 4)] for row in rows("Binary frames") if row[0].isdigit()
    }
    assert fields == {
        "version": b"\x01",
        "flags": b"\x01",
        "": b"\0\0",
        "stream": b"\x01\x02\x03\x04",
        "sequence": b"\x05\x06\x07\x08",
        "item": b"item",
    }
    assert HEADER == 12


def test_the_numbers_are_those_of_the_code() -> None:
    flat = " ".join(PAGE.split())
    assert f"from 1 to {MAX_STREAM}" in flat
    assert f"Credit beyond {MAX_CREDIT} MAY be ignored" in flat
    assert f"is {DEFAULT_CREDIT.items} items and {DEFAULT_CREDIT.bytes} bytes" in flat
    assert f"(more than {MAX_INPUTS} in one message)" in flat
    assert f"({MAX_GATHERED:,} items and {SessionOptions().max_bytes >> 20} MiB at most" in flat
