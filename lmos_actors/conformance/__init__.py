"""The conformance kit: judges LMOS servers and clients, whoever wrote them."""

from ._case import Case as Case
from ._cases import all_cases as all_cases
from ._hints import Call as Call, Hints as Hints, NewValue as NewValue
from ._http import Unreachable as Unreachable
from ._run import ConformOptions as ConformOptions, conform as conform
from ._verdicts import (
    Card as Card,
    Departure as Departure,
    Level as Level,
    Result as Result,
    Section as Section,
    Traffic as Traffic,
    Verdict as Verdict,
)
