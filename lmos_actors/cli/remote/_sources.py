"""The items of an input stream from a file or the standard input: JSON lines, or octets.

Reading never blocks the loop and never delays the end of the command. Except on Windows, pipes, sockets and
terminals are read when they are ready; any other input is read in a thread that is abandoned at the end. The
mode of the standard input is not changed, as other programs may use the same terminal.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import LineReader
from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import OCTETS

from .._inputs import kinds_of, kinds_of_value, listed, read_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from lmos_actors.protocol.td import Stream

    from .._answers import AnswerPrinter

PIECE: Final = 65_536
LONGEST: Final = 4 << 20
"""Maximum bytes of one line."""

_UNITS: Final = ("B", "kB", "MB", "GB")


class FileSource:
    """The source of an input stream: the lines or bytes of a file.

    Raises ConfigError if the file cannot be opened.
    """

    def __init__(self, word: str) -> None:
        self.name = "standard input" if word == "-" else word
        self._is_own = word != "-"
        self._descriptor = _opened(word) if self._is_own else _standard_input()
        kind = os.fstat(self._descriptor).st_mode
        # A task cannot wait for input of files, nor on Windows.
        self._can_wait = sys.platform != "win32" and (
            stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(self._descriptor)
        )
        self._reads = False  # in a thread
        self._lines = LineReader(LONGEST)
        self._number = 0
        self._items = 0
        self._bytes = 0
        self._shifts = [(0, 1)]  # from which item on its line has which distance from it

    def close(self) -> None:
        """Close the file, unless an abandoned thread still reads from it."""
        if self._is_own and not self._reads:
            os.close(self._descriptor)

    @property
    def is_terminal(self) -> bool:
        """Whether a person types the input."""
        return os.isatty(self._descriptor)

    async def items(self, stream: Stream) -> AsyncGenerator[Any]:
        """Yield the items in the form of the stream's description. Raises ConfigError for a bad line."""
        is_octets = stream.content_type == OCTETS
        while data := await self._read():
            if is_octets:
                self._items += 1
                self._bytes += len(data)
                yield data
                continue
            for line in self._lines.feed(data):
                for item in self._item(line, stream.schema):
                    yield item
            if self._lines.is_beyond:
                raise ConfigError(f"longer than {LONGEST >> 20} MiB", f"{self.name}:{self._number + 1}")
        for item in self._item(self._lines.rest(), stream.schema):
            yield item

    def place_of(self, item: int) -> str:
        """Return the file and the line of an item, as `FILE:LINE`; items are counted from 0."""
        shift = next(shift for first, shift in reversed(self._shifts) if first <= item)
        return f"{self.name}:{item + shift}"

    async def _read(self) -> bytes:
        try:
            if self._can_wait:
                await trio.lowlevel.wait_readable(self._descriptor)
                return os.read(self._descriptor, PIECE)
            self._reads = True
            data = await trio.to_thread.run_sync(os.read, self._descriptor, PIECE, abandon_on_cancel=True)
            self._reads = False
            return data
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", self.name) from None

    def _item(self, line: bytes, schema: Mapping[str, Any] | None) -> Iterator[Any]:
        """Yield the item of a line: JSON, or the text itself if the schema allows a text.

        An empty line has no item.
        """
        self._number += 1
        if not line or line.isspace():
            return
        place = f"{self.name}:{self._number}"
        try:
            text = line.decode("utf-8-sig" if self._number == 1 else "utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise ConfigError(f"is not UTF-8 at byte {error.start + 1}", place) from None
        shift = self._number - self._items
        if self._shifts[-1][1] != shift:
            self._shifts.append((self._items, shift))
        self._items += 1
        self._bytes += len(line) + 1
        yield self._value(text, place, kinds_of(schema))

    def _value(self, text: str, place: str, kinds: frozenset[str] | None) -> Any:
        kinds = kinds or frozenset()
        takes_text = "string" in kinds
        try:
            found = read_json(text)
        except ValueError as error:
            if takes_text:
                return text
            column = f":{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            hint = f"; it takes {listed(kinds)}" if kinds else ""
            raise ConfigError(f"not JSON: {why[:1].lower()}{why[1:]}{hint}", f"{place}{column}") from None
        return text if takes_text and kinds.isdisjoint(kinds_of_value(found)) else found

    async def show_progress(self, answers: AnswerPrinter, action: str) -> None:
        """Show on a terminal how much has been sent, once that takes more than a second."""
        if answers.is_moving_terminal:
            await trio.sleep(1.0)
            while True:
                await answers.progress(action, f"{self._items:,} items, {_shown(self._bytes)} sent")


def _opened(place: str) -> int:
    try:
        found = os.open(place, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {getattr(error, 'strerror', error)}", place) from None
    if stat.S_ISDIR(os.fstat(found).st_mode):
        os.close(found)
        raise ConfigError("cannot be read: it is a directory", place)
    return found


def _standard_input() -> int:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        raise ConfigError("is closed", "standard input") from None


def _shown(size: int) -> str:
    amount, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
