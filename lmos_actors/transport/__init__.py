"""Streams, the front door, and WebSocket connections: bytes to messages and back. Knows no LMOS."""

from lmos_actors._budget import Account as Account, Budget as Budget, BudgetStatistics as BudgetStatistics
from lmos_actors._errors import (
    ConnectFailed as ConnectFailed,
    ConnectionLost as ConnectionLost,
    TransportError as TransportError,
)

from ._asgi import App as App, ClientLeft as ClientLeft
from ._certificates import ClientCertificate as ClientCertificate
from ._descriptors import raise_descriptor_limit as raise_descriptor_limit
from ._front_door import FrontDoor as FrontDoor
from ._guests import DoorOptions as DoorOptions, DoorStatistics as DoorStatistics
from ._handshake import accept as accept, connect as connect
from ._memory import (
    MemoryListener as MemoryListener,
    MemoryNetwork as MemoryNetwork,
    MemoryStream as MemoryStream,
    memory_pair as memory_pair,
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
    ConnectionStatistics as ConnectionStatistics,
    Ended as Ended,
    Handler as Handler,
)
from ._tcp import DirectStream as DirectStream, TcpListener as TcpListener, TcpNetwork as TcpNetwork
from ._upgrade import Accept as Accept, Refuse as Refuse, Upgrade as Upgrade, same_origin as same_origin
from ._websocket import Connection as Connection
