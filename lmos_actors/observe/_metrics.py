"""Metrics of a node: its agents by class, its requests in both directions, its models, its connections."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors._core import BudgetStatistics
from lmos_actors.errors import ConfigError

from ._census import OUTCOMES, AgentCensus
from ._exposition import END, OPENMETRICS, Family, Sample, encode_families, media_type_for
from ._model_counts import ModelCounts
from ._request_counts import RequestCounts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from lmos_actors.actors import Runtime
    from lmos_actors.supervision import Supervisor

    from ._census import Census

PREFIX: Final = "lmos_actors_"

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

DEFAULT: Final[Any] = "the default registry of prometheus_client"


def _above_zero(_: object, field: attrs.Attribute[int], value: Any) -> None:
    if type(value) is not int or value < 1:
        raise ConfigError(f"must be an int of at least 1, not {value!r}", f"MetricsOptions.{field.name}")


def _ascending(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    bounds = value if isinstance(value, tuple) else ()  # pyright: ignore[reportUnknownVariableType]
    numbers = all(type(each) in (int, float) and 0 < each < math.inf for each in bounds)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not bounds or not numbers or list(bounds) != sorted(set(bounds)):  # pyright: ignore[reportUnknownArgumentType]
        text = f"must be a tuple of seconds above 0, each longer than the one before, not {value!r}"
        raise ConfigError(text, f"MetricsOptions.{field.name}")


@attrs.frozen(kw_only=True)
class MetricsOptions:
    """Limits on a node's metrics, and the registry they include.

    `label_sets`: the maximum number of kinds of requests (class, affordance, verb, way) in each direction;
    the rest counts as `other`. `classes`: the same for agent classes. `agents`: up to this number, each
    mailbox is shown. `buckets`: upper bounds of the histograms of latencies, in seconds, ascending.
    `registry`: a registry of prometheus_client whose metrics are included, None for none; by default the
    global one, with metrics of the process and those that agents define. Raises ConfigError.
    """

    label_sets: int = attrs.field(default=500, validator=_above_zero)
    classes: int = attrs.field(default=200, validator=_above_zero)
    agents: int = attrs.field(default=100, validator=_above_zero)
    buckets: tuple[float, ...] = attrs.field(default=BUCKETS, validator=_ascending)
    registry: Any = DEFAULT


def metrics_options(wanted: bool | MetricsOptions | None) -> MetricsOptions | None:
    """Return the options for the argument of `open_node(metrics=...)`. Raises ConfigError."""
    if wanted is None or isinstance(wanted, bool):
        return MetricsOptions() if wanted else None
    if not isinstance(wanted, MetricsOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"must be True, False or MetricsOptions, not {wanted!r}", "open_node(metrics=...)")
    return wanted


NOTHING_HELD: Final = BudgetStatistics(0, 0, 0)


@attrs.frozen
class Traffic:
    """The connections of a node.

    `refused` counts, by reason, connections that the front doors turned away; `turned_away` counts, by
    status, requests without valid credentials or from pages of origins that are not allowed.
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
    """The metrics of one node.

    `traffic` returns its connections now; `failed` is called with the errors of collectors in the registry.
    """

    def __init__(
        self,
        rt: Runtime,
        root: Supervisor,
        options: MetricsOptions,
        traffic: Callable[[], Traffic],
        failed: Callable[[BaseException], object],
    ) -> None:
        self.options = options
        self.received = RequestCounts(options.buckets, options.label_sets)
        self.sent = RequestCounts(options.buckets, options.label_sets)
        self.models = ModelCounts(options.buckets, options.label_sets)
        self.census = AgentCensus(root, options.classes, options.agents)
        self._rt = rt
        self._traffic = traffic
        self._failed = failed
        self._census: Census | None = None
        self._census_at = -math.inf
        self._counting: trio.Event | None = None

    # ---- as text

    async def pieces(self, media_type: str) -> AsyncIterator[bytes]:
        """Yield all metrics as text, in pieces, with a checkpoint after each."""
        census = await self._count()
        for piece in encode_families(self._families(census), media_type):
            yield piece
            await trio.lowlevel.checkpoint()
        yield self._registry_text(media_type)
        if media_type == OPENMETRICS:
            yield END

    async def text(self, accept: str = "") -> str:
        """Return all metrics as text."""
        parts = [piece async for piece in self.pieces(media_type_for(accept))]
        return b"".join(parts).decode()

    def _registry_text(self, media_type: str) -> bytes:
        """Return the metrics of `registry`; if a collector fails, only these are missing."""
        registry = self.options.registry
        is_default = registry is DEFAULT
        # Metrics of the process differ from run to run: a simulation leaves them out.
        if registry is None or (is_default and not self._rt.real):
            return b""
        import prometheus_client
        from prometheus_client.openmetrics import exposition

        open_text: Any = exposition.generate_latest  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        write: Any = open_text if media_type == OPENMETRICS else prometheus_client.generate_latest
        try:
            text: bytes = write(prometheus_client.REGISTRY if is_default else registry)
        except Exception as error:
            self._failed(error)
            return b""
        return text.removesuffix(END)

    # ---- counting

    async def _count(self) -> Census:
        """Return a census that is at most a second old; if one is being taken, wait for it."""
        while self._counting is not None:
            await self._counting.wait()
        if self._census is None or trio.current_time() - self._census_at >= 1.0:
            self._counting = trio.Event()
            try:
                self._census = await self.census.take()
                self._census_at = trio.current_time()
            finally:
                self._counting.set()
                self._counting = None
        return self._census

    def _families(self, census: Census) -> Iterator[Family]:
        yield from _of_agents(census)
        text = "Messages that no agent handled and whose senders got no error."
        lost = Sample((), self._rt.dead_letter_count)
        yield Family(f"{PREFIX}dead_letters", "counter", text, (lost,))
        yield from _of_connections(self._traffic())
        yield from self.received.families(PREFIX, "Requests that came in over connections")
        yield from self.sent.families(f"{PREFIX}client_", "Requests to agents elsewhere")
        yield from self.models.families(f"{PREFIX}model_")


