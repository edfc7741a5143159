"""Cases for the description and for forms for HTTP."""

from ._actions import CHAPTER as HTTP_ACTIONS
from ._description import CHAPTER as DESCRIPTION
from ._properties import CHAPTER as HTTP_PROPERTIES

__all__ = ["DESCRIPTION", "HTTP_ACTIONS", "HTTP_PROPERTIES"]
