"""The last lines of all processes of a launcher, in memory, for its page.

A few lines of each process are always kept, even if other processes print much more. So are the last lines of
all processes together. Lines that `serve` prints for its launcher are left out, and colours are removed.
"""

from __future__ import annotations

import re
import time
from collections import deque
from heapq import nlargest
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors._core import Bounded, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OF_EACH: Final = 20
"""Lines kept for each process."""

OF_ALL: Final = 1_000
"""Lines kept for all processes together."""

MOST_PROCESSES: Final = 2_000
"""Maximum processes of which lines are kept; beyond it, those that were silent for longest are dropped."""

SHORT: Final = 500
"""Maximum characters of a line."""

EVENT: Final = '{"event"'
"""The beginning of a line that is for the launcher."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")


@attrs.frozen
class RecentLine:
    """One line of a process, with its number among all lines of this launcher and its Unix time."""

    number: int
    time: float
    process: str
    text: str


class RecentLines:
    """The last lines of all processes. Memory is bounded, and no method blocks."""

    def __init__(self) -> None:
        self._number = 0
        self._of_each: Bounded[str, deque[RecentLine]] = Bounded(MOST_PROCESSES)
        self._of_all: deque[RecentLine] = deque(maxlen=OF_ALL)

    def add(self, process: str, lines: list[str]) -> None:
        """Add lines of a process, in order."""
        now = time.time()
        begin, self._number = self._number, self._number + len(lines)
        skipped = max(len(lines) - OF_ALL, 0)  # of a flood only the last ones are looked at
        for number, line in enumerate(islice(lines, skipped, None), start=begin + skipped + 1):
            if line.startswith(EVENT):
                continue
            kept = RecentLine(number, now, process, plain(line, SHORT))
            self._of_all.append(kept)
            self._of_each.use(process, lambda: deque(maxlen=OF_EACH)).append(kept)

    def last(self, count: int, of: str, sees: Callable[[str], bool]) -> list[RecentLine]:
        """Return the last lines of one process, of a group's processes, or of all, the oldest first.

        Lines of processes for which `sees` returns False are left out.
        """

        def is_wanted(line: RecentLine) -> bool:
            process = line.process
            return (not of or process == of or process.startswith(f"{of}/")) and sees(process)

        newest = list(islice(filter(is_wanted, reversed(self._of_all)), count))
        if len(newest) < count:  # what others have pushed out
            every = {line.number: line for line in chain(self._each(of), newest) if is_wanted(line)}
            newest = nlargest(count, every.values(), key=_number)
        return newest[::-1]

    def _each(self, of: str) -> Iterator[RecentLine]:
        if of in self._of_each:
            yield from self._of_each[of]
            return
        for process, lines in self._of_each.items():
            if not of or process.startswith(f"{of}/"):
                yield from lines


def plain(line: str, most: int) -> str:
    """Return a line of output without colours or terminal codes, cut to `most` characters."""
    return printable(_COLOUR.sub("", line[: 2 * most]).replace("\t", "    "))[:most]


def _number(line: RecentLine) -> int:
    return line.number
