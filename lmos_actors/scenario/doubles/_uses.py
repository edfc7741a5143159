"""Uses of rules and recordings, which are given back if an answer does not complete."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

USES: Final[ContextVar[list[Callable[[], None]] | None]] = ContextVar("lmos_actors_uses", default=None)
"""The functions that undo the uses of this request, where somebody collects them."""


def note_use(give_back: Callable[[], None]) -> None:
    """Note that the current request has used a rule or a recording; `give_back` undoes the use."""
    uses = USES.get()
    if uses is not None:
        uses.append(give_back)
