"""The judged thing: where it is, its description, and the affordances that cases may use."""

from lmos_actors._late import late

with late(__name__):
    from ._hints import Call as Call, Hints as Hints, NewValue as NewValue
    from ._lookup import (
        ACCEPT as ACCEPT,
        WELL_KNOWN as WELL_KNOWN,
        AccessOptions as AccessOptions,
        HeadersFor as HeadersFor,
        is_url as is_url,
        next_of as next_of,
        no_headers as no_headers,
        on_web as on_web,
    )
    from ._roles import NotOffered as NotOffered, NotRun as NotRun, Roles as Roles
    from ._search import find_target as find_target
    from ._target import HttpForm as HttpForm, Target as Target
    from ._things import Thing as Thing, readable_part as readable_part, sockets_of as sockets_of
