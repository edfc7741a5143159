"""Observation of a node: metrics, traces, health, the waiting graph, the dump."""

from lmos_actors._late import late

with late(__name__):
    from ._census import class_name as class_name
    from ._diagnostics import diagnostics_for as diagnostics_for, graph_of as graph_of
    from ._dump import dump as dump, task_stack as task_stack, tasks_in_order as tasks_in_order
    from ._edge import watch_edge as watch_edge
    from ._health import health_routes as health_routes
    from ._metrics import (
        Metrics as Metrics,
        MetricsOptions as MetricsOptions,
        Traffic as Traffic,
        metrics_options as metrics_options,
    )
    from ._signal import dump_signal as dump_signal
    from ._statistics import NodeStatistics as NodeStatistics, statistics_of as statistics_of
