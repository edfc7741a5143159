"""AgentRelay: a hub for agents, of this node."""

from ._hub import RelayHub as RelayHub, RelayStatistics as RelayStatistics
from ._options import Registration as Registration, RelayOptions as RelayOptions
from ._server import RelayServer as RelayServer
