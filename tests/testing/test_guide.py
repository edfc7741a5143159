"""The tests in the guide are tests: pytest runs them, as it would for a reader, on several seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_documents import blocks
from tests.matrix import few_or_all
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = ROOT / "docs/guides/test-your-agents.md"
SETTINGS = "[pytest]\ntrio_mode = true\nfilterwarnings = error\n"


@pytest.mark.slow
def test_the_tests_of_the_guide_pass(tmp_path: Path) -> None:
    files: dict[str, str] = {"pytest.ini": SETTINGS}
    for block in blocks(GUIDE.read_text(encoding="utf-8")):
        if block.title:
            files[block.title] = files.get(block.title, "") + "\n\n" + block.body
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    tests = files["test_shop.py"].count("def test_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LMOS_"))}
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    for seeds in few_or_all(("2",), ("1", "2")):
        done = subprocess.run(
            [*call, "--lmos-seeds", seeds],
            cwd=tmp_path,
            env={**plain, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        passed = int(done.stdout.rpartition(" passed")[0].rpartition("\n")[2])
        plain_tests = files["test_shop.py"].count("\ndef test_")
        assert passed == plain_tests + int(seeds) * (tests - plain_tests)
