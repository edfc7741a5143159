"""The index from modules to tests: made when somebody asks, and kept nowhere.

    python -m tests.index lmos_actors/security/_rates.py    a test that fails when this module is emptied
    python -m tests.index --lot 20 --seed 1                 of twenty modules without a test file of like name

A module of 60 lines or more has a test file of like name where `tests/ROOM`, or a folder of it on the way to
the module, has `test_SUBJECT.py` or `test_SUBJECT_more.py`. The subject may be in the singular or the plural,
and the names of the sub-packages between may stand before it: `tests/protocol/lmos/test_consumer_runs.py` is
one for `protocol/lmos/consumer/_runs.py`.

What such a file tests is its own word; so here a copy of the package is emptied: each function of the module
raises at once while a test runs, though not while modules are imported. The test files that speak most of
the module are run on that copy until a test fails, which then has to pass on a copy that is whole.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.source import PACKAGE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGE: Final = 60
"""Modules with so many lines count."""

COPIED: Final = (PACKAGE, "agents", "scenarios", "tests", "docs", "pyproject.toml", "README.md")
SECONDS: Final = 240
"""The time of the tests of one file, after which nothing is known of them."""

RAISES: Final = "if 'PYTEST_CURRENT_TEST' in __import__('os').environ: raise AssertionError('emptied')"

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def modules() -> list[str]:
    """Return the large modules of the package, without its name: `security/_rates.py`."""
    top = ROOT / PACKAGE
    files = (path for path in top.rglob("*.py") if path.name != "__init__.py")
    large = (path for path in files if path.read_bytes().count(b"\n") >= LARGE)
    return sorted(path.relative_to(top).as_posix() for path in large)


def test_files() -> list[str]:
    """Return the test files, by their paths in `tests`."""
    top = ROOT / "tests"
    return sorted(path.relative_to(top).as_posix() for path in top.rglob("test_*.py"))


def singular(name: str) -> str:
    return "_".join(word.removesuffix("s") for word in name.split("_"))


def of_like_name(module: str, tests: Iterable[str]) -> list[str]:
    """Return the test files of like name, as the head of this file defines them."""
    *folders, subject = (part.strip("_") for part in module.removesuffix(".py").split("/"))
    folders = folders or ["core"]  # where the tests of the files at the top are
    found: list[str] = []
    for test in tests:
        *places, name = test.removesuffix(".py").split("/")
        if not places or places != folders[: len(places)]:
            continue
        between = folders[len(places) :]
        names = ["_".join([*between[start:], subject]) for start in range(len(between) + 1)]
        words = f"{singular(name.removeprefix('test_'))}_"
        if any(words.startswith(f"{singular(each)}_") for each in names):
            found.append(test)
    return found


def emptied(text: str) -> str:
    """Return a module whose functions raise while a test runs; those that only declare something stay."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and not all(map(_declares, node.body)):
            first = int(_declares(node.body[0]))
            node.body[first:first] = ast.parse(RAISES).body
    return ast.unparse(tree)


def _declares(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def names_of(text: str) -> list[str]:
    """Return the public names that a module defines."""
    nodes = (node for node in ast.parse(text).body if isinstance(node, (*FUNCTIONS, ast.ClassDef)))
    return [node.name for node in nodes if not node.name.startswith("_")]


def candidates(module: str, most: int) -> list[str]:
    """Return the test files that speak most of a module, these first."""
    text = (ROOT / PACKAGE / module).read_text(encoding="utf-8")
    names = re.compile(rf"\b({'|'.join(map(re.escape, names_of(text))) or 'no name'})\b")
    *places, subject = module.removesuffix(".py").split("/")
    words = {singular(word) for word in subject.strip("_").split("_")}

    def weight(test: str) -> float:
        said = len(set(names.findall((ROOT / "tests" / test).read_text(encoding="utf-8"))))
        shared = len(words & set(singular(Path(test).stem).split("_")))
        near = [place.strip("_") for place in places[:1]] == test.split("/")[:1]
        return 2 * said + 3 * shared + 3 * near

    return sorted(test_files(), key=weight, reverse=True)[:most]


class Copy:
    """A copy of what tests need, in a folder of its own, in which a module can be emptied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, folder / name)

    def put(self, module: str, text: str) -> None:
        (self.folder / PACKAGE / module).write_text(text, encoding="utf-8")

    def failed(self, *tests: str) -> str | None:
        """Return the first test that fails, or the file that cannot be imported; None where all pass."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
        env = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ran = subprocess.run(
                [*command, *tests], cwd=self.folder, env=env, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return None
        found = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", ran.stdout, re.MULTILINE)
        return found[1] if found else None


def test_of(module: str, copy: Copy, most: int) -> str:
    """Return a test that fails when a module is emptied, and passes when it is whole."""
    text = (ROOT / PACKAGE / module).read_text(encoding="utf-8")
    for test in candidates(module, most):
        copy.put(module, emptied(text))
        failed = copy.failed(f"tests/{test}")
        copy.put(module, text)
        if failed and copy.failed(failed) is None:
            return failed
    return f"none of {most} files"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.index", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("modules", nargs="*", help="paths of modules")
    parser.add_argument("--lot", type=int, default=0, help="draw so many without a test file of like name")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the lot")
    parser.add_argument("--most", type=int, default=8, help="test files to try for each module")
    given = parser.parse_args()
    large, tests = modules(), test_files()
    without = [module for module in large if not of_like_name(module, tests)]
    print(f"{len(large) - len(without)} of {len(large)} modules have a test file of like name")
    asked = [each.removeprefix(f"{PACKAGE}/") for each in given.modules]
    asked += sorted(Random(given.seed).sample(without, given.lot))
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder)) if asked else None
        for module in asked:
            assert copy is not None
            print(f"{module:60} {test_of(module, copy, given.most)}", flush=True)


if __name__ == "__main__":
    main()
