"""The view `flow`: the messages of some agents as they pass, and their counts by sender and receiver.

Only the slots of those agents record messages, and only while somebody looks: a slot is turned into one that
records (`tap`), and the node gets an instrument. When no viewer has looked for `KEEP` seconds, everything is
restored.

Under load not everything is kept. All messages are counted by sender and receiver. The messages themselves
are kept only up to a number per second, and then as whole traces: a message that began outside and all
messages that followed from it, or none of them.
"""

from __future__ import annotations

from collections import deque
from heapq import nlargest
from time import thread_time
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol

import attrs
import trio
from msgspec import Meta, Struct

from lmos_actors._core import HIDDEN, Bounded
from lmos_actors.actors import Inspection, Secrets, Slot, TracedSlot, show_quietly, tap, untap
from lmos_actors.supervision import Supervisor, agents_of, children_of, place_at

from ._whole_values import whole_json

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Reversible

    from lmos_actors._core import Instrument
    from lmos_actors.actors import Runtime

    from ._merge_patch import State
    from ._survey import StartSoon

KEEP: Final = 5.0
"""Seconds for which messages are recorded after a viewer has last asked."""

SCAN: Final = 1.0
"""Seconds between two looks for new agents."""

STEP: Final = 250
"""Agents that are tapped in one step."""

SHARE: Final = 0.02
"""The share of one processor that looking for agents takes."""

MOST_A_SECOND: Final = 1_000
"""Records that are kept a second."""

MOST_ERRORS: Final = 100
"""Errors a second in whose texts secrets are looked for; of further errors only the class is kept."""

MOST_RECORDS: Final = 5_000
MOST_NUMBERS: Final = 20_000
"""Messages in progress whose further records are kept."""

MOST_PATHS: Final = 2_000
"""Paths that are looked at; beyond that, those that were asked for longest ago are dropped."""

MOST_EDGES: Final = 2_000
SHOWN_RECORDS: Final = 200
SHOWN_EDGES: Final = 200

VALUE: Final = 300
"""Characters of a value that are shown."""

Path = Annotated[str, Meta(max_length=4_096)]
Edge = tuple[str, str, str]


class FlowArguments(Struct, forbid_unknown_fields=True):
    """The arguments of the view: it shows the messages of the agents at `paths` and below.

    The path "" is the whole node. If given, `trace` selects the messages of one trace, and `affordance` those
    of one action, property or event.
    """

    paths: Annotated[tuple[Path, ...], Meta(min_length=1, max_length=20)] = ("",)
    trace: int | None = None
    affordance: Annotated[str, Meta(max_length=200)] | None = None
    records: Annotated[int, Meta(ge=0, le=SHOWN_RECORDS)] = SHOWN_RECORDS


@attrs.define
class EdgeCount:
    """The message counts of one edge; `failed` counts requests that were not answered with a result."""

    sent: int = 0
    failed: int = 0


class Edges(dict[Edge, EdgeCount]):
    """The counts of messages by sender, receiver and action; all edges beyond MOST_EDGES share one count."""

    def __missing__(self, edge: Edge) -> EdgeCount:
        return self.setdefault(edge if len(self) < MOST_EDGES else ("", "", ""), EdgeCount())


class KeptRecord(NamedTuple):
    """A record that is kept. See `Record`."""

    n: int
    agent: str
    affordance: str | None
    trace: Any
    state: State

    def shown(self) -> State:
        """See `Record`."""
        return self.state


