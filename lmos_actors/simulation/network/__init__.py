"""A simulated network: links that are slow, lose messages and break, and agents as nodes at their ends."""

from ._links import (
    PERFECT as PERFECT,
    Draw as Draw,
    LinkFault as LinkFault,
    LinkRules as LinkRules,
    Links as Links,
    between_sides as between_sides,
)
from ._network import (
    USER as USER,
    Delivery as Delivery,
    NetworkLink as NetworkLink,
    SimulatedNetwork as SimulatedNetwork,
)
