"""Cases for events, observations, and several things on one socket."""

from ._events import CHAPTER as EVENTS
from ._observations import CHAPTER as OBSERVATIONS
from ._several_things import CHAPTER as SEVERAL_THINGS

__all__ = ["EVENTS", "OBSERVATIONS", "SEVERAL_THINGS"]
