"""The secrets of those who watch; see `watching.py`."""

from __future__ import annotations

import pytest

from tests.live.watching import NAMES


@pytest.fixture(autouse=True)
def secrets_of_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(f"LIVE_{name.upper()}", f"{name}-token")
