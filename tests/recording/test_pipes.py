"""The end of a recording while WebSockets are open: a Close on both sides, behind a frame that has begun."""

from __future__ import annotations

import signal
import stat
import struct
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.recording.test_recording import (
    AGREED,
    PATIENCE,
    connected,
    frame,
    head_of,
    log_of_ended,
    recording,
    records,
    rest_of,
    serving,
)

if TYPE_CHECKING:
    import socket
    from pathlib import Path

GOING_AWAY = struct.pack(">H", 1001)


def close_of(connection: socket.socket) -> bytes:
    """Return the payload of the frame that comes, which is a Close, without its mask."""
    first, second = rest_of(connection, 2)
    assert first == 0x88, hex(first)
    mask = rest_of(connection, 4) if second & 0x80 else bytes(4)
    return bytes(b ^ m for b, m in zip(rest_of(connection, second & 0x7F), mask, strict=False))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_sides_get_a_close_and_their_answers_are_awaited(tmp_path: Path, number: int) -> None:
    got: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(AGREED % b"" + frame(b'{"type":"chunk","content":"hi"}', masked=False))
        got.append(close_of(connection))
        connection.sendall(frame(b"late", masked=False) + frame(GOING_AWAY, 8, masked=False))
        got.append(rest_of(connection))

    with serving(serve) as url, recording(tmp_path, url, "--speaks", "omnia") as (process, place):
        with connected(place, "/chat") as client:
            head_of(client)
            rest_of(client, 2 + 31)
            process.send_signal(number)
            assert close_of(client) == GOING_AWAY
            client.sendall(frame(GOING_AWAY, 8))
            assert rest_of(client) == b""
        out, err = process.communicate(PATIENCE)
    assert (process.wait(), err) == (0, "")
    assert got == [GOING_AWAY, b""]
    assert "cut" not in out
    log_of_ended(tmp_path)
    assert [each["bytes" if "bytes" in each else "data"] for each in records(tmp_path, "frame")] == [
        {"type": "chunk", "content": "hi"}
    ]
    (found,) = records(tmp_path, "closed")
    assert (found["by"], found["code"]) == ("recorder", 1001)
    assert stat.S_IMODE((tmp_path / "log.jsonl").stat().st_mode) == 0o600


PIECES = [
    (5, 1),
    (5, 2),
    (5, 6),
    (125, 127),
    (300, 2),
    (300, 3),
    (300, 4),
    (300, 100),
    (70_000, 9),
    (70_000, 400),
]
"""Bytes of the text in a frame, and how many of the frame have gone by when the recorder is to end."""


def test_frames_that_have_begun_are_ended_before_the_close(tmp_path: Path) -> None:
    """Each place has its connection: in the head of a frame, its length, its payload, at its edge."""
    before = frame(b"{}", masked=False) + frame(b"", 9, masked=False)
    wholes = [frame(b'"' + b"x" * size + b'"', masked=False) for size, _ in PIECES]

    def serve(connection: socket.socket) -> None:
        number = int(head_of(connection).partition(b"/chat/")[2].split()[0])
        whole, cut = wholes[number], PIECES[number][1]
        connection.sendall(AGREED % b"" + before + whole[:cut])
        assert close_of(connection) == GOING_AWAY
        connection.sendall(whole[cut:] + frame(b'"late"', masked=False))
        connection.sendall(frame(GOING_AWAY, 8, masked=False))
        assert rest_of(connection) == b""

    with (
        serving(serve) as url,
        recording(tmp_path, url, "--speaks", "omnia") as (process, place),
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(connected(place, f"/chat/{number}")) for number in range(len(PIECES))]
        for client, (_, cut) in zip(clients, PIECES, strict=True):
            head_of(client)
            rest_of(client, len(before) + cut)
        process.send_signal(signal.SIGINT)
        for client, whole, (_, cut) in zip(clients, wholes, PIECES, strict=True):
            assert rest_of(client, len(whole) - cut) == whole[cut:]
            assert close_of(client) == GOING_AWAY
            client.sendall(frame(GOING_AWAY, 8))
        process.communicate(PATIENCE)
    assert process.wait() == 0
    written = {(each["connection"], str(each["data"])) for each in records(tmp_path, "frame")}
    assert len(written) == 2 * len(PIECES)
    assert not [each for each in written if "late" in each[1]]


@pytest.mark.parametrize("again", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sides_that_answer_no_close_do_not_hold_it_up(tmp_path: Path, *, again: bool) -> None:
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(AGREED % b"")
        over.wait(PATIENCE)

    with serving(serve) as url, recording(tmp_path, url, "--speaks", "omnia") as (process, place):
        with connected(place, "/chat") as client:
            head_of(client)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert close_of(client) == GOING_AWAY
            if again:
                process.send_signal(signal.SIGINT)
            process.communicate(PATIENCE)
            assert process.wait() == 0
            assert again or time.monotonic() - began > 1.0
        over.set()
    (found,) = records(tmp_path, "closed")
    assert (found["by"], found["code"]) == ("recorder", 1001)
    assert '"kind":"closed"' in log_of_ended(tmp_path)
