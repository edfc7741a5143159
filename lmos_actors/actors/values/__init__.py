"""Values that cross between agents: types compiled to checks, and secrets kept out of sight."""

from lmos_actors._late import late

with late(__name__):
    from ._hiding import (
        Secrets as Secrets,
        conceal as conceal,
        conceal_all as conceal_all,
        conceal_unchecked as conceal_unchecked,
        field_of as field_of,
    )
    from ._secrets import (
        MAPS as MAPS,
        PARTS as PARTS,
        ROWS as ROWS,
        UNREAD as UNREAD,
        UNREADABLE as UNREADABLE,
        WHOLE as WHOLE,
        Discreet as Discreet,
        Member as Member,
        Secrecy as Secrecy,
        Secret as Secret,
        hidden_fields as hidden_fields,
        is_agent_class as is_agent_class,
        record_of as record_of,
        secrecy_of as secrecy_of,
    )
    from ._values import Shape as Shape, check_property_type as check_property_type, shape_of as shape_of
