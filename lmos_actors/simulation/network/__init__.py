"""A simulated network: nodes with agents, and links between them that are slow, lose messages and break."""

from lmos_actors._late import late

with late(__name__):
    from ._link import (
        USER as USER,
        NodeNetwork as NodeNetwork,
    )
    from ._network import (
        Delivery as Delivery,
        SimulatedNetwork as SimulatedNetwork,
    )
    from ._peer import OnSent as OnSent
    from ._streams import LineNetwork as LineNetwork
    from ._wire import (
        Place as Place,
        WireNetwork as WireNetwork,
    )
