"""Cases for the extensions of lmos_actors, and for the habits of kotlin-wot's clients."""

from ._kotlin import CHAPTER as KOTLIN
from ._members import CHAPTER as MEMBERS
from ._one_way_messages import CHAPTER as ONE_WAY_MESSAGES
from ._retries import CHAPTER as RETRIES
from ._streams import CHAPTER as STREAMS

__all__ = ["KOTLIN", "MEMBERS", "ONE_WAY_MESSAGES", "RETRIES", "STREAMS"]
