"""Housekeeping: nothing left behind, change fragments in order, the README says what the machine checks.

Code that was commented out is found by ruff (the family ERA in pyproject.toml).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("lmos_actors", "agents", "scenarios", "tests", "docs", ".ci")
ENDINGS = {".py", ".md", ".yaml", ".toml", ".json", ".erl", ".sh", ".txt", ""}
TEXTS = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix in ENDINGS and not {"__pycache__", ".mypy_cache"} & set(path.parts)
)
TEXTS += [
    ROOT / name
    for name in ("README.md", "CHANGELOG.md", "pyproject.toml", "constraints.txt", "zensical.toml")
]
LEFT_BEHIND = re.compile(rf"\b({'|'.join(('TO' + 'DO', 'FIX' + 'ME', 'X' * 3, 'HA' + 'CK'))})\b")

FRAGMENTS = sorted(path for path in (ROOT / "docs/changes").iterdir() if path.name != "README.md")
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")


def left_behind(text: str) -> list[str]:
    return LEFT_BEHIND.findall(text)


def faults(name: str, text: str) -> list[str]:
    """What keeps a file from being a change fragment (docs/changes/README.md)."""
    body = text.strip()
    wrong = {
        "the name": not re.fullmatch(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md", name),
        "more than one paragraph, or none": not body or "\n\n" in body,
        "a heading or a list": body.startswith(("#", "-", "*")),
        "no full stop": not body.endswith("."),
        "no capital letter": not body[:1].isupper() and not body.startswith("`"),
        "too many words": len(body.split()) > 120,
    }
    return [what for what, is_so in wrong.items() if is_so]


def readme_command(name: str) -> str:
    """The command that the machine takes from the README, taken as the machine does."""
    call = [sys.executable, ".ci/readme_command.py", "README.md", name]
    return subprocess.run(call, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def test_nothing_is_left_for_later() -> None:
    assert len(TEXTS) > 10
    assert {
        str(path): words for path in TEXTS if (words := left_behind(path.read_text(encoding="utf-8")))
    } == {}


def test_something_left_for_later_is_seen() -> None:
    assert left_behind("x = 1  # " + "TO" + "DO: y")
    assert not left_behind("mastodon")


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_change_fragment_is_well_formed(path: Path) -> None:
    assert faults(path.name, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("virtual-time.added.md", "Scenarios run on virtual time.", 0),
        ("12.fixed.md", "`run` ends with 2 when a file is missing.", 0),
        ("virtual_time.added.md", "Scenarios run on virtual time.", 1),
        ("virtual-time.new.md", "Scenarios run on virtual time.", 1),
        ("a.added.md", "# A\n\nScenarios run on virtual time.", 3),
        ("a.added.md", "scenarios run", 2),
        ("a.added.md", "A " * 121 + ".", 1),
    ],
)
def test_a_malformed_fragment_is_seen(name: str, text: str, count: int) -> None:
    assert len(faults(name, text)) == count


def test_the_machine_runs_the_commands_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert re.findall(r"^ *stage .* readme_command (\w+)$", script, re.MULTILINE) == ["run", "test"]


@pytest.mark.parametrize(
    ("name", "last", "wanted"),
    [
        ("run", ".venv/bin/lmos-actors run scenarios/weather.yaml", "-e ."),
        ("test", ".venv/bin/pytest -q -n auto", "-e '.[dev]'"),
    ],
)
def test_a_command_of_the_readme_sets_up_and_does_it(name: str, last: str, wanted: str) -> None:
    steps = readme_command(name).split(" && ")
    assert steps == [
        "python3.11 -m venv .venv",
        f".venv/bin/pip install -q -c constraints.txt {wanted}",
        last,
    ]


def test_an_unmarked_command_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        readme_command("unheard-of")


def test_scripts_can_be_run() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_constraints_pin_all_that_is_asked_for_and_name_no_host() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", line)] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + [
        name for extra in project["optional-dependencies"].values() for name in extra
    ]
    pinned = {plain(line.partition("==")[0]) for line in lines}
    assert [name for name in asked if plain(name) not in pinned] == []


def plain(requirement: str) -> str:
    """The name in a requirement, as package indexes compare it."""
    name = re.match(r"[\w.-]*\w", requirement)
    return re.sub(r"[-_.]+", "-", name[0].lower()) if name else ""
