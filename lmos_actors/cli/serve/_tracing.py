"""Export of spans for `serve --tracing`: to an OpenTelemetry collector, by OTLP over HTTP."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.sdk.trace import TracerProvider

FLAG: Final = "--tracing"
PLACE: Final = "/v1/traces"
SERVICE: Final = "lmos-actors"
"""The name of the service, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES names another."""


@contextmanager
def spans_to(url: str | None) -> Generator[TracerProvider | None]:
    """Return a provider that sends its spans to the collector at `url` until the block is left.

    Returns None without a URL. A separate thread sends the spans, the last ones at the end. Raises
    ConfigError for an invalid URL, and if the extra otel is not installed.
    """
    if url is None:
        yield None
        return
    provider = _provider(_endpoint(url))
    try:
        yield provider
    finally:
        provider.shutdown()


def _endpoint(url: str) -> str:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise ConfigError(f"must be the URL of a collector, such as http://127.0.0.1:4318, not {url!r}", FLAG)
    return url if url.rstrip("/").endswith(PLACE) else url.rstrip("/") + PLACE


def _provider(endpoint: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigError("needs the extra otel: pip install 'lmos-actors[otel]'", FLAG) from None
    resource = (
        Resource.create().merge(Resource({"service.name": SERVICE})).merge(OTELResourceDetector().detect())
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # Without a collector, the end of the process takes so many seconds longer, at most.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=5)))
    return provider
