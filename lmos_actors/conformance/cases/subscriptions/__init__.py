"""Cases for events, observations, and several things on one socket."""

from lmos_actors._late import late

with late(__name__):
    from ._events import EVENTS as EVENTS
    from ._observations import OBSERVATIONS as OBSERVATIONS
    from ._several_things import SEVERAL_THINGS as SEVERAL_THINGS
