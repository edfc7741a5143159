"""A watched run: its log is sent while it is written, with news that is not in the log.

Records go to `WatchedLog` before they go to the log of a run. It holds up records according to the pace, and
sends the lines of the log in batches, together with news: steps, checks, samples, and the traffic on the
links of a network. All news comes from data that the run keeps anyway, and is collected when a record is
made. The simulated world has no further task, timer or message, and its log is the same as without a watcher.

If the receiver reads slowly, sending blocks; that takes no virtual time.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

from lmos_actors.live.runs import MOST_NODES, CheckSeen, LinkNews, MessageOnLink, RunNews, StepSeen

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.links import Line
    from lmos_actors.simulation import TraceLog

    from .._guard import Guard
    from ._pace import PaceKeeper
    from ._run import Run
    from .network import RunNetwork

EACH: Final = 0.1
"""Seconds of real time after which new lines are passed on, while there are records."""

LOOK: Final = 16
"""Records between two looks at real time."""

MOST_ON_WAY: Final = 300
"""Maximum number of messages on links named in one piece of news; further ones are only counted."""

MOST_STEPS: Final = 200
MOST_SAMPLES: Final = 500
MOST_LINKS: Final = 2_000

_WRITE: Final = msgspec.json.Encoder()


class Onlooker:
    """The watcher of a run. `send` sends lines of its log and news, and may block.

    `pace` slows the run down; it is None if the run is in real time.
    """

    def __init__(self, send: Callable[[bytes, bytes], None], pace: PaceKeeper | None) -> None:
        self._send = send
        self._pace = pace
        self.writer = LogWriter(send)

    def before(self, log: TraceLog, run: Run, guard: Guard) -> WatchedLog:
        """Make a `WatchedLog` for the log of a run, and return it; from now on records go through it."""
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
        self._is_first = True
        self._at = 0.0
        """The instant that the run has reached, if it has a pace."""
        self._left = LOOK
        self._due = monotonic() + EACH

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Log one record; if the run has a pace, wait until the record is due."""
        if self._pace is not None:
            self.reach(trio.current_time())
        if self._is_first:
            self._is_first = False
            self._news.begin()
        self._log.record(kind, agent, fields)
        self._left -= 1
        if not self._left:
            self._left = LOOK
            self.pass_on(unless_young=True)

    def open(self) -> None:
        """Begin to watch; called within the world of the run."""
        if self._pace is None:
            trio.lowlevel.add_instrument(IdleFlush(self))

    def reach(self, instant: float) -> None:
        """Wait until the run may go on to an instant."""
        if self._pace is None or instant == self._at:
            return
        if not self._pace.is_due(instant):
            self.pass_on(waits=True)
            self._pace.hold_up(instant, self._guard, self._beat)
        self._at = instant

    def _beat(self, at: float) -> None:
        self._send(b"", _WRITE.encode(RunNews(at=round(at, 6), waits=True)))

    def pass_on(self, *, unless_young: bool = False, waits: bool = False) -> None:
        """Send the new lines and the news; with `unless_young`, only if the last time is long enough ago."""
        if unless_young and monotonic() < self._due:
            return
        self._log.flush()
        at = self._at if self._pace is not None or not trio.lowlevel.in_trio_run() else trio.current_time()
        self._send(b"", _WRITE.encode(self._news.take(round(at, 6), waits=waits)))
        self._due = monotonic() + EACH


class LogWriter:
    """The target of a watched run's log: it sends the lines on."""

    def __init__(self, send: Callable[[bytes, bytes], None]) -> None:
        self._send = send

    def write(self, text: str) -> None:
        """Send some whole lines on."""
        self._send(text.encode(), b"")


