"""All cases, in the order in which they are run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from ._actions import CHAPTER as ACTIONS
from ._connection import CHAPTER as CONNECTION
from ._correlation import CHAPTER as CORRELATION
from ._description import CHAPTER as DESCRIPTION
from ._errors import CHAPTER as ERRORS
from ._events import CHAPTER as EVENTS
from ._extension import CHAPTER as EXTENSION
from ._frames import CHAPTER as FRAMES
from ._framing import CHAPTER as FRAMING
from ._handshake import CHAPTER as HANDSHAKE
from ._http import CHAPTER as HTTP
from ._http_actions import CHAPTER as HTTP_ACTIONS
from ._kotlin import CHAPTER as KOTLIN
from ._letter import CHAPTER as LETTER
from ._observe import CHAPTER as OBSERVE
from ._ordering import CHAPTER as ORDERING
from ._properties import CHAPTER as PROPERTIES
from ._retries import CHAPTER as RETRIES
from ._runs import CHAPTER as RUNS
from ._spelling import CHAPTER as SPELLING
from ._streams import CHAPTER as STREAMS
from ._tells import CHAPTER as TELLS
from ._things import CHAPTER as THINGS

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Case, Chapter

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
    TELLS,
    KOTLIN,
    FRAMES,
    FRAMING,
    CONNECTION,
    HTTP,
    HTTP_ACTIONS,
)


@cache
def all_cases() -> tuple[Case, ...]:
    """Return all cases, in the order in which they are run. Their ids never change."""
    found = {case.id: case for chapter in _CHAPTERS for case in chapter.cases}
    if len(found) < sum(len(chapter.cases) for chapter in _CHAPTERS):
        raise RuntimeError("two cases have one id")
    return tuple(found.values())
