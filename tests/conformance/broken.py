"""All deliberately broken servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.cases.connection.test_connections import BROKEN as CONNECTION
from tests.conformance.cases.connection.test_framing import BROKEN as FRAMES
from tests.conformance.cases.connection.test_handshake import BROKEN as HANDSHAKE
from tests.conformance.cases.extensions.test_input_streams import BROKEN as INPUTS
from tests.conformance.cases.extensions.test_members import BROKEN as EXTENSION
from tests.conformance.cases.http.test_description import BROKEN as DESCRIPTION
from tests.conformance.cases.http.test_properties_and_actions import BROKEN as HTTP
from tests.conformance.cases.requests.test_actions import BROKEN as ACTIONS
from tests.conformance.cases.requests.test_correlation import BROKEN as CORRELATION
from tests.conformance.cases.requests.test_errors import BROKEN as ERRORS
from tests.conformance.cases.requests.test_message_members import BROKEN as LETTER
from tests.conformance.cases.requests.test_ordering import BROKEN as ORDERING
from tests.conformance.cases.requests.test_properties import BROKEN as PROPERTIES
from tests.conformance.cases.requests.test_runs import BROKEN as RUNS
from tests.conformance.cases.requests.test_spelling import BROKEN as SPELLING
from tests.conformance.cases.subscriptions.test_events import BROKEN as EVENTS
from tests.conformance.cases.subscriptions.test_observations import BROKEN as OBSERVE
from tests.conformance.cases.subscriptions.test_several_things import BROKEN as THINGS

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
