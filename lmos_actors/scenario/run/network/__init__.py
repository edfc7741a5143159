"""The network of a file: its nodes and links, and the connections of a simulated one."""

from ._network import RunNetwork as RunNetwork
from ._network_rules import NetworkRules as NetworkRules
from ._node_names import NodeNames as NodeNames
