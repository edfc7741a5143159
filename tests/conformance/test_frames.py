"""The kit's own frames: what is written is read, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lmos_actors.conformance.wire import (
    CLOSE,
    TEXT,
    FrameReader,
    FrameTooLong,
    RawFrame,
    close_payload,
    mask,
    write_frame,
)

FRAMES = st.builds(
    RawFrame,
    opcode=st.integers(0, 15),
    payload=st.one_of(st.binary(max_size=200), st.sampled_from([b"x" * 125, b"x" * 126, b"x" * 65536])),
    fin=st.booleans(),
    rsv=st.integers(0, 7),
    masked=st.booleans(),
)


def written(frame: RawFrame) -> bytes:
    key = b"\x01\xfe\x80\x7f" if frame.masked else None
    return write_frame(frame.opcode, frame.payload, fin=frame.fin, rsv=frame.rsv, key=key)


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(1, 70_000), max_size=8))
def test_what_is_written_is_read(frames: list[RawFrame], cuts: list[int]) -> None:
    data, reader, found = b"".join(map(written, frames)), FrameReader(), []
    for cut in cuts:
        found += reader.feed(data[:cut])
        data = data[cut:]
    found += reader.feed(data)
    assert found == frames
    assert not reader._buffer


@given(st.binary(max_size=100), st.binary(min_size=4, max_size=4))
def test_a_mask_is_taken_off_as_it_is_put_on(data: bytes, key: bytes) -> None:
    assert mask(data, key) == bytes(byte ^ key[n % 4] for n, byte in enumerate(data))
    assert mask(mask(data, key), key) == data


def test_lengths_are_written_as_they_are_asked_for() -> None:
    assert write_frame(TEXT, b"a" * 125)[:2] == b"\x81\x7d"
    assert write_frame(TEXT, b"a" * 126)[:4] == b"\x81\x7e\x00\x7e"
    assert write_frame(TEXT, b"a" * 65536)[:10] == b"\x81\x7f" + (65536).to_bytes(8, "big")
    assert write_frame(TEXT, b"a", width=8)[:10] == b"\x81\x7f" + (1).to_bytes(8, "big")
    assert write_frame(TEXT, b"a", claims=1 << 40) == b"\x81\x7f" + (1 << 40).to_bytes(8, "big") + b"a"


def test_a_frame_that_is_too_long_is_not_waited_for() -> None:
    reader = FrameReader(longest=1000)
    assert len(reader.feed(write_frame(TEXT, b"a" * 1000))) == 1
    with pytest.raises(FrameTooLong, match="1001 bytes"):
        reader.feed(write_frame(TEXT, claims=1001))


def test_close_frames_have_a_code_and_a_reason() -> None:
    assert close_payload() == b"\x03\xe8"
    assert close_payload(None) == b""
    assert close_payload(1012, "later") == b"\x03\xf4later"
    assert FrameReader().feed(write_frame(CLOSE, close_payload(1001))) == [RawFrame(CLOSE, b"\x03\xe9")]
