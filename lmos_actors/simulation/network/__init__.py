"""A simulated network: links that are slow, lose messages and break, and agents as nodes at their ends."""

from ._link import (
    USER as USER,
    NetworkLink as NetworkLink,
    NodeNetwork as NodeNetwork,
)
from ._links import (
    PERFECT as PERFECT,
    Draw as Draw,
    LinkFault as LinkFault,
    LinkRules as LinkRules,
    Links as Links,
    between_sides as between_sides,
)
from ._network import (
    Delivery as Delivery,
    SimulatedNetwork as SimulatedNetwork,
)
from ._streams import (
    LONGEST as LONGEST,
    SEGMENT as SEGMENT,
    WINDOW as WINDOW,
    LineNetwork as LineNetwork,
    corrupted as corrupted,
)
from ._wire import (
    Place as Place,
    WireNetwork as WireNetwork,
)
