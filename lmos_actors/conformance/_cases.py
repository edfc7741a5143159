"""All cases, in the order in which they are run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from ._cases_handshake import CHAPTER as HANDSHAKE

if TYPE_CHECKING:
    from ._case import Case, Chapter

_CHAPTERS: Final[tuple[Chapter, ...]] = (HANDSHAKE,)


@cache
def all_cases() -> tuple[Case, ...]:
    """Give all cases, in the order in which they are run. Their ids never change."""
    found = {case.id: case for chapter in _CHAPTERS for case in chapter.cases}
    if len(found) < sum(len(chapter.cases) for chapter in _CHAPTERS):
        raise RuntimeError("two cases have one id")
    return tuple(found.values())
