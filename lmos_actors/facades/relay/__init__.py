"""AgentRelay: a hub for agents, of this node."""

from lmos_actors.protocol.relay import (
    ExtensionStore as ExtensionStore,
    Fate as Fate,
    HubControl as HubControl,
    HubExtension as HubExtension,
    HubFrame as HubFrame,
    HubRefusal as HubRefusal,
)
from lmos_actors.protocol.relay.extensions import (
    History as History,
    HistoryOptions as HistoryOptions,
    Presence as Presence,
    Receipts as Receipts,
    Semantic as Semantic,
    Voting as Voting,
)

from ._hub import RelayHub as RelayHub, RelayStatistics as RelayStatistics
from ._options import Registration as Registration, RelayOptions as RelayOptions
from ._server import RelayServer as RelayServer