class IdleFlush(trio.abc.Instrument):
    """An instrument that sends new lines whenever a run in real time has nothing to do."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    def before_io_wait(self, timeout: float) -> None:
        """See `trio.abc.Instrument`."""
        self._log.pass_on(unless_young=timeout < EACH)


class _News:
    """The news of one run since the last call of `take`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._steps = run.step_log.changes()
        self._samples: dict[str, int] = {}
        self._checks: dict[str, tuple[str, float | None]] = {}
        self._links: LinkWatch | None = None

    def begin(self) -> None:
        """Begin to watch the links of the network, if there is one."""
        if self._run.network is not None:
            self._links = LinkWatch(self._run.network)

    def take(self, at: float, *, waits: bool) -> RunNews:
        """Return the news; `at` is the instant of the run."""
        run = self._run
        news = RunNews(at=at, waits=waits, steps_done=run.step_log.done, steps_total=run.step_log.total)
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
        if self._links is not None:
            news.links, news.on_way = self._links.take()
        return news


_STATUS: Final = {None: "running", True: "passed", False: "failed"}


class LinkWatch:
    """The traffic on the links of a network: counts, and the names of the last messages.

    In a network with many nodes, the nodes of one population count as one.
    """

    def __init__(self, network: RunNetwork) -> None:
        self._links = network.links
        self._folds = len(network.names.all()) > MOST_NODES
        self._known: dict[Line, _LinkSeen] = {}
        self._seen: dict[tuple[str, str], _LinkSeen] = {}
        self._changed: dict[_LinkSeen, None] = {}
        self._on_way: list[MessageOnLink] = []
        self._version = 0
        network.watch(self._sent)

    def _of(self, line: Line) -> _LinkSeen:
        found = self._known.get(line)
        if found is None:
            ends = (_folded(line.source), _folded(line.target)) if self._folds else (line.source, line.target)
            found = self._seen.get(ends)
            if found is None:
                found = self._seen[ends] = _LinkSeen(*ends)
            self._known[line] = found
            found.lines += 1
        return found

    def _sent(
        self, line: Line, what: str, now: float, arrivals: tuple[float, ...] | None, was_held: bool
    ) -> None:
        """Note that a message is sent over a line; see `OnSent`."""
        link = self._of(line)
        self._changed[link] = None
        if was_held:
            link.held -= 1
        else:
            link.sent += 1
        if arrivals is None:
            link.held += 1
        elif not arrivals:
            link.lost += 1
        else:
            link.delay, link.loss = arrivals[-1] - now, line.loss
            if len(self._on_way) < MOST_ON_WAY:
                due = round(arrivals[0], 6)
                self._on_way.append(MessageOnLink(link.source, link.target, what, round(now, 6), due))

    def take(self) -> tuple[list[LinkNews], list[MessageOnLink]]:
        """Return the news of the links that have changed, and the new messages."""
        if self._version != self._links.version:
            self._version = self._links.version
            self._look_at_cuts()
        on_way, self._on_way = self._on_way, []
        changed = list(self._changed)
        self._changed = dict.fromkeys(changed[MOST_LINKS:])
        return [link.news() for link in changed[:MOST_LINKS]], on_way

    def _look_at_cuts(self) -> None:
        """Count the cut lines of each link; called after a fault has begun or ended."""
        for link in self._seen.values():
            link.cut = 0
        for line in self._links:
            if line.version != self._links.version:
                self._links.update(line)
            link = self._of(line)
            link.cut += line.is_cut
            link.loss = line.loss
        self._changed |= dict.fromkeys(self._seen.values())


@attrs.define(eq=False)
class _LinkSeen:
    """A link in the view: one line or several. `sent` and `lost` count since the last news."""

    source: str
    target: str
    sent: int = 0
    lost: int = 0
    held: int = 0
    lines: int = 0
    cut: int = 0
    loss: float = 0.0
    delay: float | None = None

    def news(self) -> LinkNews:
        """Return the news of the link, and reset its counts."""
        found = LinkNews(
            self.source,
            self.target,
            self.sent,
            self.lost,
            self.held,
            self.lines,
            self.cut,
            round(self.loss, 6),
            None if self.delay is None else round(self.delay, 6),
        )
        self.sent = self.lost = 0
        return found


def _folded(node: str) -> str:
    return node.partition("/")[0]
