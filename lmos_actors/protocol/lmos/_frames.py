"""The binary frames of streams of bytes. Extension: docs/reference/lmos-extensions.md, "Binary frames".

Twelve bytes, big-endian, then the payload:

    0        1        2                 4                                 8
    version  flags    zero              stream                            sequence
    1        bit 0: last                number on this connection         of the item, from 0
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

import attrs

VERSION: Final = 1
LAST: Final = 0x01
HEADER: Final = 12  # bytes
WRAP: Final = 1 << 32  # items are counted modulo this
MAX_STREAM: Final = WRAP - 1

_LAYOUT: Final = Layout(">BBHII")


class Binary(bytes):
    """A binary frame to send. Plain `bytes` among frames are the UTF-8 of a text frame."""

    __slots__ = ()


@attrs.frozen
class Frame:
    """One item of a stream of bytes: number of the stream, number of the item modulo 2**32, its bytes.

    `last` is set if the stream ends with this item.
    """

    stream: int
    sequence: int
    payload: bytes
    last: bool = False


@attrs.frozen
class BadFrame:
    """An error in the format of a binary frame. `stream` is None if its number cannot be read."""

    detail: str
    stream: int | None = None


def pack_frame(frame: Frame) -> Binary:
    """Return the frame as bytes.

    Raises:
        ValueError: the stream is not within 1 to 2**32 - 1, or the sequence not within 0 to 2**32 - 1.
    """
    if not 0 < frame.stream <= MAX_STREAM or not 0 <= frame.sequence < WRAP:
        raise ValueError(f"stream {frame.stream}, item {frame.sequence} is out of range")
    head = _LAYOUT.pack(VERSION, LAST if frame.last else 0, 0, frame.stream, frame.sequence)
    return Binary(head + frame.payload)


def parse_frame(data: bytes) -> Frame | BadFrame:
    """Read a binary frame; never raises. The payload is a copy."""
    if len(data) < HEADER:
        return BadFrame(f"a binary frame has {HEADER} bytes at least, this one has {len(data)}")
    version, flags, zero, stream, sequence = _LAYOUT.unpack_from(data)
    if version != VERSION:
        return BadFrame(f"version {version} of binary frames is not known, only {VERSION}")
    if not stream:
        return BadFrame("no stream has the number 0")
    if flags & ~LAST or zero:
        return BadFrame("unknown flags are set in a binary frame", stream)
    return Frame(stream, sequence, bytes(data[HEADER:]), bool(flags))