class Flow:
    """The recorded messages of one node, for all viewers."""

    def __init__(self, rt: Runtime, root: Supervisor, start_soon: StartSoon) -> None:
        self._rt = rt
        self._root = root
        self._start_soon = start_soon
        self._wanted: dict[str, float] = {}
        """The paths that are looked at, each with the time until which it is."""
        self._runs = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.records: deque[KeptRecord] = deque(maxlen=MOST_RECORDS)
        self.edges = Edges()
        self.recorded = self.left_out = 0
        self._tapped: dict[Slot, None] = {}
        self._scanned: tuple[str, ...] = ()
        """The paths at the last look for agents."""
        self._under_way: Bounded[Any, tuple[Edge, Any]] = Bounded(MOST_NUMBERS)
        """The edge and the trace of each message that is kept, by its number."""
        self._covered: dict[str, bool] = {}
        self._every = 1
        self._second = 0.0
        self._in_second = self._errors = 0

    def look(self, paths: Iterable[str]) -> None:
        """Note that somebody is looking at the messages of the agents at these paths."""
        until = trio.current_time() + KEEP
        for path in paths:
            if self._wanted.pop(path, None) is None:
                self._covered.clear()
            self._wanted[path] = until
        while len(self._wanted) > MOST_PATHS:
            del self._wanted[next(iter(self._wanted))]
        if not self._runs:
            self._runs = True
            self._start_soon(self._run, name="taps of the live view")

    # ---- taps

    async def _run(self) -> None:
        rt = self._rt
        before, link = rt.instrument, rt.link
        self._begin_anew()
        rt.instrument = self if before is None else _Both(before, self)
        try:
            while self._wanted:
                await self._tap_all()
                await trio.sleep(SCAN)
                self._expire()
                is_all = "" in self._wanted and link is Slot
                rt.link = TracedSlot if is_all else link  # so that no new agent is missed
            await self._tap_all()  # which untaps all agents, the newest too
        finally:
            rt.instrument, rt.link = before, link
            for slot in self._tapped:
                untap(slot)
            self._runs = False
            self._begin_anew()

    def _expire(self) -> None:
        now = trio.current_time()
        for path in [path for path, until in self._wanted.items() if until < now]:
            del self._wanted[path]
            self._covered.clear()

    async def _tap_all(self) -> None:
        """Tap the agents that are looked at; untap all others, including those that are gone."""
        found: dict[Slot, None] = {}
        began = thread_time()
        for count, slot in enumerate(self._sought(), start=1):
            if self._covers(slot.path):
                found[slot] = None
                if slot not in self._tapped and tap(slot):
                    self._tapped[slot] = None
            else:
                self._let_go(slot)
            if count % STEP == 0:
                await trio.sleep((thread_time() - began) * (1 / SHARE - 1))
                began = thread_time()
        for slot in [slot for slot in self._tapped if slot not in found]:
            self._let_go(slot)

    def _let_go(self, slot: Slot) -> None:
        untap(slot)
        self._tapped.pop(slot, None)

    def _sought(self) -> Iterator[Slot]:
        """Yield the agents that are looked at, or were at the previous scan."""
        paths = dict.fromkeys((*self._wanted, *self._scanned))
        self._scanned = tuple(self._wanted)
        for path in paths:
            place = place_at(self._root, path)
            if isinstance(place, Slot):
                yield place
            below = children_of(place) if isinstance(place, Slot) else place
            if below is not None:
                yield from agents_of(below)

    def _covers(self, path: str) -> bool:
        found = self._covered.get(path)
        if found is None:
            if len(self._covered) > MOST_NUMBERS:
                self._covered.clear()
            found = self._covered[path] = is_below(path, self._wanted)
        return found

    # ---- records; see `Instrument`

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Count a message, and keep its record if there is room."""
        number = fields.get("id")
        if kind == "sent":
            if not self._covers(agent):  # the node's own instrument records more than is looked at
                return
            edge = (fields.get("from", ""), agent, fields["affordance"])
            self.edges[edge].sent += 1
            if number is None or not self._has_room(fields.get("trace", number)):
                self.left_out += 1
                return
            self._under_way[number] = edge, fields.get("trace")
        elif number is not None:
            known = self._under_way.get(number)
            if known is None:
                return
            edge, trace = known
            if "error" in fields or kind in ("dropped", "refused", "dead_letter"):
                self.edges[edge].failed += 1
            fields = fields if trace is None else {**fields, "trace": trace}
            if isinstance(fields.get("error"), str):
                fields = self._without_secrets(agent, fields)
        elif not self._covers(agent) or not self._has_room(None):
            return
        self._keep(kind, agent, fields)

    def _without_secrets(self, agent: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an error's record without the secrets in the fields of its agent.

        This applies to declared and to undeclared errors.
        """
        self._errors += 1
        error, place = fields["error"], place_at(self._root, agent)
        if self._errors > MOST_ERRORS:
            shown = error.partition(":")[0]
        else:
            shown = Inspection(place).text(error) if isinstance(place, Slot) else error
        left_out = {"output"} if HIDDEN in shown or self._errors > MOST_ERRORS else set[str]()
        return {**{name: value for name, value in fields.items() if name not in left_out}, "error": shown}

    def _has_room(self, trace: Any) -> bool:
        """Return whether one more record is kept.

        At first all records are kept. Under load only those of every other trace are kept, then of every
        fourth, and so on.
        """
        now = trio.current_time()
        if now - self._second >= 1.0:
            if self._in_second < MOST_A_SECOND // 4 and self._every > 1:
                self._every //= 2
            self._second, self._in_second, self._errors = now, 0, 0
        if isinstance(trace, int) and trace % self._every:
            return False
        self._in_second += 1
        if self._in_second > MOST_A_SECOND:
            self._every, self._second, self._in_second = self._every * 2, now, 0
        return True

    def _keep(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        self.recorded += 1
        record: State = {"n": self.recorded, "t": round(trio.current_time(), 6), "kind": kind, "agent": agent}
        fields = {name: value for name, value in fields.items() if name != "report"}
        record = {**shown_fields(fields, whole_values(fields), _shown), **record}
        kept = KeptRecord(self.recorded, agent, record.get("affordance"), record.get("trace"), record)
        self.records.append(kept)


SHOWN: Final = frozenset({"input", "value", "data", "progress"})
"""The fields that hold values of agents."""


def whole_values(fields: Mapping[str, Any]) -> State:
    """Return a record's values as JSON, with `json` set; {} unless all of them can be shown whole."""
    texts = {name: whole_json(fields[name]) for name in SHOWN if fields.get(name) is not None}
    whole = {name: text for name, text in texts.items() if text is not None}
    return {**whole, "json": True} if whole and len(whole) == len(texts) else {}


def shown_fields(fields: Mapping[str, Any], whole: State, as_text: Callable[[Any], str]) -> State:
    """Return the fields of a record to show: the `whole` values, and the others as text unless short."""
    shown = dict(whole)
    for name, value in fields.items():
        if value is not None and name not in whole:
            is_plain = type(value) in (int, float, bool) or (type(value) is str and len(value) <= VALUE)
            shown[name] = value if is_plain and name not in SHOWN else as_text(value)
    return shown


def _shown(value: Any) -> str:
    secrets = Secrets()
    secrets.look(value)
    return show_quietly(value, secrets, limit=VALUE)


class _Both:
    """An instrument that passes records to the node's own instrument and to the taps."""

    def __init__(self, own: Instrument, flow: Flow) -> None:
        self._own, self._flow = own, flow

    def record(self, kind: Any, agent: str, fields: dict[str, Any]) -> None:
        self._own.record(kind, agent, fields)
        self._flow.record(kind, agent, fields)


class Record(Protocol):
    """A record of a message: its number, and the properties by which a viewer may select it."""

    @property
    def n(self) -> int: ...
    @property
    def agent(self) -> str: ...
    @property
    def affordance(self) -> str | None: ...
    @property
    def trace(self) -> Any: ...

    def shown(self) -> State:
        """Return the record in the form that views show."""
        ...


class Messages(Protocol):
    """The recorded messages of a node, or of a run according to its log."""

    edges: Edges
    recorded: int
    left_out: int

    @property
    def records(self) -> Reversible[Record]:
        """The last records."""
        ...

    def look(self, paths: Iterable[str]) -> None:
        """Note that somebody is looking at the messages of the agents at these paths."""


class FlowView:
    """The messages and edges for one viewer, who sees the records of agents for which `sees` is true."""

    is_busy = False

    def __init__(self, flow: Messages, sees: Callable[[str], bool], arguments: FlowArguments) -> None:
        self._flow = flow
        self._sees = sees
        self._arguments = arguments

    def content(self) -> State:
        """Return the last `records`, by number, and the `edges` with the most messages.

        `recorded` counts all records that were kept, `left_out` the messages without a record.
        """
        flow, most = self._flow, self._arguments.records
        flow.look(self._arguments.paths)
        records: dict[str, State] = {}
        for record in reversed(flow.records):
            if len(records) >= most:
                break
            if self._wants(record):
                records[str(record.n)] = record.shown()
        wanted = self._arguments
        seen = (
            (edge, count)
            for edge, count in flow.edges.items()
            if is_below(edge[1], wanted.paths) and wanted.affordance in (None, edge[2])
        )
        edges = nlargest(SHOWN_EDGES, seen, key=lambda each: each[1].sent)
        return {
            "records": dict(reversed(records.items())),
            "edges": {" > ".join(edge): _edge(edge, count) for edge, count in edges},
            "recorded": flow.recorded,
            "left_out": flow.left_out,
        }

    def _wants(self, record: Record) -> bool:
        wanted = self._arguments
        if not (is_below(record.agent, wanted.paths) and self._sees(record.agent)):
            return False
        if wanted.trace is not None and record.trace != wanted.trace:
            return False
        return wanted.affordance in (None, record.affordance)


def is_below(path: str, places: Container[str]) -> bool:
    """Return whether a path is one of `places`, or below one of them; "" is above every path."""
    while path not in places:
        if not path:
            return False
        path = path.rpartition("/")[0]
    return True


def _edge(edge: Edge, count: EdgeCount) -> State:
    return {"from": edge[0], "to": edge[1], "affordance": edge[2], **attrs.asdict(count)}
