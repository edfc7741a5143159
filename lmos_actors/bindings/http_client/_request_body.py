"""The body of a request that is a stream: a source's items as JSON lines, sent as they come.

Items wait here until they are written to the connection: 16 items and 256 KiB at most. The source is not
touched before the server has sent 100 (Continue), which a node does once the run has begun; a server that
never sends it is given the body after `CONTINUE_SECONDS`. While a source is silent, empty lines show the
server that its client is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.actors import park_among, wake_all
from lmos_actors.errors import InvalidInput, LocalProtocolError
from lmos_actors.protocol import lmos
from lmos_actors.protocol.td import LINES

from ..exposure._values import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timers

CONTENT_TYPES: Final = (LINES, "application/jsonl")

ROOM_ITEMS: Final = 16
ROOM_BYTES: Final = 262_144

LONGEST: Final = 4 << 20
"""Limit in bytes of one item, as JSON."""

CONTINUE_SECONDS: Final = 5.0
SILENCE: Final = 30.0
"""Seconds without an item after which an empty line is sent."""


class RequestBody:
    """The items of a source on their way to the connection; see `ItemTarget`.

    `on_room` is called when there may be room again.
    """

    def __init__(self, timers: Timers, name: str, on_room: Callable[[], object]) -> None:
        self._timers = timers
        self._name = name
        self._on_room = on_room
        self._begun = False
        self._ended = False
        self._lines: list[bytes] = []
        self._size = 0
        self._waiting: list[trio.lowlevel.Task] = []

    # ---- the target of a source

    def has_room(self) -> bool:
        """Return whether an item may come now."""
        return self._begun and len(self._lines) < ROOM_ITEMS and self._size < ROOM_BYTES

    def put(self, item: Any) -> None:
        """Add an item to the body. Raises InvalidInput for one that cannot be written, or is too long."""
        try:
            line = lmos.written(plain(item))
        except LocalProtocolError as error:
            raise InvalidInput(str(error), f"$.{self._name}") from None
        if len(line) > LONGEST:
            raise InvalidInput(f"longer than {LONGEST} bytes as JSON", f"$.{self._name}")
        self._add(line + b"\n")

    def finish(self) -> None:
        """End the body."""
        self._ended = True
        wake_all(self._timers, self._waiting)

    def break_off(self, reason: str) -> None:
        """End the body with a line that gives the reason."""
        if not self._ended:
            self._add(b"!" + lmos.written(reason) + b"\n")
            self.finish()

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        wake_all(self._timers, self._waiting)

    # ---- the connection's side

    def begin(self) -> None:
        """Note that the server wants the body."""
        if not self._begun:
            self._begun = True
            wake_all(self._timers, self._waiting)
            self._on_room()

    async def wait_begun(self) -> None:
        """Wait until the server wants the body, or `CONTINUE_SECONDS` have passed."""
        with trio.move_on_after(CONTINUE_SECONDS):
            while not self._begun:
                await park_among(self._waiting)
        self.begin()

    async def next(self) -> bytes:
        """Wait for the next part of the body and return it; b"" at its end."""
        while not (self._lines or self._ended):
            with trio.move_on_after(SILENCE) as silence:
                await park_among(self._waiting)
            if silence.cancelled_caught and not self._lines:
                return b"\n"
        found = b"".join(self._lines)
        self._lines.clear()
        self._size = 0
        if not self._ended:
            self._on_room()
        return found
