"""Faults of real connections: a proxy that passes them on, and the way in for clients that name a server."""

from lmos_actors._late import late

with late(__name__):
    from ._fault_proxy import (
        FaultProxy as FaultProxy,
        Way as Way,
        links_with as links_with,
    )
    from ._gateway import (
        Gateway as Gateway,
        GatewayNetwork as GatewayNetwork,
    )
