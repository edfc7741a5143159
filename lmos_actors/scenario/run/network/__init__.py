"""The network of a file: its nodes and links, the connections of a simulated network, and their faults."""

from lmos_actors._late import late

with late(__name__):
    from ._link_faults import LinkFaults as LinkFaults
    from ._network import RunNetwork as RunNetwork
    from ._network_rules import NetworkRules as NetworkRules
    from ._node_faults import NodeFaults as NodeFaults
    from ._node_names import NodeNames as NodeNames
