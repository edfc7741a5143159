"""The twelve bytes in front of every item of a stream of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lmos_actors.protocol.lmos import Binary
from lmos_actors.protocol.lmos._frames import (
    BadFrame,
    Frame,
    pack_frame,
    parse_frame,
)

NUMBERS = st.integers(0, 2**32 - 1)
FRAMES = st.builds(Frame, NUMBERS.filter(bool), NUMBERS, st.binary(max_size=64), st.booleans())

SAMPLES = [
    (Frame(1, 0, b""), "01 00 0000 00000001 00000000"),
    (Frame(2, 3, b"ab"), "01 00 0000 00000002 00000003 6162"),
    (Frame(2, 3, b"ab", last=True), "01 01 0000 00000002 00000003 6162"),
    (Frame(0xFFFFFFFF, 0xFFFFFFFE, b"\0"), "01 00 0000 ffffffff fffffffe 00"),
    (Frame(0x01020304, 0x0A0B0C0D, b""), "01 00 0000 01020304 0a0b0c0d"),
]

BAD = [
    ("", "12 bytes", None),
    ("01 00 0000 00000001 000000", "this one has 11", None),
    ("00 00 0000 00000001 00000000", "version 0", None),
    ("02 00 0000 00000001 00000000", "version 2", None),
    ("7b 22 6d65 73736167 65547970", "version 123", None),  # JSON in a binary frame
    ("01 00 0000 00000000 00000000", "number 0", None),
    ("01 02 0000 00000005 00000000", "unknown flags", 5),
    ("01 81 0000 00000005 00000000", "unknown flags", 5),
    ("01 00 0001 00000005 00000000", "unknown flags", 5),
    ("01 00 0100 00000005 00000000", "unknown flags", 5),
]


@pytest.mark.parametrize(("frame", "data"), SAMPLES)
def test_frames_are_these_bytes(frame: Frame, data: str) -> None:
    packed = pack_frame(frame)
    assert packed == bytes.fromhex(data)
    assert type(packed) is Binary
    assert parse_frame(packed) == frame


@pytest.mark.parametrize(("data", "detail", "stream"), BAD)
def test_what_is_no_frame_is_said(data: str, detail: str, stream: int | None) -> None:
    bad = parse_frame(bytes.fromhex(data))
    assert isinstance(bad, BadFrame)
    assert detail in bad.detail
    assert bad.stream == stream


@given(FRAMES)
def test_every_frame_comes_back(frame: Frame) -> None:
    assert parse_frame(pack_frame(frame)) == frame


@given(st.binary(max_size=40))
def test_any_bytes_are_a_frame_or_a_bad_one(data: bytes) -> None:
    read = parse_frame(data)
    assert isinstance(read, BadFrame) or pack_frame(read) == data


@given(FRAMES, st.data())
def test_a_changed_header_is_never_the_same_frame(frame: Frame, data: st.DataObject) -> None:
    packed = bytearray(pack_frame(frame))
    packed[data.draw(st.integers(0, 11))] ^= data.draw(st.integers(1, 255))
    assert parse_frame(bytes(packed)) != frame


@pytest.mark.parametrize(("stream", "sequence"), [(0, 0), (-1, 0), (2**32, 0), (1, -1), (1, 2**32)])
def test_a_number_out_of_range_is_not_packed(stream: int, sequence: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        pack_frame(Frame(stream, sequence, b""))


def test_a_read_payload_does_not_hold_the_frame() -> None:
    data = memoryview(bytearray(pack_frame(Frame(1, 0, b"abc"))))
    read = parse_frame(data)  # type: ignore[arg-type] # as a transport may hand it over
    data[12:] = b"xyz"
    assert isinstance(read, Frame)
    assert read.payload == b"abc"
