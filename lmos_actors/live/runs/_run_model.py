"""The model of one run, built from its log and from the additional news that its process sends.

The model is bounded: it keeps the last records, agents up to a limit, and the samples of each series thinned
to what can be seen. No log contains steps, checks and samples; the process of the run sends them as
`RunNews`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from lmos_actors._core import Bounded

from .._flow import Edges
from ._run_log import LogRecord, records_in
from ._run_tree import RunTree
from ._series import SeriesKept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .._merge_patch import State
    from ._run_tree import Place

MOST_RECORDS: Final = 5_000
MOST_STEPS: Final = 100
MOST_FAULTS: Final = 100
MOST_CRASHES: Final = 100
MOST_LETTERS: Final = 200
MOST_LINKS: Final = 2_000
MOST_TRACES: Final = 20_000
MOST_ON_WAY: Final = 600
MOST_SERIES: Final = 100
ROOT: Final = "root"
"""Stands for the one node of a run in the records of its restart."""


class MessageOnLink(Struct, array_like=True, gc=False):
    """A message on a link between two nodes; `due` is its arrival time, None while that is unknown."""

    source: str
    target: str
    what: str
    sent: float
    due: float | None


class LinkNews(Struct, array_like=True, gc=False):
    """The state of a link. `sent` and `lost` count all messages; in news, only those since the last news."""

    source: str
    target: str
    sent: int = 0
    lost: int = 0
    held: int = 0
    """Messages that wait for the end of a cut."""
    lines: int = 0
    """How many links are shown as this one."""
    cut: int = 0
    """How many of them are cut."""
    loss: float = 0.0
    delay: float | None = None
    """Seconds that the last message takes."""


class StepSeen(Struct, array_like=True):
    """A step, by its number; `status` is "running", "passed" or "failed"."""

    number: int
    text: str
    place: str
    status: str
    begin: float
    end: float | None = None


class CheckSeen(Struct, array_like=True):
    """A check; `status` is "open", "passed" or "failed"."""

    name: str
    status: str
    at: float | None = None
    expected: str = ""
    saw: str = ""


class RunNews(Struct, omit_defaults=True):
    """The news that the process of a run sends in addition to its log: only changes since the last news."""

    at: float = 0.0
    """The instant of the run."""
    waits: bool = False
    """Whether the pace holds the run back."""
    steps: list[StepSeen] = []
    steps_done: int = 0
    steps_total: int = 0
    series: dict[str, list[tuple[float, float | None]]] = {}
    aggregates: dict[str, str] = {}
    checks: list[CheckSeen] = []
    links: list[LinkNews] = []
    on_way: list[MessageOnLink] = []


class FaultSeen(Struct):
    """A fault of the run."""

    id: str
    what: str
    targets: list[str]
    at: float
    healed: float | None = None


class NodeCounts:
    """The number of agents on each node, and in each population of nodes."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.agents: dict[str, int] = {}
        self.populations: dict[str, list[int]] = {}
        """The numbers of their agents and of their nodes."""
        self._counted = 0
        for node in nodes:
            self._add(node, 0)

    def update(self, order: Sequence[Place], node_of: Callable[[str], str]) -> None:
        """Count the agents that are new since the last call; pass the same `node_of` each time."""
        for place in order[self._counted :]:
            self._add(node_of(place.path), 1)
        self._counted = len(order)

    def _add(self, node: str, agents: int) -> None:
        population = self.populations.setdefault(node.partition("/")[0], [0, 0])
        if node not in self.agents:
            self.agents[node] = 0
            population[1] += 1
        self.agents[node] += agents
        population[0] += agents


