"""Systems of agents as processes: the faults of real connections between them."""

from ._fault_proxy import (
    FaultProxy as FaultProxy,
    FaultProxyStatistics as FaultProxyStatistics,
    Way as Way,
    links_with as links_with,
)
