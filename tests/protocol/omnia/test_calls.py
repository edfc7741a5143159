"""The rules of the frames of a call: their numbers, their format. No host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lmos_actors.protocol.omnia import (
    DEFAULT_FORMAT,
    AudioFormat,
    CallIn,
    FrameOrder,
    MediaFrame,
    MediaInfo,
    agreed_format,
    proposed_format,
    read_media_frame,
)

HEAD = Path(__file__).parent / "captures/head"

TAKEN: list[tuple[str, list[int | str], list[int], int, int]] = [
    ("in order", [0, 1, 2], [0, 1, 2], 0, 0),
    ("from any number on", [7, 8], [7, 8], 0, 0),
    ("a gap", [0, 3, 4], [0, 3, 4], 2, 0),
    ("a client that does not count", [0, 0, 0], [0, 0, 0], 0, 0),
    ("twice after a resumption", [0, 1, 2, "resumed", 1, 2, 3], [0, 1, 2, 3], 0, 2),
    ("a gap by a resumption", [0, 1, "resumed", 5], [0, 1, 5], 3, 0),
    ("from 0 on after a resumption", [0, 1, 2, "resumed", 0, 1], [0, 1, 2, 0, 1], 0, 0),
]


@pytest.mark.parametrize(
    ("numbers", "taken", "lost", "late"), [row[1:] for row in TAKEN], ids=[r[0] for r in TAKEN]
)
def test_numbers(numbers: list[int | str], taken: list[int], lost: int, late: int) -> None:
    order, found = FrameOrder(), list[int]()
    for number in numbers:
        if isinstance(number, str):
            order.resume()
        elif order.take(number):
            found.append(number)
    assert (found, order.lost, order.late) == (taken, lost, late)


@given(st.lists(st.booleans()), st.integers(0, 50), st.integers(0, 10))
def test_the_counts_of_a_call_add_up(arrives: list[bool], breaks_at: int, repeated: int) -> None:
    """Each frame that was sent is taken or lost; each that was sent again, and was there, is late."""
    order, taken = FrameOrder(), list[int]()
    sent = [number for number, came in enumerate([True, *arrives, True]) if came]
    before = [number for number in sent if number < breaks_at]
    again = [number for number in before[-repeated:] if number] if repeated else []
    for number in before:
        assert order.take(number)
        taken.append(number)
    order.resume()
    for number in [*again, *sent[len(before) :]]:
        if order.take(number):
            taken.append(number)
    assert taken == sent
    assert order.lost == sent[-1] + 1 - len(sent)
    assert order.late == len(again)


def first_frame(story: str) -> MediaFrame:
    for line in map(json.loads, (HEAD / f"{story}.jsonl").read_text().splitlines()):
        if line.get("kind") == "binary" and line["from"] == "client":
            found = read_media_frame(bytes.fromhex(line["hex"]))
            assert isinstance(found, MediaFrame)
            return found
    raise AssertionError(story)


def test_the_format_of_recorded_calls() -> None:
    assert proposed_format(first_frame("audio").info) == DEFAULT_FORMAT
    assert proposed_format(first_frame("audio_parked_and_resumed").info) == DEFAULT_FORMAT
    assert proposed_format(first_frame("audio_format_refused").info) is None


def test_the_part_that_an_agent_needs_takes_precedence() -> None:
    proposed = AudioFormat(codec="opus", sample_rate=48_000, channels=2)
    assert agreed_format(proposed, None) == proposed
    wanted = AudioFormat(sample_rate=24_000)
    assert agreed_format(proposed, wanted) == AudioFormat(codec="opus", sample_rate=24_000, channels=2)


def test_a_format_that_is_not_agreed_on_is_not_heard_and_not_for_long() -> None:
    call = CallIn(DEFAULT_FORMAT)

    def taken(at: float, number: int, **info: int | str) -> bool:
        frame = MediaFrame(media_id="", sequence=number, payload=b"x", info=MediaInfo(**info))  # type: ignore[arg-type]
        return call.take(frame, at)

    assert not taken(0, 0, sample_rate=8_000)
    assert not taken(4, 1, mime_type="video/mp4")
    assert not call.is_unsatisfiable(4)
    assert taken(4, 2, sample_rate=16_000)
    assert taken(4, 3)  # names none
    assert not taken(10, 4, channels=2)
    assert not call.is_unsatisfiable(14.9)
    assert call.is_unsatisfiable(15)
    assert (call.taken, call.misformatted) == (2, 3)
