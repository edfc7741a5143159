"""Faults of real connections: a proxy that causes them, and a gateway for clients that name a server."""

from lmos_actors._late import late

with late(__name__):
    from ._fault_orders import (
        FaultOrder as FaultOrder,
        delay_of as delay_of,
        order_of as order_of,
        read_at as read_at,
        share_of as share_of,
    )
    from ._fault_proxy import (
        FaultProxy as FaultProxy,
        links_with as links_with,
    )
    from ._gateway import (
        Gateway as Gateway,
        GatewayNetwork as GatewayNetwork,
    )
