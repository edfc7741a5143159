"""OpenTelemetry spans of requests: one for each that comes in, one for each that goes out.

All protocols use `start_server_span` and `start_client_span`. The span of an incoming request is a child of
the span that its `traceparent` names. Agents work in the span of a request and pass it on to near agents;
requests that they send elsewhere are its children. An agent's code finds it as the current span.

If a provider, sampler or processor raises, nothing but spans is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as contexts, trace
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
    TraceState,
)

from lmos_actors.actors import Origin, current_mark, origin_of, read_trace
from lmos_actors.errors import ConfigError, LmosActorsError

from ._request_counts import status_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from lmos_actors.actors import Mark, Runtime

SCOPE: Final = "lmos_actors"
"""The instrumentation scope of all spans."""

SERVER_ERROR: Final = 500


def provider_of(wanted: Any) -> TracerProvider:
    """Return the provider for the argument of `open_node(tracing=...)`. Raises ConfigError."""
    if wanted is True:
        return trace.get_tracer_provider()
    if not callable(getattr(wanted, "get_tracer", None)):
        raise ConfigError(f"must be True or a TracerProvider, not {wanted!r}", "open_node(tracing=...)")
    provider: TracerProvider = wanted
    return provider


class Spans:
    """The spans of one node."""

    def __init__(
        self, rt: Runtime, provider: TracerProvider, failed: Callable[[BaseException], object]
    ) -> None:
        self._rt = rt
        self._failed = failed
        self._broken = False
        self._tracer = provider.get_tracer(SCOPE)

    def _report_failure(self, error: BaseException) -> None:
        if not self._broken:  # reported once: the next spans fail alike
            self._broken = True
            self._failed(error)

    def _now(self) -> int | None:
        """Return the time of day in nanoseconds; None lets OpenTelemetry read its own clock."""
        return None if self._rt.real else int(self._rt.entropy.now().timestamp() * 1e6) * 1000

    # ---- in

    def start_server_span(
        self, name: str, attributes: Mapping[str, Any], traceparent: str | None, tracestate: str | None
    ) -> tuple[Span | None, Origin | None]:
        """Start the span of a request that came in."""
        try:
            incoming = read_trace(traceparent, tracestate)
            above = contexts.Context() if incoming is None else _context(incoming[0])
            span = self._tracer.start_span(name, above, SpanKind.SERVER, attributes, start_time=self._now())
            return span, origin_of(span)
        except Exception as error:
            self._report_failure(error)
            return None, None

    # ---- out

    def start_client_span(
        self, name: str, attributes: Mapping[str, Any]
    ) -> tuple[Span | None, Origin | None]:
        """Start the span of a request that the running code sends."""
        try:
            mark = self.mark(current_mark(self._rt))
            above = None if mark is None or mark[2] is None else _context(mark[2])
            span = self._tracer.start_span(name, above, SpanKind.CLIENT, attributes, start_time=self._now())
            return span, origin_of(span)
        except Exception as error:
            self._report_failure(error)
            return None, None

    def end_inquiry(self, span: Span, attributes: Mapping[str, Any], error: str | None) -> None:
        """End the span of a model request, with more attributes; `error` is the type of the error, if any."""
        try:
            span.set_attributes(attributes)
            if error is not None:
                span.set_attribute("error.type", error)
                span.set_status(Status(StatusCode.ERROR))
            span.end(self._now())
        except Exception as bug:
            self._report_failure(bug)

    def end(self, span: Span, error: BaseException | None) -> None:
        """End a span. The text of an error is left out, as it may contain personal data."""
        try:
            if error is not None:
                status = status_number(error) if isinstance(error, LmosActorsError) else SERVER_ERROR
                span.set_attributes({"error.type": type(error).__name__, "lmos.status": status})
                if status >= SERVER_ERROR or getattr(span, "kind", None) is SpanKind.CLIENT:
                    span.set_status(Status(StatusCode.ERROR))
            span.end(self._now())
        except Exception as bug:
            self._report_failure(bug)

    # ---- between

    def mark(self, mark: Mark | None) -> Mark | None:
        """Return the mark for messages that the running code sends: the current span's, if there is one."""
        span = trace.get_current_span()
        found = span.get_span_context()
        if not found.is_valid:
            return mark
        origin = None if mark is None else mark[2]
        if origin is not None and (int(origin.trace_id, 16) != found.trace_id or span is origin.span):
            return mark
        number, began, _, sender = mark or (0, 0, None, None)
        return number, began, origin_of(span), sender

    def enter(self, mark: Mark | None) -> Any:
        """Make the span of a message the current span; return a token for `leave`."""
        origin = None if mark is None else mark[2]
        return None if origin is None else contexts.attach(_context(origin))

    def leave(self, token: Any) -> None:
        """Undo `enter`."""
        if token is not None:
            contexts.detach(token)


def _context(origin: Origin) -> Context:
    """Return a context whose current span is the span of an origin, or one made from the origin's ids."""
    span: Span | None = origin.span
    if span is None:
        state = TraceState.from_header([origin.state]) if origin.state else None
        flags = TraceFlags(int(origin.flags, 16))
        found = SpanContext(int(origin.trace_id, 16), int(origin.parent, 16), True, flags, state)
        span = NonRecordingSpan(found)
    return trace.set_span_in_context(span, contexts.Context())
