"""Observation of requests at the edge of a node: counted, recorded as spans, or both.

The runtime calls a `NodeEdge` twice for each request: for an incoming one before it is posted and when it is
answered, for an outgoing one when it leaves and when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.actors import (
    PropagatingSlot,
    incoming_trace,
    outgoing_trace,
    put_in_span,
    recorded_trace,
    span_members,
)
from lmos_actors.errors import ActionCancelled

from ._metrics import Metrics
from ._request_counts import CANCELLED, status_class

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from opentelemetry.trace import Span

    from lmos_actors.actors import Envelope, Far, Mark, Operation, RequestKind, Runtime, Slot, TraceMembers
    from lmos_actors.supervision import Supervisor

    from ._metrics import MetricsOptions, Traffic
    from ._model_counts import ModelCounts
    from ._request_counts import RequestCounts
    from ._tracing import Spans

CONSUMER_LEFT: Final = ActionCancelled("the consumer left")

_NO_TRACE: Final[TraceMembers] = {}


class NodeEdge:
    """See `Edge`. `metrics` or `spans` is None if it is not wanted."""

    def __init__(self, rt: Runtime, metrics: Metrics | None, spans: Spans | None) -> None:
        self._rt = rt
        self._metrics = metrics
        self._spans = spans
        self.hands_on = spans is not None

    def came(
        self,
        far: Far,
        way: str,
        traceparent: str | None,
        tracestate: str | None,
        attributes: Mapping[str, Any] | None = None,
        /,
    ) -> WatchedRequest:
        """See `Edge`."""
        incoming_trace(self._rt, far, traceparent, tracestate)
        op, span = far.op, None
        if self._spans is not None:
            known = {**_attributes(op, far.slot.path, way), **(attributes or {})}
            span, origin = self._spans.start_server_span(_name(op), known, traceparent, tracestate)
            if origin is not None:
                put_in_span(far, origin)
        received = None if self._metrics is None else self._metrics.received
        return WatchedRequest(_kind(op, way), received, self._spans, span)

    def passes(
        self,
        kind: RequestKind,
        name: str,
        attributes: Mapping[str, Any],
        traceparent: str | None,
        tracestate: str | None,
        /,
    ) -> WatchedRequest:
        """See `Edge`."""
        span = origin = None
        if self._spans is not None:
            span, origin = self._spans.start_server_span(name, attributes, traceparent, tracestate)
        trace: TraceMembers = {} if origin is None else span_members(origin)
        received = None if self._metrics is None else self._metrics.received
        return WatchedRequest(kind, received, self._spans, span, trace)

    def refused(self, way: str, verb: str, error: BaseException, /) -> None:
        """See `Edge`."""
        if self._metrics is not None:
            self._metrics.received.refuse(verb, way, status_class(error))

    def goes(self, op: Operation, path: str, way: str, /) -> WatchedRequest:
        """See `Edge`."""
        attributes = {} if self._spans is None else _attributes(op, path, way)
        return self.calls(_kind(op, way), _name(op), attributes)

    def calls(self, kind: RequestKind, name: str, attributes: Mapping[str, Any], /) -> WatchedRequest:
        """See `Edge`."""
        trace = outgoing_trace(self._rt)
        span: Span | None = None
        if self._spans is not None:
            span, origin = self._spans.start_client_span(name, attributes)
            if origin is not None:
                trace = recorded_trace(self._rt, trace, origin)
        sent = None if self._metrics is None else self._metrics.sent
        return WatchedRequest(kind, sent, self._spans, span, trace)

    def asks(self, model: str, name: str, attributes: Mapping[str, Any], /) -> WatchedInquiry:
        """See `Edge`."""
        span = None if self._spans is None else self._spans.start_client_span(name, attributes)[0]
        models = None if self._metrics is None else self._metrics.models
        return WatchedInquiry(model, models, self._spans, span)

    def mark(self, mark: Mark | None, /) -> Mark | None:
        """See `Edge`."""
        return mark if self._spans is None else self._spans.mark(mark)

    def enter(self, envelope: Envelope, /) -> Any:
        """See `Edge`."""
        return None if self._spans is None else self._spans.enter(envelope.trace)

    def leave(self, token: Any, /) -> None:
        """See `Edge`."""
        if self._spans is not None:
            self._spans.leave(token)

    def gone(self, slot: Slot, /) -> None:
        """See `Edge`."""
        if self._metrics is not None:
            self._metrics.census.gone(slot)


def _kind(op: Operation, way: str) -> RequestKind:
    return op.owner, op.name, op.verb, way


def _name(op: Operation) -> str:
    return f"{op.verb} {op.label}"


def _attributes(op: Operation, path: str, way: str) -> dict[str, Any]:
    return {
        "rpc.system": "lmos",
        "rpc.service": op.owner,
        "rpc.method": op.name,
        "lmos.verb": op.verb,
        "lmos.agent": path,
        "lmos.way": way,
    }


def watch_edge(
    rt: Runtime,
    root: Supervisor,
    options: MetricsOptions | None,
    tracing: Any,
    traffic: Callable[[], Traffic],
    failed: Callable[[BaseException], object],
) -> Metrics | None:
    """Observe a node's requests as `open_node(metrics=..., tracing=...)` asks; return its metrics, if any.

    Raises ConfigError.
    """
    metrics = None if options is None else Metrics(rt, root, options, traffic, failed)
    spans: Spans | None = None
    if tracing:
        from ._tracing import Spans, provider_of  # OpenTelemetry takes long to import

        spans = Spans(rt, provider_of(tracing), failed)
        if rt.instrument is None:  # which hands traces on as well
            rt.link = PropagatingSlot
    if metrics is not None or spans is not None:
        rt.edge = NodeEdge(rt, metrics, spans)
    return metrics


class WatchedRequest:
    """A request that is counted and recorded as a span, until its end; see `Watch` and `Going`."""

    __slots__ = ("_ended", "_kind", "_request_counts", "_since", "_span", "_spans", "trace")

    def __init__(
        self,
        kind: RequestKind,
        counts: RequestCounts | None,
        spans: Spans | None,
        span: Span | None,
        trace: TraceMembers = _NO_TRACE,
    ) -> None:
        self.trace = trace
        self._kind = kind
        self._request_counts = counts
        self._spans = spans
        self._span = span
        self._since = trio.current_time()
        self._ended = False

    def ended(self, error: BaseException | None, /) -> None:
        """See `Watch`."""
        if not self._ended:
            self._end(status_class(error), error)

    def left(self) -> None:
        """See `Watch`."""
        if not self._ended:
            self._end(CANCELLED, CONSUMER_LEFT)

    def __enter__(self) -> TraceMembers:
        return self.trace

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.ended(error)

    def _end(self, status: str, error: BaseException | None) -> None:
        self._ended = True
        if self._request_counts is not None:
            self._request_counts.take(self._kind, status, trio.current_time() - self._since)
        if self._spans is not None and self._span is not None:
            self._spans.end(self._span, error)


class WatchedInquiry:
    """A request to a language model; see `Inquiry`."""

    __slots__ = ("_model", "_models", "_since", "_span", "_spans")

    def __init__(
        self, model: str, models: ModelCounts | None, spans: Spans | None, span: Span | None
    ) -> None:
        self._model = model
        self._models = models
        self._spans = spans
        self._span = span
        self._since = trio.current_time()

    @property
    def records(self) -> bool:
        """See `Inquiry`."""
        return self._span is not None and self._span.is_recording()

    def ended(
        self, outcome: str, amounts: Mapping[str, int], attributes: Mapping[str, Any], *, failed: bool
    ) -> None:
        """See `Inquiry`."""
        if self._models is not None:
            self._models.take(self._model, outcome, trio.current_time() - self._since, amounts)
        if self._spans is not None and self._span is not None:
            self._spans.end_inquiry(self._span, attributes, outcome if failed else None)
