"""What the tests of models have in common."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no wait between attempts, but where the provider asks for it."""
    monkeypatch.setattr("lmos_actors.llm._provider.FIRST_WAIT", 0.0)
