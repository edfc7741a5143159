"""All runs of one command: the waiting runs, the run in progress, and the outcomes of earlier runs.

The threads of the command write to the board, and the thread of the server reads it, both under `lock`. Each
holds the lock only as long as it takes to handle a few hundred records.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

import attrs
import msgspec

from lmos_actors._core import Bounded

from .._messages import Done, Refused, Wrong, unknown
from ._run_log import records_in
from ._run_model import CheckSeen, RunModel, RunNews, StepSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._messages import Do

Operation = Literal["pause", "go", "slower", "faster", "step"]
OPERATIONS: Final[tuple[Operation, ...]] = ("faster", "go", "pause", "slower", "step")

SPEEDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

REMEMBERED: Final = 1_000
"""Operations whose ids are remembered."""

_NEWS: Final = msgspec.json.Decoder(RunNews)


@attrs.frozen
class Pace:
    """The speed of a run: seconds of its time per second of real time, None for no limit."""

    speed: float | None = 1.0
    is_paused: bool = False

    @property
    def text(self) -> str:
        """The speed in words."""
        return "as fast as it goes" if self.speed is None else f"{self.speed:g} seconds of the run in one"


@attrs.frozen(kw_only=True)
class RunHead:
    """The facts of a run that are known before it begins.

    `nodes` returns the nodes of the run's network; it is None without a network. `node_of` returns the node
    of the agent at a path, and `class_of` the name of the agent's class, "" if that is not known.
    """

    id: str
    label: str
    file: str
    name: str
    trial: int = 1
    is_real: bool = False
    until: float | None = None
    nodes: Callable[[], Sequence[str]] | None = None
    node_of: Callable[[str], str] = lambda path: path
    class_of: Callable[[str], str] = lambda path: ""


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a run: `status` is "passed", "failed", "could not run" or "time limit"."""

    status: str
    seconds: float
    time: float
    failures: tuple[str, ...] = ()
    steps: tuple[StepSeen, ...] = ()
    steps_done: int = 0
    steps_total: int = 0
    checks: tuple[CheckSeen, ...] = ()


@attrs.define(eq=False)
class WatchedRun:
    """One run of the command."""

    head: RunHead
    status: str = "waiting"
    done: float = 0.0
    total: float = 0.0
    began: float = 0.0
    outcome: Outcome | None = None
    model: RunModel | None = None

    @property
    def seconds(self) -> float:
        """Seconds of real time that the run has taken so far."""
        if self.outcome is not None:
            return self.outcome.seconds
        return monotonic() - self.began if self.began else 0.0


class RunsBoard:
    """All runs of one command, in their order. `pace` is for the run in progress and later ones."""

    def __init__(self, pace: Pace) -> None:
        self.lock = threading.Lock()
        self.runs: OrderedDict[str, WatchedRun] = OrderedDict()
        self.current: WatchedRun | None = None
        """The run that is in progress, or was last."""
        self.pace = pace
        self.on_pace: Callable[[Pace, bool], None] = lambda pace, is_step: None
        """Called with a new pace, and whether the run has to go on to its next instant; must not block."""
        self.looked_at = threading.Event()
        """Set once somebody has looked."""
        self._asked: Bounded[str, tuple[Do, Done | Wrong]] = Bounded(REMEMBERED)

    # ---- written by the command

    def plan(self, heads: Sequence[RunHead]) -> None:
        """Append runs that have not begun."""
        with self.lock:
            self.runs.update((head.id, WatchedRun(head)) for head in heads)

    def begin(self, id: str) -> None:
        """Note that a run begins."""
        with self.lock:
            run = self.current = self.runs[id]
            run.status, run.began = "running", monotonic()
            nodes = run.head.nodes() if run.head.nodes is not None else ()
            run.model = RunModel(run.head.class_of, nodes, run.head.node_of)
            kept = [each for each in self.runs.values() if each.model is not None]
            for each in kept[:-5]:  # more than the outcome is kept of the last runs only
                each.model = None

    def take_lines(self, lines: str) -> None:
        """Add lines of the log to the run in progress."""
        records = records_in(lines)
        with self.lock:
            if self.current is not None and self.current.model is not None:
                self.current.model.take_records(records)

    def take_news(self, news: bytes) -> None:
        """Add the news that a run's process has sent in addition to the log: a `RunNews` as JSON."""
        read = _NEWS.decode(news)
        with self.lock:
            if self.current is not None and self.current.model is not None:
                self.current.model.take_news(read)

    def progress(self, id: str, done: float, total: float) -> None:
        """Record the progress of a run."""
        with self.lock:
            self.runs[id].done, self.runs[id].total = done, total

    def end(self, id: str, outcome: Outcome) -> None:
        """Record the outcome of a run."""
        with self.lock:
            run = self.runs[id]
            run.status, run.outcome = outcome.status, outcome

    # ---- read by the server, under the lock

    def run(self, id: str | None) -> WatchedRun:
        """Return the run with an id; for None, the run in progress or else the last one. Raise Refused."""
        found = self.current if not id else self.runs.get(id)
        if found is None:
            raise Refused("GONE", f"there is no run {id!r}" if id else "no run has begun")
        return found

    def do(self, do: Do) -> Done | Wrong:
        """Carry out an operation. A repeated id gets the first answer again."""
        with self.lock:
            known = self._asked.get(do.id)
            if known is not None and (known[0].what, known[0].path) != (do.what, do.path):
                text = f"this id is that of another operation: {known[0].what} {known[0].path}"
                return Wrong("ID_TAKEN", text, do.id)
            if known is not None:
                return known[1]
            answer: Done | Wrong
            try:
                answer = Done(do.id, do.what, do.path, self._carry_out(do))
            except Refused as refused:
                answer = Wrong(refused.code, refused.message, do.id)
            self._asked[do.id] = do, answer
            return answer

    def _carry_out(self, do: Do) -> str:
        if do.what not in OPERATIONS:
            raise unknown("operation", do.what, OPERATIONS)
        run = self.run(do.path or None)
        if run.outcome is not None:
            raise Refused("GONE", "the run is over")
        if run.head.is_real:
            raise Refused("REAL_TIME", "the world of this run goes by real time, which nobody can hold up")
        pace, is_step = self.pace, do.what == "step"
        if do.what in ("pause", "step"):
            pace = attrs.evolve(pace, is_paused=True)
        elif do.what == "go":
            pace = attrs.evolve(pace, is_paused=False)
        else:
            pace = attrs.evolve(pace, speed=_changed(pace.speed, faster=do.what == "faster"))
        self.pace = pace
        self.on_pace(pace, is_step)
        if is_step:
            return "goes on to the next instant"
        return "paused" if do.what == "pause" else pace.text


def _changed(speed: float | None, *, faster: bool) -> float | None:
    """Return the next higher or lower speed, None for no limit."""
    if faster:
        return next((each for each in SPEEDS if speed is not None and each > speed), None)
    slower = [each for each in SPEEDS if speed is None or each < speed]
    return slower[-1] if slower else SPEEDS[0]
