"""`tests/commands.py`: a call that is ended early spoils none of those after it."""

from __future__ import annotations

import select
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.commands import called, script_started

if TYPE_CHECKING:
    from pathlib import Path


def test_a_call_that_is_interrupted_does_not_answer_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(select, "select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            called(("no-such-command",), tmp_path, timeout=50)
    assert called(("--version",), tmp_path, timeout=50).returncode == 0


def test_a_call_that_takes_too_long_does_not_answer_the_next(tmp_path: Path) -> None:
    waiting = script_started("import signal\nsignal.pause()", tmp_path)
    with pytest.raises(subprocess.TimeoutExpired), waiting:
        waiting.communicate(timeout=0)
    assert called(("--version",), tmp_path, timeout=50).returncode == 0
