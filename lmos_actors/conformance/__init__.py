"""The conformance kit: for servers and clients of LMOS, facades of Omnia, and hubs of AgentRelay."""

from lmos_actors._late import late

with late(__name__):
    from ._run import ConformOptions as ConformOptions, chosen as chosen, conform as conform
    from .card import (
        Card as Card,
        Departure as Departure,
        KitOptions as KitOptions,
        Level as Level,
        Result as Result,
        Section as Section,
        Traffic as Traffic,
        Verdict as Verdict,
        card_data as card_data,
        card_html as card_html,
        card_json as card_json,
        card_junit as card_junit,
        card_text as card_text,
        end_lines as end_lines,
        group_lines as group_lines,
    )
    from .cases import (
        all_cases as all_cases,
    )
    from .chat import (
        ChatHints as ChatHints,
        ChatOptions as ChatOptions,
        all_chat_cases as all_chat_cases,
    )
    from .clients import (
        CLIENT_CASES as CLIENT_CASES,
        ClientCase as ClientCase,
        ClientJudgingOptions as ClientJudgingOptions,
        ClientOptions as ClientOptions,
        judge_clients as judge_clients,
    )
    from .relay import (
        RelayConformOptions as RelayConformOptions,
        all_relay_cases as all_relay_cases,
    )
    from .relay_clients import (
        RELAY_CLIENT_CASES as RELAY_CLIENT_CASES,
        RelayClientOptions as RelayClientOptions,
    )
    from .session import (
        Case as Case,
        JudgingOptions as JudgingOptions,
        Requirement as Requirement,
    )
    from .target import (
        Call as Call,
        Hints as Hints,
        NewValue as NewValue,
    )
    from .wire import (
        Unreachable as Unreachable,
    )
