"""All deliberately broken servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.broken_actions import BROKEN as ACTIONS
from tests.conformance.broken_connection import BROKEN as CONNECTION
from tests.conformance.broken_correlation import BROKEN as CORRELATION
from tests.conformance.broken_description import BROKEN as DESCRIPTION
from tests.conformance.broken_errors import BROKEN as ERRORS
from tests.conformance.broken_events import BROKEN as EVENTS
from tests.conformance.broken_extension import BROKEN as EXTENSION
from tests.conformance.broken_frames import BROKEN as FRAMES
from tests.conformance.broken_handshake import BROKEN as HANDSHAKE
from tests.conformance.broken_http import BROKEN as HTTP
from tests.conformance.broken_inputs import BROKEN as INPUTS
from tests.conformance.broken_letter import BROKEN as LETTER
from tests.conformance.broken_observe import BROKEN as OBSERVE
from tests.conformance.broken_ordering import BROKEN as ORDERING
from tests.conformance.broken_properties import BROKEN as PROPERTIES
from tests.conformance.broken_runs import BROKEN as RUNS
from tests.conformance.broken_spelling import BROKEN as SPELLING
from tests.conformance.broken_things import BROKEN as THINGS

if TYPE_CHECKING:
    from tests.conformance.breaking import Broken

ALL: tuple[Broken, ...] = (
    *HANDSHAKE,
    *DESCRIPTION,
    *SPELLING,
    *CORRELATION,
    *LETTER,
    *PROPERTIES,
    *ACTIONS,
    *RUNS,
    *ERRORS,
    *OBSERVE,
    *EVENTS,
    *ORDERING,
    *THINGS,
    *EXTENSION,
    *INPUTS,
    *FRAMES,
    *CONNECTION,
    *HTTP,
)
