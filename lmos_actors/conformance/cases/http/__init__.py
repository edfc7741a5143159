"""Cases for descriptions, and for the HTTP forms in them."""

from lmos_actors._late import late

with late(__name__):
    from ._actions import HTTP_ACTIONS as HTTP_ACTIONS
    from ._description import DESCRIPTION as DESCRIPTION
    from ._properties import HTTP_PROPERTIES as HTTP_PROPERTIES