def _of_agents(census: Census) -> Iterator[Family]:
    classes = sorted(census.classes.items())

    def by_class(name: str, text: str, kind: Any = "gauge", field: str | None = None) -> Family:
        counts = ((cls, getattr(count, field or name)) for cls, count in classes)
        return Family(f"{PREFIX}{name}", kind, text, [Sample((("class", cls),), n) for cls, n in counts])

    standing = [
        Sample((("class", cls), ("status", status)), number)
        for cls, count in classes
        for status, number in sorted(count.statuses.items())
    ]
    done = [
        Sample((("class", cls), ("outcome", outcome)), getattr(count, outcome))
        for cls, count in classes
        for outcome in OUTCOMES
    ]
    yield Family(f"{PREFIX}agents", "gauge", "Agents, by where they stand.", standing)
    yield Family(f"{PREFIX}messages", "counter", "Messages, by what became of them.", done)
    yield by_class("restarts", "Incarnations after the first.", "counter")
    yield by_class("mailbox_depth", "Messages that wait.", field="depth")
    yield by_class("mailbox_deepest", "Messages that wait in the fullest mailbox.", field="deepest")
    yield by_class("senders_waiting", "Senders that full mailboxes hold back.", field="parked")
    yield by_class("runs", "Runs in progress.", field="running")
    if census.depths is not None:
        samples = [Sample((("agent", path), ("class", cls)), depth) for path, cls, depth in census.depths]
        text = "Messages that wait for each agent, where there are few."
        yield Family(f"{PREFIX}agent_mailbox_depth", "gauge", text, samples)


def _of_connections(traffic: Traffic) -> Iterator[Family]:
    def one(name: str, text: str, value: float, kind: Any = "gauge") -> Family:
        return Family(f"{PREFIX}{name}", kind, text, (Sample((), value),))

    yield one("connections", "Connections that others have to this node.", traffic.connections)
    yield one("connections_accepted", "Connections that others have made.", traffic.accepted, "counter")
    refused = [Sample((("reason", why),), count) for why, count in sorted(Counter(traffic.refused).items())]
    text = "Connections that were turned away, by reason."
    yield Family(f"{PREFIX}connections_refused", "counter", text, refused)
    away = [Sample((("status", str(why)),), n) for why, n in sorted(traffic.turned_away.items())]
    text = "Requests, and upgrades to WebSocket, of those who were not let in, by status."
    yield Family(f"{PREFIX}not_let_in", "counter", text, away)
    text = "Requests of LMOS connections that are not answered yet."
    yield one("open_requests", text, traffic.open_requests)
    yield one("draining", "1 while no more requests are taken.", int(traffic.draining))
    yield one("peers", "Addresses that this node has connections to, or tries to.", traffic.peers)
    yield one("peers_connected", "Those that it is connected to.", traffic.peers_connected)
    held = traffic.held
    yield one("held_bytes", "Bytes of memory that all peers hold.", held.bytes)
    yield one("held_limit_bytes", "Bytes of memory that all peers may hold.", held.limit)
    text = "Bytes of memory granted to one-way messages of peers that have not come."
    yield one("held_granted_bytes", text, held.granted)
    text = "Peers that had to give way because all together held too much memory."
    yield one("gave_way", text, held.gave_way, "counter")
