"""Texts that match a regular expression, for the plain ones that data schemas have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def matching(pattern: str, random: Random) -> str | None:
    """Make a text that should match, None where the expression has what is not understood here."""
    return None
