"""A run that somebody watches: its log goes out while it is written, with what the log does not have.

`WatchedLog` stands in front of the log of a run. It holds records up by the pace, passes the lines of the log
on in batches, and with them news: steps, checks, samples, and what the links of a network carry. All of it is
taken from what the run keeps anyway, in the step in which a record is made: the world has no task, timer or
message more, and its log is that of a run that nobody watches.

Where the other end reads slowly, passing on blocks; that takes no virtual time.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from lmos_actors.live.runs import CheckSeen, LinkNews, MessageOnLink, RunNews, StepSeen

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.simulation import Line, TraceLog

    from .._guard import Guard
    from ._pace import PaceKeeper
    from ._run import Run

EACH: Final = 0.1
"""Seconds of real time after which what has been recorded is passed on, while there are records."""

LOOK: Final = 16
"""Records between two looks at real time."""

MOST_ON_WAY: Final = 300
"""Messages on links that are named in one piece of news; the others are counted."""

MOST_STEPS: Final = 200
MOST_SAMPLES: Final = 500
MOST_LINKS: Final = 2_000

_WRITE: Final = msgspec.json.Encoder()


class Onlooker:
    """Who watches a run: `send` passes on lines of its log, and news, and may block.

    `pace` holds the run up, None where its time is real.
    """

    def __init__(self, send: Callable[[bytes, bytes], None], pace: PaceKeeper | None) -> None:
        self._send = send
        self._pace = pace
        self.writer = LogWriter(send)

    def before(self, log: TraceLog, run: Run, guard: Guard) -> WatchedLog:
        """Return what stands before the log of a run; its records go there from now on."""
        watched = WatchedLog(log, run, guard, self._send, self._pace)
        run.watch.divert(watched.record, watched.reach)
        return watched


class WatchedLog:
    """The log of a run that is watched; see `Onlooker`."""

    def __init__(
        self,
        log: TraceLog,
        run: Run,
        guard: Guard,
        send: Callable[[bytes, bytes], None],
        pace: PaceKeeper | None,
    ) -> None:
        self._log = log
        self._news = _News(run)
        self._guard = guard
        self._send = send
        self._pace = pace
        self._at = -1.0
        self._left = LOOK
        self._due = monotonic() + EACH

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Take one record: once it is due, where the run is held up."""
        if self._pace is not None:
            self.reach(trio.current_time())
        self._log.record(kind, agent, fields)
        self._left -= 1
        if not self._left:
            self._left = LOOK
            self.pass_on(unless_young=True)

    def open(self) -> None:
        """Begin, in the world of the run."""
        if self._pace is None:
            trio.lowlevel.add_instrument(IdleFlush(self))

    def reach(self, instant: float) -> None:
        """Wait until the run may go on to an instant."""
        if self._pace is None or instant == self._at:
            return
        self._at = instant
        if not self._pace.is_due(instant):
            self.pass_on(waits=True)
            self._pace.hold_up(instant, self._guard, self._beat)

    def _beat(self, at: float) -> None:
        self._send(b"", _WRITE.encode(RunNews(at=round(at, 6), waits=True)))

    def pass_on(self, *, unless_young: bool = False, waits: bool = False) -> None:
        """Pass on what was recorded, and the news; `unless_young`: unless that was done just now."""
        if unless_young and monotonic() < self._due:
            return
        self._log.flush()
        self._send(b"", _WRITE.encode(self._news.take(waits=waits)))
        self._due = monotonic() + EACH


class LogWriter:
    """The target of the log of a watched run: passes lines on as they are written."""

    def __init__(self, send: Callable[[bytes, bytes], None]) -> None:
        self._send = send

    def write(self, text: str) -> None:
        """Pass some whole lines on."""
        self._send(text.encode(), b"")


