"""Links between nodes: whether a message arrives, and when. Uses no clock and starts no tasks.

A simulated network and the proxy for faults of real connections deliver by these rules.

A `Line` is one direction between two nodes. Its rules define how long a message takes (latency and jitter),
how many bytes a second it carries, and which share of messages is lost, doubled or overtaken. There are two
kinds of delivery:

- *stream*: as over TCP. Everything arrives, once and in order. A loss causes the delay of a retransmission,
  which comes after `FIRST_RETRY`, and each further one after twice as long. Bytes sent while the line is cut
  arrive with the first retransmission after the cut.
- *datagram*: as over UDP. A message is gone if it is lost, is sent while the line is cut, or finds the queue
  of a slow line full. A doubled message arrives twice, each copy with its own delay. An overtaken message
  arrives later than it otherwise would.

Guarantees:

- **Chance by name.** Each line draws from its own random stream, derived from the names of its ends: an
  additional line or fault changes nothing elsewhere.
- **Arrival times are computed when a message is sent.** A cut or a fault that begins later does not affect
  messages under way.
- **Several faults on one line add up.** The line is cut while any of them cuts it; latencies are added; a
  message gets through only if each of the faults lets it through.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lmos_actors._core import RandomStream

FIRST_RETRY: Final = 0.2
"""Seconds until what was lost is sent again, as TCP begins on Linux; then after twice as long each time."""

LAST_RETRY: Final = 120.0
"""Limit of these seconds."""

SEGMENT: Final = 40
"""Bytes of a message of TCP without data."""

LONGEST: Final = 1_460
"""Bytes of data in one segment, as over Ethernet."""


class Draw(Protocol):
    """A distribution of seconds, never below zero."""

    def __call__(self, random: RandomStream, /) -> float: ...


@attrs.frozen(kw_only=True)
class LinkRules:
    """The behaviour of a line. `latency` and `jitter` are added; shares range from 0 to 1.

    `bandwidth` is in bytes per second, None for no limit. `queue` is the number of bytes that may wait to be
    sent.
    """

    latency: Draw | None = None
    jitter: Draw | None = None
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    bandwidth: float | None = None
    queue: int = 1 << 20

    @property
    def is_perfect(self) -> bool:
        """Whether the line delays, loses and changes no message."""
        return self == PERFECT


PERFECT: Final = LinkRules()


@attrs.frozen(kw_only=True)
class LinkFault:
    """A change of the lines for which `selects` returns True, given the names of both ends.

    With `cuts`, nothing gets through. `latency` is added to the line's own; `loss` is the share of the
    remaining messages that is lost as well.
    """

    selects: Callable[[str, str], bool]
    cuts: bool = False
    latency: Draw | None = None
    loss: float = 0.0


@attrs.define(eq=False, weakref_slot=False)
class Line:
    """One direction between two nodes, and its present state."""

    source: str
    target: str
    rules: LinkRules
    random: RandomStream
    cut_since: float | None = None
    """The instant since which nothing gets through, None where something does."""
    free_at: float = 0.0
    """The instant at which the last byte of what was sent has left, on a line with a bandwidth."""
    version: int = -1
    """Of the faults that `cut_since`, `faults` and `loss` are of."""
    faults: tuple[LinkFault, ...] = ()
    loss: float = 0.0
    retries: int = 0
    """The number of losses of the last message that was sent in order, before it got through."""
    is_overtaken: bool = False
    """Whether the last datagram is to be overtaken, and arrives later than it would have."""

    @property
    def is_cut(self) -> bool:
        """Whether the line is cut, so that nothing gets through."""
        return self.cut_since is not None

    def waiting_bytes(self, now: float) -> float:
        """Return the number of bytes that are queued because of the limited bandwidth."""
        return 0.0 if self.rules.bandwidth is None else max(0.0, self.free_at - now) * self.rules.bandwidth


class Links:
    """All lines of a network, by the names of their ends.

    `rules` returns the rules between two nodes, from the first to the second; `stream` returns the random
    stream of a name.
    """

    def __init__(self, rules: Callable[[str, str], LinkRules], stream: Callable[[str], RandomStream]) -> None:
        self._rules = rules
        self._stream = stream
        self._lines: dict[tuple[str, str], Line] = {}
        self._faults: dict[int, tuple[LinkFault, float]] = {}  # and when each began
        self._numbers = count(1)
        self.version = 0
        """The number of changes of the faults, which each line takes note of when it is looked at."""

    def __iter__(self) -> Iterator[Line]:
        """Return the lines that have been used."""
        return iter(self._lines.values())

    @property
    def has_faults(self) -> bool:
        """Whether any fault is in force."""
        return bool(self._faults)

    def line(self, source: str, target: str) -> Line:
        """Return the line from one node to another, in its present state."""
        found = self._lines.get((source, target))
        if found is None:
            rules = self._rules(source, target)
            found = Line(source, target, rules, self._stream(f"link {source} > {target}"))
            self._lines[source, target] = found
        if found.version != self.version:
            self.update(found)
        return found

    def update(self, line: Line) -> None:
        """Bring a line up to date with the present faults."""
        line.version, line.faults, line.cut_since = self.version, (), None
        kept = 1.0 - line.rules.loss
        for each, began in self._faults.values():
            if each.selects(line.source, line.target):
                line.faults += (each,)
                kept *= 1.0 - each.loss
                if each.cuts:
                    line.cut_since = began if line.cut_since is None else min(began, line.cut_since)
        line.loss = 1.0 - kept

    # ---- faults

    def begin(self, fault: LinkFault, now: float) -> int:
        """Begin a fault, and return its number."""
        number = next(self._numbers)
        self._faults[number] = fault, now
        self.version += 1
        return number

    def heal(self, number: int) -> None:
        """End a fault. Ignore one that has already ended."""
        if self._faults.pop(number, None) is not None:
            self.version += 1

    # ---- messages

    def send_in_order(self, line: Line, size: int, now: float, *, after: float = 0.0) -> float:
        """Return the arrival time of a message that is sent now. The line must be up.

        `after` is the arrival time of the previous message on the same connection.
        """
        arrives = self._on_the_way(line)
        losses = line.retries = self._losses(line) if line.loss else 0
        arrives += now if line.rules.bandwidth is None else self._departure(line, size, now)
        if losses:
            arrives += _retries(losses)
        return arrives if arrives > after else after

    def send_again(self, line: Line, size: int, sent_at: float, now: float, *, after: float = 0.0) -> float:
        """Return the arrival time of a message that was sent while its line, now up again, was cut.

        The message is sent again when its sender's timer fires next. The intervals of the timer grow with the
        length of the cut.
        """
        losses = 0
        while _retries(losses) < now - sent_at:
            losses += 1
        wait = _retries(losses) - (now - sent_at)
        return self.send_in_order(line, size, now + max(wait, 0.0), after=after)

    def send_alone(self, line: Line, size: int, now: float) -> tuple[float, ...]:
        """Return the arrival times of a datagram sent now: two if it is doubled, none if it is lost."""
        rules, random = line.rules, line.random
        seconds = self._on_the_way(line)
        is_lost = random.random() < line.loss if line.loss else False
        is_doubled = random.random() < rules.duplicate if rules.duplicate else False
        is_overtaken = random.random() < rules.reorder if rules.reorder else False
        again = self._on_the_way(line) if is_doubled or is_overtaken else 0.0
        waiting = 0.0 if rules.bandwidth is None else line.waiting_bytes(now)
        if line.cut_since is not None or is_lost or waiting + size > rules.queue:
            return ()
        left = now if rules.bandwidth is None else self._departure(line, size, now)
        line.is_overtaken = is_overtaken
        # A message that is to be overtaken loses the latency of its line once more, at least 10 ms.
        first = left + seconds + (max(again, 0.01) if is_overtaken else 0.0)
        return (first, left + again) if is_doubled else (first,)

    @staticmethod
    def _on_the_way(line: Line) -> float:
        rules, random = line.rules, line.random
        seconds = 0.0 if rules.latency is None else rules.latency(random)
        if rules.jitter is not None:
            seconds += rules.jitter(random)
        for each in line.faults:
            if each.latency is not None:
                seconds += each.latency(random)
        return seconds

    @staticmethod
    def _losses(line: Line) -> int:
        """Draw the number of times a message is lost before it gets through."""
        losses = 0
        while losses < 64 and line.random.random() < line.loss:
            losses += 1
        return losses

    @staticmethod
    def _departure(line: Line, size: int, now: float) -> float:
        bandwidth = line.rules.bandwidth
        if bandwidth is None:
            return now
        line.free_at = max(line.free_at, now) + size / bandwidth
        return line.free_at


def _retries(losses: int) -> float:
    """Return the seconds from the sending of a message to its retransmission with the number `losses`."""
    seconds, wait = 0.0, FIRST_RETRY
    for _ in range(losses):
        seconds += wait
        wait = min(2 * wait, LAST_RETRY)
    return seconds


def corrupted(piece: bytes, place: int) -> bytes:
    """Return `piece` with the highest bit of one byte flipped, so that text becomes invalid."""
    changed = bytearray(piece)
    changed[place] ^= 0x80
    return bytes(changed)


def between_sides(sides: Iterable[Iterable[str]], *, one_way: bool = False) -> Callable[[str, str], bool]:
    """Return a function that decides whether a partition cuts a line: if its ends are on different sides.

    Nodes that are on no side stay reachable for all. With `one_way`, only lines from the first side are cut.
    """
    side_of: dict[str, int] = {name: number for number, names in enumerate(sides) for name in names}

    def cuts(source: str, target: str) -> bool:
        here, there = side_of.get(source), side_of.get(target)
        if here is None or there is None or here == there:
            return False
        return here == 0 if one_way else True

    return cuts
