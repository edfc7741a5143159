"""All deliberately broken servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conformance.breaking import Broken

ALL: tuple[Broken, ...] = ()
