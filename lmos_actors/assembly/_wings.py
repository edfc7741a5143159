"""Wings that may be away: an option of a node that needs one says so."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lmos_actors._wings import away
from lmos_actors.node import argument

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def wing(option: str) -> Generator[None]:
    """Import modules of a wing in a block. Raise ImportError that names the wing where it is away."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (error := away(missing, argument(option))) is None:
            raise
        raise error from None
