"""The connection to the node of a run, for worlds in which its agents are reached over a connection."""

from lmos_actors._late import late

with late(__name__):
    from ._node_client import (
        NodeClient as NodeClient,
        node_network as node_network,
        node_options as node_options,
        place_of as place_of,
    )