class RunModel:
    """The state of one run.

    `class_of` returns the class of the agent at a path, and `node_of` its node; `nodes` are the nodes of the
    network.
    """

    def __init__(
        self, class_of: Callable[[str], str], nodes: Sequence[str], node_of: Callable[[str], str]
    ) -> None:
        self._node_of = node_of
        self.time = 0.0
        self.waits = False
        self.recorded = self.left_out = 0
        self.tree = RunTree(class_of, lambda: self.time)
        self.records: deque[LogRecord] = deque(maxlen=MOST_RECORDS)
        self.edges = Edges()
        self._traces: Bounded[int | str | None, int | None] = Bounded(MOST_TRACES)
        """The traces of messages, for the records that name only their number."""
        self.steps: Bounded[int, StepSeen] = Bounded(MOST_STEPS)
        self.steps_done = self.steps_total = 0
        self.checks: dict[str, CheckSeen] = {}
        self.faults: Bounded[str, FaultSeen] = Bounded(MOST_FAULTS)
        self.crashes: deque[tuple[int, State]] = deque(maxlen=MOST_CRASHES)
        self.crash_count = 0
        self.letters: deque[tuple[int, State]] = deque(maxlen=MOST_LETTERS)
        self.letter_count = 0
        self.nodes: dict[str, bool] = dict.fromkeys(nodes, True)
        """The nodes of the network, and whether each is up."""
        self.links: dict[tuple[str, str], LinkNews] = {}
        self.on_way: deque[tuple[int, MessageOnLink]] = deque(maxlen=MOST_ON_WAY)
        self._on_way_count = 0
        self.series: dict[str, SeriesKept] = {}
        self.counts = NodeCounts(nodes)
        self._takers: dict[str, Callable[[LogRecord], None]] = {
            "crashed": self._crashed,
            "dead_letter": self._lost_letter,
            "fault": self._fault,
            "healed": self._healed,
        }

    # ---- the log

    def take_lines(self, lines: str) -> None:
        """Bring the model up to date with whole lines of the log."""
        self.take_records(records_in(lines))

    def take_records(self, records: list[LogRecord]) -> None:
        """Bring the model up to date with the next records."""
        tree, kept = self.tree, self.records
        for record in records:
            kind = record.kind
            if kind == "sent":
                self.edges[record.from_ or "", record.agent, record.affordance or ""].sent += 1
                if record.id is not None:
                    self._traces[record.id] = record.trace
            elif record.id in self._traces:
                record.trace = self._traces[record.id]
            ended = tree.take(record)
            if ended is not None and (record.error is not None or kind in ("refused", "dropped")):
                self.edges[ended.sender, ended.place.path, ended.affordance].failed += 1
            more = self._takers.get(kind)
            if more is not None:
                more(record)
            kept.append(record)
        if records:
            self.recorded += len(records)
            self.time = max(self.time, records[-1].t)

    def _crashed(self, record: LogRecord) -> None:
        self.crash_count += 1
        place = self.tree.agent_at(record.agent)
        row: State = {
            "agent": record.agent,
            "class": "" if place is None else place.cls,
            "life": 1 if place is None else place.life,
            "time": record.t,
            "reason": record.reason[:TEXT],
            "where": "",
        }
        self.crashes.appendleft((self.crash_count, row))

    def _lost_letter(self, record: LogRecord) -> None:
        self.letter_count += 1
        row: State = {
            "time": record.t,
            "agent": record.agent,
            "affordance": record.affordance or "",
            "message": "",
            "reason": record.reason[:TEXT],
            **({} if record.from_ is None else {"from": record.from_}),
        }
        self.letters.appendleft((self.letter_count, row))

    def _fault(self, record: LogRecord) -> None:
        id = str(record.id)
        known = self.faults.get(id)
        names = [name for side in record.sides or () for name in side] or [record.agent]
        node = record.agent
        if record.fault == "restart" and node in self.nodes:
            self.nodes[node] = False
            self.tree.end_lives(lambda path: self._node_of(path) == node)
        elif record.fault == "restart" and node == ROOT:  # the one node of a run without a network
            self.tree.end_lives(lambda path: True)
        if known is not None and known.healed is None and known.at == record.t:
            known.targets = [*known.targets, *names][:MOST_TARGETS]
            return
        self.faults[id] = FaultSeen(id, record.fault, names[:MOST_TARGETS], record.t)
        self.faults.move_to_end(id)

    def _healed(self, record: LogRecord) -> None:
        if record.fault == "restart" and record.agent in self.nodes:
            self.nodes[record.agent] = True
        known = self.faults.get(str(record.id))
        if known is not None:
            known.healed = record.t

    # ---- the news beside the log

    def take_news(self, news: RunNews) -> None:
        """Bring the model up to date with news from the run's process."""
        self.time, self.waits = max(self.time, news.at), news.waits
        for step in news.steps:
            self.steps[step.number] = step
        self.steps_done = max(self.steps_done, news.steps_done)
        self.steps_total = news.steps_total or self.steps_total
        self.checks |= {check.name: check for check in news.checks}
        for name, samples in news.series.items():
            kept = self.series.get(name)
            if kept is None and len(self.series) < MOST_SERIES:
                kept = self.series[name] = SeriesKept(news.aggregates.get(name, ""))
            if kept is not None:
                kept.add(samples)
        for each in news.links:
            self._link(each)
        for message in news.on_way:
            self._on_way_count += 1
            self.on_way.append((self._on_way_count, message))

    def _link(self, news: LinkNews) -> None:
        key = (news.source, news.target)
        known = self.links.get(key)
        if known is not None:
            news.sent += known.sent
            news.lost += known.lost
            news.delay = known.delay if news.delay is None else news.delay
        elif len(self.links) >= MOST_LINKS:
            return
        self.links[key] = news

    def look(self, paths: Iterable[str]) -> None:
        """Do nothing, as a log has the messages of all agents; see `Messages`."""


TEXT: Final = 500
MOST_TARGETS: Final = 20
