"""What real facades and clients said to each other is read, and written as it was; see captures/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmos_actors.protocol.omnia import (
    ClientConnection,
    MediaFrame,
    UnknownFrame,
    Unreadable,
    UnreadableMedia,
    read_client_frame,
    read_media_frame,
    read_server_frame,
    write_frame,
    write_media_frame,
)

STORIES = sorted((Path(__file__).parent / "captures").glob("*/*.jsonl"))


def lines(story: Path, **wanted: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in story.read_text(encoding="utf-8").splitlines()]
    return [each for each in found if all(each.get(name) == value for name, value in wanted.items())]


def name(story: Path) -> str:
    return f"{story.parent.name}-{story.stem}"


def is_whole(line: dict[str, Any]) -> bool:
    """Whether the recording has not cut the frame."""
    return "json" in line or ("text" in line and "bytes" not in line)


def text_of(line: dict[str, Any]) -> str:
    return json.dumps(line["json"], ensure_ascii=False) if "json" in line else line["text"]


def test_there_are_all_stories() -> None:
    assert len(STORIES) == 100


@pytest.mark.parametrize("story", STORIES, ids=name)
def test_frames_of_servers_are_read_and_written_as_they_were(story: Path) -> None:
    for line in lines(story, kind="text", **{"from": "server"}):
        if not is_whole(line):
            continue
        message = read_server_frame(text_of(line))
        assert not isinstance(message, Unreadable | UnknownFrame), message
        assert json.loads(write_frame(message)) == line["json"]


@pytest.mark.parametrize("story", STORIES, ids=name)
def test_binary_frames_of_servers_are_read_and_written_as_they_were(story: Path) -> None:
    for line in lines(story, kind="binary", **{"from": "server"}):
        data = bytes.fromhex(line["hex"])
        if len(data) < line["bytes"]:
            continue
        frame = read_media_frame(data)
        assert not isinstance(frame, UnreadableMedia), frame
        assert write_media_frame(frame) == data


@pytest.mark.parametrize("story", STORIES, ids=name)
def test_our_client_takes_every_frame_of_every_version(story: Path) -> None:
    """It reads all of them, has the newest session, and counts one end for each turn that it began."""
    for name in dict.fromkeys(line["connection"] for line in lines(story) if "connection" in line):
        client = ClientConnection()
        for line in lines(story, connection=name, **{"from": "server"}):
            if line["kind"] == "text" and is_whole(line):
                client.receive(text_of(line))
                named = line["json"].get("session_id")
                assert named is None or client.session_id == named
            elif line["kind"] == "binary" and len(line["hex"]) == 2 * line["bytes"]:
                assert isinstance(client.receive_binary(bytes.fromhex(line["hex"])), MediaFrame)
        assert client.unread == 0


REFUSED = {
    # what facades took or refused, and ours refuses: text, the reason that is given
    "": "this is not JSON",
    "{broken": "this is not JSON",
    "null": "a frame is a JSON object",
    "42": "a frame is a JSON object",
    '"text"': "a frame is a JSON object",
    "[]": "a frame is a JSON object",
}


@pytest.mark.parametrize("story", STORIES, ids=name)
def test_frames_of_clients_are_read_or_refused_with_a_reason(story: Path) -> None:
    """A frame of ours is read; of every other one the reason says what is wrong."""
    for line in lines(story, kind="text", **{"from": "client"}):
        if not is_whole(line):
            continue
        text = text_of(line)
        message = read_client_frame(text)
        if isinstance(message, Unreadable):
            assert message.reason.startswith(REFUSED.get(text, message.reason))
            assert message.reason
        else:
            written = json.loads(write_frame(message))
            known = {key: value for key, value in json.loads(text).items() if key in written}
            assert written == known or message.session_id == ""
