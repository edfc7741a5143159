"""Cases for requests and their answers."""

from ._actions import CHAPTER as ACTIONS
from ._correlation import CHAPTER as CORRELATION
from ._errors import CHAPTER as ERRORS
from ._message_members import CHAPTER as MESSAGE_MEMBERS
from ._ordering import CHAPTER as ORDERING
from ._properties import CHAPTER as PROPERTIES
from ._runs import CHAPTER as RUNS
from ._spelling import CHAPTER as SPELLING

__all__ = [
    "ACTIONS",
    "CORRELATION",
    "ERRORS",
    "MESSAGE_MEMBERS",
    "ORDERING",
    "PROPERTIES",
    "RUNS",
    "SPELLING",
]
