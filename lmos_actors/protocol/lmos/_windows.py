"""Credit: how many items, and bytes of items, a sender may still send. Pure counting, one object per stream.

An item may be sent while the credit in items and in bytes is both above zero; its bytes may take the latter
below zero. So no item is too large for a window, no sender has to know a size beforehand, and what a receiver
holds is at most its window and one item. The bytes of an item are those of the WebSocket message that carries
it (UTF-8 of the text, or binary frame with its header), so both ends count the same.
Extension: docs/reference/lmos-extensions.md, "Credit".
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ._frames import WRAP
from ._messages import Credit

MAX_CREDIT: Final = (1 << 53) - 1  # credit beyond it is not counted
DEFAULT_CREDIT: Final = Credit(items=16, bytes=262_144)


def wire_size(text: str | bytes) -> int:
    """Give the bytes of a WebSocket message: those of a binary one, or of a text in UTF-8."""
    if isinstance(text, bytes) or text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


class SendWindow:
    """The sender's side of one stream: what is left of the credit, and how many items were numbered.

    Without credit (None: the peer knows no credit) there is always room.
    """

    __slots__ = ("bytes", "items", "sequence")

    def __init__(self, credit: Credit | None) -> None:
        self.items: int | None = None
        self.bytes = 0
        self.sequence = 0
        if credit is not None:
            self.items = 0
            self.grant(credit.items, credit.bytes)

    @property
    def room(self) -> bool:
        """Whether one more item may be sent now, of any size."""
        return self.items is None or (self.items > 0 and self.bytes > 0)

    def number(self) -> int:
        """Give the next item its number, from 0, modulo 2**32."""
        number, self.sequence = self.sequence, (self.sequence + 1) % WRAP
        return number

    def spend(self, size: int) -> None:
        """Count an item of so many bytes as sent; the caller has seen that there is room."""
        if self.items is not None:
            self.items -= 1
            self.bytes -= size

    def grant(self, items: int, size: int) -> bool:
        """Add credit; whether that made room where there was none. Ignored where no credit is counted."""
        if self.items is None:
            return False
        before = self.room
        self.items = min(self.items + items, MAX_CREDIT)
        self.bytes = min(self.bytes + size, MAX_CREDIT)
        return self.room and not before


class ReceiveWindow:
    """The receiver's side of one stream: checks what arrives, and says when to give how much credit.

    `window` is the room that it keeps open; credit is given back by halves. Holds at most `window.items`
    numbers. With `granted` the peer has the first credit already (it stood in the invocation). Without a
    window (None: the peer knows no credit) only the numbers are checked.
    """

    __slots__ = ("_back", "_back_bytes", "_held", "_left", "_left_bytes", "sequence", "window")

    def __init__(self, window: Credit | None = DEFAULT_CREDIT, *, granted: bool = False) -> None:
        self.window = window
        self.sequence = 0
        self._held: deque[int] = deque()  # sizes of what has arrived and is not consumed
        self._left = self._left_bytes = 0  # credit that the sender has
        self._back = self._back_bytes = 0  # credit to be given
        if window is not None:
            self._back, self._back_bytes = window.items, window.bytes
        if granted:
            self.due()

    @property
    def held(self) -> int:
        """How many items have arrived and are not consumed."""
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """How many bytes they have."""
        return sum(self._held)

    def arrive(self, size: int, sequence: int | None = None) -> str | None:
        """Count an item that has come; what is wrong with it, None if nothing.

        `sequence` is its number, None for items that are not numbered.
        """
        if sequence is not None and sequence != self.sequence:
            return f"item {self.sequence} was due, {sequence} came"
        if self.window is not None and (self._left <= 0 or self._left_bytes <= 0):
            return "an item came without credit"
        if sequence is not None:
            self.sequence = (self.sequence + 1) % WRAP
        if self.window is not None:
            self._left -= 1
            self._left_bytes -= size
            self._held.append(size)
        return None

    def consume(self) -> Credit | None:
        """Take the oldest item as consumed; the credit to be given now, if any. Ignored when none is held."""
        if self.window is None or not self._held:
            return None
        self._back += 1
        self._back_bytes += self._held.popleft()
        half = 2 * self._back >= self.window.items or 2 * self._back_bytes >= self.window.bytes
        return self.due() if half else None

    def due(self) -> Credit | None:
        """Give all the credit that is to be given, such as the first; None if there is none."""
        if not self._back and not self._back_bytes:
            return None
        credit = Credit(items=self._back, bytes=self._back_bytes)
        self._left += credit.items
        self._left_bytes += credit.bytes
        self._back = self._back_bytes = 0
        return credit
