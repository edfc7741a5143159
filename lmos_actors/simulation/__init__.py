"""A simulated world: virtual time, seeded chance, and a log of what happened in it."""

from lmos_actors._late import late

with late(__name__):
    from ._clock import VirtualClock as VirtualClock, settle as settle
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
