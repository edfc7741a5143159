"""Reading and writing valid and invalid WebSocket frames (RFC 6455) without a library."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

import attrs

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

LONGEST: Final = 4 << 20
"""Most bytes of one frame that are read."""

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_of(key: str) -> str:
    """Return the `Sec-WebSocket-Accept` value for a `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _MAGIC).digest()).decode()


@attrs.frozen
class RawFrame:
    """A frame as received. `masked` is whether it had a mask; `payload` is always unmasked."""

    opcode: int
    payload: bytes
    fin: bool = True
    rsv: int = 0
    masked: bool = False

    @property
    def is_control(self) -> bool:
        """Whether the frame is a ping, a pong, a Close, or has an undefined control opcode."""
        return self.opcode >= CLOSE


class FrameTooLong(Exception):
    """The length of a frame exceeds the limit of the reader."""


class FrameReader:
    """An incremental parser of frames. Raises FrameTooLong, and checks nothing else."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._buffer = bytearray()
        self._longest = longest

    def feed(self, data: bytes) -> list[RawFrame]:
        """Add bytes, and return the frames that are now complete."""
        self._buffer += data
        found: list[RawFrame] = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    def _next(self) -> RawFrame | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        word, at = buffer[1] & 0x7F, 2
        width = {126: 2, 127: 8}.get(word, 0)
        if len(buffer) < at + width:
            return None
        size = int.from_bytes(buffer[at : at + width], "big") if width else word
        if size > self._longest:
            raise FrameTooLong(f"a frame claims {size} bytes")
        at += width
        masked = bool(buffer[1] & 0x80)
        start = at + (4 if masked else 0)
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        if masked:
            payload = mask(payload, bytes(buffer[at:start]))
        head = buffer[0]
        del buffer[: start + size]
        return RawFrame(head & 0x0F, payload, bool(head & 0x80), head >> 4 & 0x07, masked)


def write_frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    key: bytes | None = None,
    width: int | None = None,
    claims: int | None = None,
) -> bytes:
    """Return a frame, which is masked if a `key` is given.

    `width` is the number of bytes of the extended length (0, 2 or 8) instead of the smallest that fits.
    `claims` is written as the length instead of the payload's length.
    """
    size = len(payload) if claims is None else claims
    if width is None:
        width = 0 if size < 126 else 2 if size < 65536 else 8
    word = {0: size, 2: 126, 8: 127}[width] | (0x80 if key is not None else 0)
    head = bytes([fin << 7 | rsv << 4 | opcode, word]) + (size.to_bytes(width, "big") if width else b"")
    return head + (payload if key is None else key + mask(payload, key))


def mask(data: bytes, key: bytes) -> bytes:
    """Return data XORed with a key, which masks or unmasks it."""
    if not data:
        return b""
    keys = (key * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(len(data), "little")


def close_payload(code: int | None = 1000, reason: str = "") -> bytes:
    """Return the payload of a Close frame; empty if the code is None."""
    return b"" if code is None else code.to_bytes(2, "big") + reason.encode()
