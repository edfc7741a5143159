"""The command in a Python that is too old, in which nothing is installed: one sentence, and no traceback."""

from __future__ import annotations

import ast
import runpy
import sys

import pytest

from tests.source import PACKAGE, ROOT


def test_a_python_that_is_too_old_is_told_which_are_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    monkeypatch.setitem(sys.modules, "lmos_actors.cli", None)  # it would not get that far
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("lmos_actors", run_name="__main__")
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.err == "lmos-actors: needs Python 3.11 to 3.15, and this is Python 3.10.13\n"
    assert said.out == ""


@pytest.mark.parametrize("name", ["__init__", "_late", "_versions", "_wings", "__main__"])
def test_what_comes_before_that_can_be_read_by_an_old_python(name: str) -> None:
    text = (ROOT / f"lmos_actors/{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    named = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    named += [each.name for node in tree.body if isinstance(node, ast.Import) for each in node.names]
    ours = {"_wings", f"{PACKAGE}._late", f"{PACKAGE}._versions"}
    assert {*named} <= {"__future__", "_thread", "builtins", "sys", *ours}
