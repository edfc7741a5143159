"""A node in numbers: its agents by class, the requests that came in and went out, its connections."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors._core import BudgetStatistics
from lmos_actors.errors import ConfigError

from ._census import OUTCOMES, Census
from ._exposition import END, OPEN, Family, Sample, format_of, written
from ._tallies import Tallies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from lmos_actors.actors import Runtime
    from lmos_actors.supervision import Supervisor

    from ._census import Count, Found

PREFIX: Final = "lmos_actors_"
FRESH: Final = 1.0
"""Seconds for which agents are not counted again, however often somebody asks."""

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

DEFAULT: Final[Any] = "the default registry of prometheus_client"


def _above_zero(_: object, field: attrs.Attribute[int], value: Any) -> None:
    if type(value) is not int or value < 1:
        raise ConfigError(f"must be an int of at least 1, not {value!r}", f"MetricsOptions.{field.name}")


def _ascending(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    bounds = value if isinstance(value, tuple) else ()  # pyright: ignore[reportUnknownVariableType]
    numbers = all(type(each) in (int, float) and 0 < each < math.inf for each in bounds)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not bounds or not numbers or list(bounds) != sorted(set(bounds)):  # pyright: ignore[reportUnknownArgumentType]
        told = f"must be a tuple of seconds above 0, each longer than the one before, not {value!r}"
        raise ConfigError(told, f"MetricsOptions.{field.name}")


@attrs.frozen(kw_only=True)
class MetricsOptions:
    """How much a node's metrics tell.

    `label_sets`: kinds of requests (class, affordance, verb, way) in each direction, beyond which the rest is
    `other`. `classes`: the same for classes of agents. `agents`: up to so many, the mailbox of each is shown.
    `buckets`: upper bounds of the histograms of latencies, in seconds, ascending.
    `registry`: a registry of prometheus_client whose metrics are told as well, None for none; by default its
    own, which has those of the process, and those that agents define. Raises ConfigError.
    """

    label_sets: int = attrs.field(default=500, validator=_above_zero)
    classes: int = attrs.field(default=200, validator=_above_zero)
    agents: int = attrs.field(default=100, validator=_above_zero)
    buckets: tuple[float, ...] = attrs.field(default=BUCKETS, validator=_ascending)
    registry: Any = DEFAULT


def metrics_options(wanted: bool | MetricsOptions | None) -> MetricsOptions | None:
    """Return the options for what `open_node(metrics=...)` was given. Raises ConfigError."""
    if wanted is None or isinstance(wanted, bool):
        return MetricsOptions() if wanted else None
    if not isinstance(wanted, MetricsOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"must be True, False or MetricsOptions, not {wanted!r}", "open_node(metrics=...)")
    return wanted


NOTHING_HELD: Final = BudgetStatistics(0, 0, 0)


@attrs.frozen
class Traffic:
    """The connections of a node.

    `refused` counts by reason those that its doors have turned away, `turned_away` by status those that came
    without good credentials, or from a page in a browser that has no business here.
    """

    connections: int = 0
    accepted: int = 0
    refused: Mapping[str, int] = attrs.field(factory=dict[str, int])
    turned_away: Mapping[int, int] = attrs.field(factory=dict[int, int])
    open_requests: int = 0
    draining: bool = False
    peers: int = 0
    peers_connected: int = 0
    held: BudgetStatistics = NOTHING_HELD


class Metrics:
    """The metrics of one node. `traffic` gives its connections now; `failed` is told of foreign mistakes."""

    def __init__(
        self,
        rt: Runtime,
        root: Supervisor,
        options: MetricsOptions,
        traffic: Callable[[], Traffic],
        failed: Callable[[BaseException], object],
    ) -> None:
        self.options = options
        self.taken = Tallies(options.buckets, options.label_sets)
        self.sent = Tallies(options.buckets, options.label_sets)
        self.census = Census(root, options.classes, options.agents)
        self._rt = rt
        self._traffic = traffic
        self._failed = failed
        self._found: Found | None = None
        self._found_at = -math.inf
        self._counting: trio.Event | None = None

    # ---- as text

    async def pieces(self, media_type: str) -> AsyncIterator[bytes]:
        """Return all metrics as text, in pieces, between which others have their turns."""
        found = await self._count()
        for piece in written(self._families(found), media_type):
            yield piece
            await trio.lowlevel.checkpoint()
        yield self._foreign(media_type)
        if media_type == OPEN:
            yield END

    async def text(self, accept: str = "") -> str:
        """Return all metrics as text."""
        parts = [piece async for piece in self.pieces(format_of(accept))]
        return b"".join(parts).decode()

    def _foreign(self, media_type: str) -> bytes:
        """Return the metrics of others; a collector that fails costs those alone."""
        registry = self.options.registry
        is_default = registry is DEFAULT
        if registry is None or (
            is_default and not self._rt.real
        ):  # on virtual time nothing is left to chance
            return b""
        import prometheus_client
        from prometheus_client.openmetrics import exposition

        open_text: Any = exposition.generate_latest  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        write: Any = open_text if media_type == OPEN else prometheus_client.generate_latest
        try:
            text: bytes = write(prometheus_client.REGISTRY if is_default else registry)
        except Exception as error:
            self._failed(error)
            return b""
        return text.removesuffix(END)

    # ---- counting

    async def _count(self) -> Found:
        """Count the agents, unless that was done just now, or is being done."""
        while self._counting is not None:
            await self._counting.wait()
        if self._found is None or trio.current_time() - self._found_at >= FRESH:
            self._counting = trio.Event()
            try:
                self._found = await self.census.take()
                self._found_at = trio.current_time()
            finally:
                self._counting.set()
                self._counting = None
        return self._found

    def _families(self, found: Found) -> Iterator[Family]:
        yield from _of_agents(found)
        told = "Messages that nobody handled and whose senders were not told."
        lost = Sample((), self._rt.dead_letter_count)
        yield Family(f"{PREFIX}dead_letters", "counter", told, (lost,))
        yield from _of_connections(self._traffic())
        yield from self.taken.families(PREFIX, "Requests that came in over connections")
        yield from self.sent.families(f"{PREFIX}client_", "Requests to agents elsewhere")


def _of_agents(found: Found) -> Iterator[Family]:
    classes = sorted(found.classes.items())

    def by_class(name: str, told: str, kind: Any = "gauge", field: str | None = None) -> Family:
        counts = ((cls, getattr(count, field or name)) for cls, count in classes)
        return Family(f"{PREFIX}{name}", kind, told, [Sample((("class", cls),), n) for cls, n in counts])

    standing, done = list(_statuses(classes)), list(_outcomes(classes))
    yield Family(f"{PREFIX}agents", "gauge", "Agents, by where they stand.", standing)
    yield Family(f"{PREFIX}messages", "counter", "Messages, by what became of them.", done)
    yield by_class("restarts", "Incarnations after the first.", "counter")
    yield by_class("mailbox_depth", "Messages that wait.", field="depth")
    yield by_class("mailbox_deepest", "Messages that wait in the fullest mailbox.", field="deepest")
    yield by_class("senders_waiting", "Senders that full mailboxes hold back.", field="parked")
    yield by_class("runs", "Runs in progress.", field="running")
    if found.depths is not None:
        samples = [Sample((("agent", path), ("class", cls)), depth) for path, cls, depth in found.depths]
        told = "Messages that wait for each agent, where there are few."
        yield Family(f"{PREFIX}agent_mailbox_depth", "gauge", told, samples)


def _statuses(classes: list[tuple[str, Count]]) -> Iterator[Sample]:
    for cls, count in classes:
        for status, number in sorted(count.statuses.items()):
            yield Sample((("class", cls), ("status", status)), number)


def _outcomes(classes: list[tuple[str, Count]]) -> Iterator[Sample]:
    for cls, count in classes:
        for outcome in OUTCOMES:
            yield Sample((("class", cls), ("outcome", outcome)), getattr(count, outcome))


def _of_connections(traffic: Traffic) -> Iterator[Family]:
    def one(name: str, told: str, value: float, kind: Any = "gauge") -> Family:
        return Family(f"{PREFIX}{name}", kind, told, (Sample((), value),))

    yield one("connections", "Connections that others have to this node.", traffic.connections)
    yield one("connections_accepted", "Connections that others have made.", traffic.accepted, "counter")
    refused = [Sample((("reason", why),), count) for why, count in sorted(Counter(traffic.refused).items())]
    told = "Connections that were turned away, by reason."
    yield Family(f"{PREFIX}connections_refused", "counter", told, refused)
    away = [Sample((("status", str(why)),), n) for why, n in sorted(traffic.turned_away.items())]
    told = "Requests, and upgrades to WebSocket, of those who were not let in, by status."
    yield Family(f"{PREFIX}not_let_in", "counter", told, away)
    told = "Requests of LMOS connections that are not answered yet."
    yield one("open_requests", told, traffic.open_requests)
    yield one("draining", "1 while no more requests are taken.", int(traffic.draining))
    yield one("peers", "Addresses that this node has connections to, or tries to.", traffic.peers)
    yield one("peers_connected", "Those that it is connected to.", traffic.peers_connected)
    held = traffic.held
    yield one("held_bytes", "Bytes of memory that all peers hold.", held.bytes)
    yield one("held_limit_bytes", "Bytes of memory that all peers may hold.", held.limit)
    told = "Bytes of memory granted to one-way messages of peers that have not come."
    yield one("held_granted_bytes", told, held.granted)
    told = "Peers that had to give way because all together held too much memory."
    yield one("gave_way", told, held.gave_way, "counter")
