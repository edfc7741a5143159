"""All cases, in the order in which they are run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from ._cases_actions import CHAPTER as ACTIONS
from ._cases_correlation import CHAPTER as CORRELATION
from ._cases_description import CHAPTER as DESCRIPTION
from ._cases_errors import CHAPTER as ERRORS
from ._cases_handshake import CHAPTER as HANDSHAKE
from ._cases_kotlin import CHAPTER as KOTLIN
from ._cases_letter import CHAPTER as LETTER
from ._cases_properties import CHAPTER as PROPERTIES
from ._cases_runs import CHAPTER as RUNS
from ._cases_spelling import CHAPTER as SPELLING

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
    KOTLIN,
)


@cache
def all_cases() -> tuple[Case, ...]:
    """Give all cases, in the order in which they are run. Their ids never change."""
    found = {case.id: case for chapter in _CHAPTERS for case in chapter.cases}
    if len(found) < sum(len(chapter.cases) for chapter in _CHAPTERS):
        raise RuntimeError("two cases have one id")
    return tuple(found.values())
