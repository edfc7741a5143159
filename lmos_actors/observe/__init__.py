"""What people see of a node from outside: metrics, traces, health, who waits for whom, the dump."""

from ._dump import dump as dump
from ._edge import watch_edge as watch_edge
from ._health import health_routes as health_routes
from ._metrics import (
    Metrics as Metrics,
    MetricsOptions as MetricsOptions,
    Traffic as Traffic,
    metrics_options as metrics_options,
)
from ._shown import graph_of as graph_of, shown as shown
from ._signal import dumps as dumps
from ._statistics import NodeStatistics as NodeStatistics, statistics_of as statistics_of
