"""Fixtures of the tests of MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mcp.using import Notes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[Notes]:
    """What one program notes."""
    made = Notes(tmp_path)
    yield made
    await made.aclose()
