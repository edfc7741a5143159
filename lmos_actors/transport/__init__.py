"""Streams, the front door, and WebSocket connections: bytes to messages and back. Independent of LMOS."""

from lmos_actors._late import late

with late(__name__):
    from lmos_actors._core import (
        Account as Account,
        Budget as Budget,
        BudgetStatistics as BudgetStatistics,
    )
    from lmos_actors.errors import (
        ConnectFailed as ConnectFailed,
        ConnectionLost as ConnectionLost,
        TransportError as TransportError,
    )

    from ._asgi import App as App, ClientLeft as ClientLeft
    from ._default_network import default_network as default_network
    from ._frames import server_text as server_text
    from ._front_door import (
        DoorOptions as DoorOptions,
        DoorStatistics as DoorStatistics,
        FrontDoor as FrontDoor,
    )
    from ._handshake import accept as accept, connect as connect
    from ._head import (
        Accept as Accept,
        Refuse as Refuse,
        Upgrade as Upgrade,
        same_origin as same_origin,
    )
    from ._memory import (
        MemoryListener as MemoryListener,
        MemoryNetwork as MemoryNetwork,
        MemoryStream as MemoryStream,
        Pipe as Pipe,
        memory_pair as memory_pair,
        pair_of as pair_of,
    )
    from ._network import (
        Endpoint as Endpoint,
        Listener as Listener,
        Network as Network,
        answered as answered,
        cut_off as cut_off,
        detail_of as detail_of,
        endpoint_of as endpoint_of,
        has_detail as has_detail,
        is_here as is_here,
        leads_astray as leads_astray,
        secured as secured,
        why_cut as why_cut,
    )
    from ._options import (
        ConnectionOptions as ConnectionOptions,
        Ended as Ended,
        Handler as Handler,
    )
    from ._tcp import (
        DirectStream as DirectStream,
        TcpNetwork as TcpNetwork,
        raise_descriptor_limit as raise_descriptor_limit,
    )
    from ._tls import (
        ClientCertificate as ClientCertificate,
    )
    from ._websocket import Connection as Connection
