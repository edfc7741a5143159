"""The report card: levels, verdicts, deviations, and the formats in which it is written."""

from lmos_actors._late import late

with late(__name__):
    from ._deviations import (
        DEVIATIONS as DEVIATIONS,
        ROWS as ROWS,
        Deviation as Deviation,
        agent as agent,
        binding as binding,
        discovery as discovery,
        extension as extension,
        facade as facade,
        http as http,
        kotlin as kotlin,
        lmos as lmos,
        omnia as omnia,
        relay as relay,
        relay_extension as relay_extension,
        relay_page as relay_page,
        relays as relays,
        rfc6455 as rfc6455,
        rfc8259 as rfc8259,
        td as td,
        weigh as weigh,
    )
    from ._html import card_html as card_html
    from ._json import card_data as card_data, card_json as card_json
    from ._junit import card_junit as card_junit
    from ._options import KitOptions as KitOptions
    from ._text import (
        card_text as card_text,
        case_lines as case_lines,
        counted as counted,
        cut as cut,
        end_lines as end_lines,
        group_lines as group_lines,
    )
    from ._verdicts import (
        CHAT_LEVELS as CHAT_LEVELS,
        LMOS_LEVELS as LMOS_LEVELS,
        RELAY_LEVELS as RELAY_LEVELS,
        Card as Card,
        Departure as Departure,
        Kind as Kind,
        Level as Level,
        Result as Result,
        Section as Section,
        Traffic as Traffic,
        Verdict as Verdict,
    )
