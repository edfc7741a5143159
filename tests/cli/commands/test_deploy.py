"""How the commands for deployments are told which one: by its file, alone or by an option. None runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DESK = """
lmos: deployment/v1
name: desk
agents:
  weather: {from: agent, use: "desk.py:Weather"}
groups:
  weather:
    agents: [weather]
"""


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return a call of a command in a folder with a deployment; it returns the exit code and the outputs."""
    (tmp_path / "desk.yaml").write_text(DESK, encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert isinstance(ended.value.code, int)
        out, errors = capsys.readouterr()
        return ended.value.code, out, errors

    return call


@pytest.mark.parametrize(
    "words", ["status", "down", "restart", "logs", "scale weather=2", "drain weather"], ids=str
)
def test_a_file_is_named_alone_or_by_an_option_and_once(words: str, call: Callable[..., Any]) -> None:
    command, *groups = words.split()
    code, out, errors = call(command, "desk.yaml", *groups)
    assert "desk.yaml does not run" in out + errors
    assert call(command, "--file", "desk.yaml", *groups) == (code, out, errors)
    assert call(command, "desk.yaml", *groups, "--file", "other.yaml")[0] == 2


def test_a_file_is_no_group(call: Callable[..., Any]) -> None:
    code, _, errors = call("scale", "desk.yaml=2")
    assert code == 2
    assert '"desk.yaml" is no group; a file is named by --file desk.yaml' in errors
