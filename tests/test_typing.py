"""What users write is checked as users would: mypy and pyright, strict, on the samples of tests/typing.

In `accepted*.py` neither finds an error. In `rejected*.py` both find one on each line that ends in `# E`, and
on no other line. Each checker runs once over all samples.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = ROOT / "tests/typing"
SAMPLES = sorted(FOLDER.glob("*.py"))
MYPY_LINE = re.compile(r"^(?P<file>.+?\.py):(?P<line>\d+)(?::\d+)?: error: (?P<message>.*)$")

MORE = """
[[tool.mypy.overrides]]
module = ["anthropic.*", "coredis.*", "openai.*"]
follow_imports = "skip"

[[tool.mypy.overrides]]
module = "lmos_actors.*"
ignore_errors = true
"""
"""The package itself is checked where mypy is called with nothing else to check.

And no sample speaks of a type of these libraries, which are five of the seven thousand files it would read.
"""

Errors = dict[tuple[str, int], str]  # (file name, line) -> message

pytestmark = pytest.mark.timeout(240)  # a cold cache: the checkers read trio and the package first


def mypy(folder: Path) -> Errors:
    """What mypy says, strict as pyproject.toml has it; without a cache, as another mypy may run beside it."""
    settings = folder / "pyproject.toml"
    settings.write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8") + MORE, encoding="utf-8")
    options = ["--no-error-summary", "--no-pretty", f"--cache-dir={os.devnull}", f"--config-file={settings}"]
    call = [sys.executable, "-m", "mypy", *options, *map(str, SAMPLES)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [match for line in done.stdout.splitlines() if (match := MYPY_LINE.match(line))]
    assert found or done.returncode == 0, done.stdout
    return {(Path(match["file"]).name, int(match["line"])): match["message"] for match in found}


def pyright(_: Path) -> Errors:
    """What pyright says, strict as pyproject.toml has it."""
    call = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        *map(str, SAMPLES),
    ]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(SAMPLES)
    errors = [item for item in report["generalDiagnostics"] if item["severity"] == "error"]
    return {(Path(item["file"]).name, item["range"]["start"]["line"] + 1): item["message"] for item in errors}


def marked(path: Path) -> list[int]:
    """The lines on which an error is wanted."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# E")]


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_a_checker_refuses_the_marked_lines_and_no_other(
    checker: Callable[[Path], Errors], tmp_path: Path
) -> None:
    errors = checker(tmp_path)
    wanted = {(path.name, line) for path in SAMPLES for line in marked(path)}
    assert {place: errors[place] for place in errors.keys() - wanted} == {}
    assert wanted - errors.keys() == set()


def test_samples_are_named_after_what_they_show() -> None:
    assert len(SAMPLES) > 10
    for path in SAMPLES:
        assert path.name.startswith(("accepted", "rejected"))
        assert bool(marked(path)) == path.name.startswith("rejected"), path.name
