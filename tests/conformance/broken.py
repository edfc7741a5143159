"""All deliberately broken servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.broken_actions import BROKEN as ACTIONS
from tests.conformance.broken_correlation import BROKEN as CORRELATION
from tests.conformance.broken_errors import BROKEN as ERRORS
from tests.conformance.broken_letter import BROKEN as LETTER
from tests.conformance.broken_properties import BROKEN as PROPERTIES
from tests.conformance.broken_runs import BROKEN as RUNS
from tests.conformance.broken_spelling import BROKEN as SPELLING

if TYPE_CHECKING:
    from tests.conformance.breaking import Broken

ALL: tuple[Broken, ...] = (
    *SPELLING,
    *CORRELATION,
    *LETTER,
    *PROPERTIES,
    *ACTIONS,
    *RUNS,
    *ERRORS,
)
