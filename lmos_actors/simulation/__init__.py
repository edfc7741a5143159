"""A simulated world: virtual time, seeded chance, links with faults, and a log of what happened in it."""

from ._clock import VirtualClock as VirtualClock, settle as settle
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
from ._surroundings import surroundings as surroundings
from ._trace import (
    SCHEMA as SCHEMA,
    Difference as Difference,
    TraceLog as TraceLog,
    first_difference as first_difference,
)
from ._world import (
    DeadlockWatch as DeadlockWatch,
    forbidden_to_agents as forbidden_to_agents,
    seeded_order as seeded_order,
    simulate as simulate,
)