class IdleFlush(trio.abc.Instrument):
    """Passes on what was recorded whenever a run in real time has nothing to do."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    def before_io_wait(self, timeout: float) -> None:
        """See `trio.abc.Instrument`."""
        self._log.pass_on(unless_young=timeout < EACH)


class _News:
    """What is new of one run, since it was last taken."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._steps = run.step_log.changes()
        self._samples: dict[str, int] = {}
        self._checks: dict[str, tuple[str, float | None]] = {}
        self._links: LinkWatch | None = None

    def take(self, *, waits: bool) -> RunNews:
        run = self._run
        news = RunNews(at=_now(), waits=waits, steps_done=run.step_log.done, steps_total=run.step_log.total)
        news.steps = [
            StepSeen(number, line.what, line.place, _STATUS[line.ok], line.begin, line.end)
            for number, line in self._steps.take(MOST_STEPS)
        ]
        judges = run.judges
        if judges is not None:
            for name, aggregate, times, values in judges.samples():
                first = self._samples.get(name, 0)
                new = list(zip(times[first : first + MOST_SAMPLES], values[first:], strict=False))
                if new:
                    self._samples[name] = first + len(new)
                    news.series[name] = [(round(at, 6), value) for at, value in new]
                    news.aggregates[name] = aggregate
            for name, ok, met_at in judges.so_far():
                status = "open" if ok is None else "passed" if ok else "failed"
                if self._checks.get(name) != (status, met_at):
                    self._checks[name] = status, met_at
                    news.checks.append(CheckSeen(name, status, met_at))
        if self._links is None and run.network is not None:
            self._links = LinkWatch(run)
        if self._links is not None:
            news.links, news.on_way = self._links.take()
        return news


_STATUS: Final = {None: "running", True: "passed", False: "failed"}


def _now() -> float:
    return round(trio.current_time(), 6) if trio.lowlevel.in_trio_run() else 0.0


class LinkWatch:
    """What the links of a network carry, counted and, of the last messages, by name."""

    def __init__(self, run: Run) -> None:
        network = run.network
        assert network is not None
        self._network = network
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._held: Counter[tuple[str, str]] = Counter()
        self._delays: dict[tuple[str, str], float] = {}
        self._on_way: list[MessageOnLink] = []
        self._stood: dict[tuple[str, str], tuple[bool, float]] = {}
        self._version = -1
        network.watch(self._sent)

    def _sent(
        self, line: Line, what: str, now: float, arrivals: tuple[float, ...] | None, was_held: bool
    ) -> None:
        """Note that a message is sent over a line; see `OnSent`."""
        key = line.source, line.target
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0, 0]
        if was_held:
            self._held[key] -= 1
        else:
            counts[0] += 1
        if not arrivals:
            if arrivals is None:
                self._held[key] += 1
            else:
                counts[1] += 1
            return
        self._delays[key] = arrivals[-1] - now
        if len(self._on_way) < MOST_ON_WAY:
            due = round(arrivals[0], 6)
            self._on_way.append(MessageOnLink(line.source, line.target, what, round(now, 6), due))

    def take(self) -> tuple[list[LinkNews], list[MessageOnLink]]:
        """Return what is new."""
        on_way, self._on_way = self._on_way, []
        counts, self._counts = self._counts, {}
        delays, self._delays = self._delays, {}
        links = self._network.links
        stand: dict[tuple[str, str], tuple[bool, float]] = {}
        is_same = self._version == links.version
        self._version = links.version
        for line in links:
            key = line.source, line.target
            if is_same and key not in counts:
                continue
            if line.version != links.version:
                links.update(line)
            stand[key] = line.is_cut, line.loss
            if len(stand) >= MOST_LINKS:
                break
        changed = {key: each for key, each in stand.items() if key in counts or self._stood.get(key) != each}
        self._stood |= changed
        news: list[LinkNews] = []
        for key, (is_cut, loss) in changed.items():
            sent, lost = counts.get(key, (0, 0))
            news.append(LinkNews(*key, sent, lost, self._held[key], is_cut, loss, delays.get(key)))
        return news, on_way
