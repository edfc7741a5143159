"""The public names that run agents; the first use of one of them imports this module."""

from .assembly import (
    NodeOptions as NodeOptions,
    open_node as open_node,
    open_node_in_thread as open_node_in_thread,
)
from .node import (
    Node as Node,
    NodeService as NodeService,
    NodeThread as NodeThread,
    ServiceHome as ServiceHome,
)
from .portal import Portal as Portal
from .simulation import TraceLog as TraceLog, simulate as simulate
