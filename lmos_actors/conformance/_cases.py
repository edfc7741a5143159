"""All cases, in the order in which they are run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from ._cases_actions import CHAPTER as ACTIONS
from ._cases_connection import CHAPTER as CONNECTION
from ._cases_correlation import CHAPTER as CORRELATION
from ._cases_description import CHAPTER as DESCRIPTION
from ._cases_errors import CHAPTER as ERRORS
from ._cases_events import CHAPTER as EVENTS
from ._cases_extension import CHAPTER as EXTENSION
from ._cases_frames import CHAPTER as FRAMES
from ._cases_framing import CHAPTER as FRAMING
from ._cases_handshake import CHAPTER as HANDSHAKE
from ._cases_http import CHAPTER as HTTP
from ._cases_http_actions import CHAPTER as HTTP_ACTIONS
from ._cases_kotlin import CHAPTER as KOTLIN
from ._cases_letter import CHAPTER as LETTER
from ._cases_observe import CHAPTER as OBSERVE
from ._cases_ordering import CHAPTER as ORDERING
from ._cases_properties import CHAPTER as PROPERTIES
from ._cases_retries import CHAPTER as RETRIES
from ._cases_runs import CHAPTER as RUNS
from ._cases_spelling import CHAPTER as SPELLING
from ._cases_streams import CHAPTER as STREAMS
from ._cases_things import CHAPTER as THINGS

if TYPE_CHECKING:
    from ._case import Case, Chapter

_CHAPTERS: Final[tuple[Chapter, ...]] = (
    HANDSHAKE,
    DESCRIPTION,
    SPELLING,
    CORRELATION,
    LETTER,
    PROPERTIES,
    ACTIONS,
    RUNS,
    ERRORS,
    OBSERVE,
    EVENTS,
    ORDERING,
    THINGS,
    EXTENSION,
    RETRIES,
    STREAMS,
    KOTLIN,
    FRAMES,
    FRAMING,
    CONNECTION,
    HTTP,
    HTTP_ACTIONS,
)


@cache
def all_cases() -> tuple[Case, ...]:
    """Give all cases, in the order in which they are run. Their ids never change."""
    found = {case.id: case for chapter in _CHAPTERS for case in chapter.cases}
    if len(found) < sum(len(chapter.cases) for chapter in _CHAPTERS):
        raise RuntimeError("two cases have one id")
    return tuple(found.values())
