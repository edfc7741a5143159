"""Wings that may be away: an option of a node that needs one says so."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lmos_actors.node import argument

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def wing(option: str, name: str) -> Generator[None]:
    """Import modules of a wing in a block. Raises ImportError that names the wing where it is away."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("lmos_actors."):
            raise
        text = f"{argument(option)} needs the wing {name} ({missing.name}), which is not installed"
        raise ImportError(text, name=missing.name) from None
