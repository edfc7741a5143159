"""Binary frames of streams, an extension of lmos_actors: a header of twelve bytes, and then the item."""

from __future__ import annotations

import struct
from typing import Final

import attrs

LAST: Final = 1
"""The flag of the last item of a stream."""

_HEADER: Final = struct.Struct(">BBHII")


@attrs.frozen
class ItemFrame:
    """An item of a stream in a binary message. `flags`: byte 1; `reserved`: bytes 2 to 3."""

    stream: int
    sequence: int
    item: bytes
    flags: int = 0
    reserved: int = 0

    def packed(self) -> bytes:
        """Return the binary message."""
        sequence = self.sequence % 2**32
        return _HEADER.pack(1, self.flags, self.reserved, self.stream, sequence) + self.item


def read_item(data: bytes) -> ItemFrame | None:
    """Return the item in a binary message; None if the message is not a frame of a stream."""
    if len(data) < _HEADER.size:
        return None
    version, flags, reserved, stream, sequence = _HEADER.unpack_from(data)
    if version != 1 or stream == 0:
        return None
    return ItemFrame(stream, sequence, data[_HEADER.size :], flags, reserved)
