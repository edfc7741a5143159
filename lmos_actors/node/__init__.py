"""A node: its options, the stages of its life, its connections, its services, and discovery."""

from lmos_actors._late import late

with late(__name__):
    from ._door import open_door as open_door
    from ._lifecycle import NodeStages as NodeStages, open_stages as open_stages
    from ._network_views import ROWS as ROWS
    from ._node import Node as Node
    from ._options import (
        NodeLimits as NodeLimits,
        RuntimeOptions as RuntimeOptions,
        argument as argument,
        encode_headers as encode_headers,
        one_of as one_of,
    )
    from ._service import (
        NodeService as NodeService,
        OwnAgents as OwnAgents,
        ServiceHome as ServiceHome,
        View as View,
    )
    from ._thread import NodeThread as NodeThread, open_in_thread as open_in_thread
