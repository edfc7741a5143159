"""Binary frames: media without base64, cut into pieces if they are large.

A frame is a header of 32 bytes, metadata in JSON, and the payload:

| offset | bytes | what |
|---|---|---|
| 0 | 4 | `OMNI` |
| 4 | 1 | version, 1 |
| 5 | 1 | flags: 1 compressed, 2 cut into pieces, 4 last |
| 6 | 2 | type: 1 media, 2 upload |
| 8 | 4 | length of the metadata |
| 12 | 4 | length of the payload |
| 16 | 4 | sequence, from 0 |
| 20 | 12 | id of the medium, padded with zero bytes |

Numbers are big-endian. A payload of more than 1 MiB is cut into pieces of 64 KiB, as the newest facade does.
Each piece is a separate frame, flagged as a piece, with the total number of pieces in its metadata.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from lmos_actors._core import read_json

from ._messages import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER: Final = Layout(">4sBBHIII12s")
HEADER_BYTES: Final = _HEADER.size
_MAGIC: Final = b"OMNI"

COMPRESSED: Final = 0x01
PIECE: Final = 0x02
LAST: Final = 0x04

MEDIA: Final = 1
UPLOAD: Final = 2

WHOLE: Final = 1 << 20
"""Limit in bytes of a payload that is sent in one frame."""

PIECE_BYTES: Final = 64 << 10
"""Bytes of one piece of a larger payload."""

MAX_METADATA: Final = 64 << 10
"""Limit in bytes of the metadata of a frame that is read."""


class BinaryFrame(bytes):
    """A binary frame to send; other bytes are the UTF-8 of a text frame."""

    __slots__ = ()


class SoundFrame(BinaryFrame):
    """A binary frame of a call, which is dropped at an interruption."""

    __slots__ = ()


class MediaInfo(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The metadata of a frame. `total_chunks` is the number of pieces of a payload that was cut."""

    session_id: str | None = None
    mime_type: str | None = None
    codec: str | None = None
    sample_rate: int | None = None
    channels: int | None = None
    total_chunks: int | None = None


class MediaFrame(Struct, kw_only=True, frozen=True):
    """A binary frame of a medium. `is_last`: no frame of this medium follows."""

    media_id: str
    sequence: int
    payload: bytes
    is_last: bool = False
    is_piece: bool = False
    info: MediaInfo = MediaInfo()


class UnreadableMedia(Struct, kw_only=True, frozen=True):
    """Bytes that are not a frame of a medium, and why."""

    reason: str


_write_info: Final = msgspec.json.Encoder().encode


def read_media_frame(data: bytes) -> MediaFrame | UnreadableMedia:
    """Parse a binary frame."""
    if len(data) < HEADER_BYTES:
        return UnreadableMedia(reason=f"a binary frame has a header of {HEADER_BYTES} bytes, not {len(data)}")
    magic, version, flags, kind, meta, size, sequence, media_id = _HEADER.unpack_from(data)
    fault = _header_fault(magic, version, flags, kind)
    if fault is not None:
        return UnreadableMedia(reason=fault)
    if meta > MAX_METADATA or HEADER_BYTES + meta > len(data):
        return UnreadableMedia(reason=f"its metadata have not the {meta} bytes that the header says")
    if HEADER_BYTES + meta + size != len(data):
        return UnreadableMedia(reason=f"its payload has not the {size} bytes that the header says")
    try:
        info = read_json(data[HEADER_BYTES : HEADER_BYTES + meta], MediaInfo) if meta else MediaInfo()
        name = media_id.rstrip(b"\0").decode()
    except (ValueError, RecursionError) as error:
        return UnreadableMedia(reason=f"its metadata cannot be read: {error}")
    return MediaFrame(
        media_id=name,
        sequence=sequence,
        payload=data[HEADER_BYTES + meta :],
        is_last=bool(flags & LAST),
        is_piece=bool(flags & PIECE),
        info=info,
    )


def _header_fault(magic: bytes, version: int, flags: int, kind: int) -> str | None:
    if magic != _MAGIC:
        return "a binary frame begins with OMNI"
    if version != PROTOCOL_VERSION:
        return f"binary frames have version {PROTOCOL_VERSION}, not {version}"
    if kind == UPLOAD:
        return "uploads in binary frames are not offered: ask with upload_request"
    if kind != MEDIA:
        return f"there is no type {kind} of binary frames"
    return "compressed frames are not offered" if flags & COMPRESSED else None


def write_media_frame(frame: MediaFrame) -> bytes:
    """Return the bytes of one frame without splitting it. Raise ValueError for an id longer than 12 bytes."""
    return _frame(frame, frame.payload, frame.sequence, frame.info, piece=frame.is_piece, last=frame.is_last)


def media_frames(frame: MediaFrame) -> Iterator[bytes]:
    """Yield the bytes of a frame, or of each of its pieces if the payload is large.

    The numbers of the pieces begin with the frame's `sequence`. Raise ValueError for an id of more than 12
    bytes.
    """
    payload = frame.payload
    if len(payload) <= WHOLE:
        yield write_media_frame(frame)
        return
    total = -(-len(payload) // PIECE_BYTES)
    info = msgspec.structs.replace(frame.info, total_chunks=total)
    for number in range(total):
        part = payload[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        last = frame.is_last and number == total - 1
        yield _frame(frame, part, frame.sequence + number, info, piece=True, last=last)


def _frame(
    frame: MediaFrame, payload: bytes, sequence: int, info: MediaInfo, *, piece: bool, last: bool
) -> bytes:
    media_id, meta = frame.media_id.encode(), _write_info(info)
    if len(media_id) > 12:
        raise ValueError(f"the id of a medium has 12 bytes at most, not {len(media_id)}: {frame.media_id!r}")
    flags = (PIECE if piece else 0) | (LAST if last else 0)
    head = _HEADER.pack(_MAGIC, PROTOCOL_VERSION, flags, MEDIA, len(meta), len(payload), sequence, media_id)
    return b"".join((head, meta, payload))
