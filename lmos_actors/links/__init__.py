"""The rules of links between two nodes: whether a message from one arrives at the other, and when."""

from lmos_actors._late import late

with late(__name__):
    from ._links import (
        LONGEST as LONGEST,
        PERFECT as PERFECT,
        SEGMENT as SEGMENT,
        Draw as Draw,
        Line as Line,
        LinkFault as LinkFault,
        LinkRules as LinkRules,
        Links as Links,
        between_sides as between_sides,
        corrupted as corrupted,
    )
