"""Cases for requests and their answers."""

from lmos_actors._late import late

with late(__name__):
    from ._actions import ACTIONS as ACTIONS
    from ._correlation import CORRELATION as CORRELATION
    from ._errors import ERRORS as ERRORS
    from ._message_members import MESSAGE_MEMBERS as MESSAGE_MEMBERS
    from ._ordering import ORDERING as ORDERING
    from ._properties import PROPERTIES as PROPERTIES
    from ._runs import RUNS as RUNS
    from ._spelling import SPELLING as SPELLING
