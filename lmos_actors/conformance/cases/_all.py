"""All cases, in the order in which they are run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.session import cases_of

from . import connection, extensions, http, requests, subscriptions

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Case, CaseContext, Chapter

_CHAPTERS: Final[tuple[Chapter[CaseContext], ...]] = (
    connection.HANDSHAKE,
    http.DESCRIPTION,
    requests.SPELLING,
    requests.CORRELATION,
    requests.MESSAGE_MEMBERS,
    requests.PROPERTIES,
    requests.ACTIONS,
    requests.RUNS,
    requests.ERRORS,
    subscriptions.OBSERVATIONS,
    subscriptions.EVENTS,
    requests.ORDERING,
    subscriptions.SEVERAL_THINGS,
    extensions.MEMBERS,
    extensions.RETRIES,
    extensions.KEYS,
    extensions.STREAMS,
    extensions.INPUT_STREAMS,
    extensions.BINARY_ANSWERS,
    extensions.ONE_WAY_MESSAGES,
    extensions.KOTLIN,
    connection.MALFORMED_MESSAGES,
    connection.FRAMING,
    connection.CONNECTIONS,
    http.HTTP_PROPERTIES,
    http.HTTP_ACTIONS,
)


@cache
def all_cases() -> tuple[Case[CaseContext], ...]:
    """Return all cases, in the order in which they are run. Their ids never change."""
    return cases_of(_CHAPTERS)
