"""Outgoing frames of one connection, in order.

Messages are encoded at once, so that the number of waiting bytes is known. For some kinds (progress,
readings) only the newest message counts: it replaces an older one that is still waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

from lmos_actors.errors import LocalProtocolError

from ._frames import Binary

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ._messages import Message

Sendable: TypeAlias = bytes | Binary
"""A frame: `Binary` as it is, other bytes are the UTF-8 of a text frame."""


class Outbox:
    """A bounded queue of outgoing frames, first in, first out.

    `encode` returns the text of a message. `taken` is called with the key of each frame that `take` returns.
    `wake` is called when a frame is added to an empty queue. A key is anything hashable except an int.
    `put_latest` refuses a message of more than `max_frame` bytes.
    """

    __slots__ = (
        "_encode", "_max_frame", "_number", "_taken", "_waiting", "_wake", "bytes", "max_bytes",
        "max_waiting",
    )  # fmt: skip

    def __init__(
        self,
        encode: Callable[[Message], bytes],
        *,
        taken: Callable[[Hashable], object] | None = None,
        wake: Callable[[], object] | None = None,
        max_waiting: int = 4096,
        max_bytes: int = 16 << 20,
        max_frame: int | None = None,
    ) -> None:
        self.max_waiting = max_waiting
        self.max_bytes = max_bytes
        self._encode = encode
        self._max_frame = max_frame
        self._taken = taken
        self._wake = wake
        self._waiting: OrderedDict[Hashable, Sendable] = OrderedDict()
        self._number = 0  # the key of what has none
        self.bytes = 0
        """The bytes that wait."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether more frames or bytes are waiting than the limits allow, because the peer does not read."""
        return self.bytes > self.max_bytes or len(self._waiting) > self.max_waiting

    def put(self, message: Message, key: Hashable | None = None) -> int:
        """Add a message, and return its size in bytes. No waiting frame may have the same `key`."""
        return self.put_frame(self._encode(message), key)

    def put_frame(self, frame: Sendable, key: Hashable | None = None) -> int:
        """Add an encoded frame; return its size in bytes."""
        if key is None:
            key = self._number = self._number + 1
        self._waiting[key] = frame
        size = len(frame)
        self.bytes += size
        if self._wake is not None and len(self._waiting) == 1:
            self._wake()
        return size

    def put_latest(self, key: Hashable, message: Message) -> None:
        """Add a message, or replace the waiting message that has the same key.

        Raise LocalProtocolError if the message cannot be encoded or is too long; then the waiting message
        stays.
        """
        frame = within(self._encode(message), self._max_frame)
        before = self._waiting.get(key)
        if before is not None:
            self.bytes -= len(before)
            self._waiting[key] = frame
            self.bytes += len(frame)
        else:
            self.put_frame(frame, key)

    def drop(self, key: Hashable) -> bool:
        """Remove the waiting frame with this key; return whether there was one."""
        frame = self._waiting.pop(key, None)
        if frame is not None:
            self.bytes -= len(frame)
        return frame is not None

    def clear(self) -> None:
        """Remove all waiting frames without sending them."""
        self._waiting.clear()
        self.bytes = 0

    def take(self, room: int = 65_536) -> list[bytes]:
        """Remove and return frames, oldest first, until they have `room` bytes or more.

        At least one frame is returned if any is waiting.
        """
        frames: list[bytes] = []
        waiting, taken = self._waiting, self._taken
        while waiting and (room > 0 or not frames):
            key, frame = waiting.popitem(last=False)
            self.bytes -= len(frame)
            if taken is not None and type(key) is not int:
                taken(key)
            room -= len(frame)
            frames.append(frame)
        return frames


def within(frame: bytes, most: int | None) -> bytes:
    """Return the frame unchanged. Raise LocalProtocolError if it is longer than `most` bytes.

    The receiver would close the whole connection over a longer frame.
    """
    if most is not None and len(frame) > most:
        raise LocalProtocolError(f"this message has {len(frame)} bytes, {most} is the most")
    return frame
