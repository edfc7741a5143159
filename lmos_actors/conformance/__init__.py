"""The conformance kit: judges LMOS servers and clients, whoever wrote them."""

from ._card_html import card_html as card_html
from ._card_json import card_data as card_data, card_json as card_json
from ._card_junit import card_junit as card_junit
from ._card_text import (
    card_text as card_text,
    end_lines as end_lines,
    group_lines as group_lines,
)
from ._case import Case as Case
from ._cases import all_cases as all_cases
from ._client_cases import CLIENT_CASES as CLIENT_CASES, ClientCase as ClientCase
from ._hints import Call as Call, Hints as Hints, NewValue as NewValue
from ._http import Unreachable as Unreachable
from ._judging import judge_clients as judge_clients
from ._run import ConformOptions as ConformOptions, chosen as chosen, conform as conform
from ._verdicts import (
    Card as Card,
    Departure as Departure,
    Level as Level,
    Result as Result,
    Section as Section,
    Traffic as Traffic,
    Verdict as Verdict,
)
