"""A parser of the lines that `fault-proxy` reads, such as "cut one-way in for 5s"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors._core import number_of
from lmos_actors.errors import ConfigError, hint_at
from lmos_actors.files import Duration
from lmos_actors.links import LinkFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.links import Draw

    from ._fault_proxy import Way

_WORD: Final = re.compile(r"\S+")


def read_at(read: Callable[[Any], Any], value: Any, place: str) -> Any:
    """Return `read(value)`. Raises ConfigError with `place` in place of a ValueError."""
    try:
        return read(value)
    except ValueError as error:
        raise ConfigError(str(error), place) from None


def delay_of(word: str) -> Draw:
    """Parse a delay, such as 20ms or uniform:10ms:30ms. Blocks on the disk. Raises ValueError."""
    from lmos_actors.system.values import delay_in, sampler  # which takes a while, and is not needed by all

    return sampler(delay_in(word))


def share_of(given: str | float) -> float:
    """Parse a share, which is at least 0 and below 1. Raises ValueError."""
    try:
        share = number_of(str(given))
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"{given} is no share, from 0 to below 1")
    return share


@attrs.frozen
class FaultOrder:
    """The order in a line; `kind` is its first word. Without a `duration`, the fault lasts until healed."""

    kind: str
    words: str
    way: Way | None = None
    fault: LinkFault | None = None
    duration: float | None = None


KINDS: Final = ("cut", "hang", "reset", "latency", "loss", "heal")
LASTING: Final = ("cut", "hang", "latency", "loss")


def order_of(line: str, place: str) -> FaultOrder:
    """Parse the order in a line. Blocks on the disk. Raises ConfigError with the place of a wrong word."""
    return _LineReader(line, place).order()


class _LineReader:
    """A reader of the words of one line."""

    def __init__(self, line: str, place: str) -> None:
        self._words = [(found[0], found.start() + 1) for found in _WORD.finditer(line)]
        self._end = len(line.rstrip()) + 1
        self._place = place
        self._next = 0

    def order(self) -> FaultOrder:
        kind = self._one_of("fault", KINDS)
        way: Way | None = None
        fault: LinkFault | None = None
        if kind == "cut" and self._is_next("one-way"):
            way = "in" if self._one_of("way", ("in", "out")) == "in" else "out"
        elif kind == "latency":
            fault = LinkFault(selects=_everywhere, latency=self._read(delay_of, "a delay, such as 200ms"))
        elif kind == "loss":
            fault = LinkFault(selects=_everywhere, loss=self._read(share_of, "a share, such as 0.1"))
        duration = None
        if kind in LASTING and self._is_next("for"):
            duration = float(self._read(Duration.parse, Duration.described))
        if self._next < len(self._words):
            word = self._words[self._next][0]
            self._next += 1
            if word == "for" and kind not in LASTING:
                self._complain(f'"{kind}" happens at once, for no time')
            self._complain(f'unexpected "{word}"' + hint_at(word, ("one-way", "for"), '"'))
        words = " ".join(word for word, _ in self._words)
        return FaultOrder(kind, words, way, fault, duration)

    def _word(self, what: str) -> str:
        if self._next == len(self._words):
            raise ConfigError(f"{what} is missing", f"{self._place}:{self._end}")
        self._next += 1
        return self._words[self._next - 1][0]

    def _one_of(self, what: str, known: tuple[str, ...]) -> str:
        word = self._word(f"a {what}, {' or '.join(known)},")
        if word not in known:
            hint = hint_at(word, known, '"') or f": one of {', '.join(known)}"
            self._complain(f'no {what} "{word}"{hint}')
        return word

    def _is_next(self, word: str) -> bool:
        found = self._next < len(self._words) and self._words[self._next][0] == word
        self._next += found
        return found

    def _read(self, read: Callable[[str], Any], what: str) -> Any:
        word = self._word(what)
        return read_at(read, word, f"{self._place}:{self._words[self._next - 1][1]}")

    def _complain(self, text: str) -> None:
        raise ConfigError(text, f"{self._place}:{self._words[self._next - 1][1]}")


def _everywhere(source: str, target: str) -> bool:
    """Select all lines."""
    return True
