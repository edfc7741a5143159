"""Mutants of the package that the suite kills, kept while files move: `python -m tests.mutants check`.

A mutant is one small wrong change: a comparison turned round, a statement left out, a number one too large.
`tests/mutants.json` holds each as the line it changes with the lines around it, wherever in the package they
stand now, and the tests that failed when it was made. After a step of the move `check` makes each again and
runs its tests: one that passes shows that a test has lost its point. A mutant whose lines are gone is counted
as such; one whose tests have new names is mended by `rename OLD NEW`.

`make COVERAGE N` finds new ones by chance. COVERAGE is a data file of coverage with a context for each test:
`pytest --cov=lmos_actors --cov-context=test`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "lmos_actors"
KEPT = Path(__file__).with_suffix(".json")
NEEDED = ("lmos_actors", "agents", "scenarios", "tests", "docs", "pyproject.toml", "README.md", ".ci")
SECONDS = 120  # for the tests of one mutant
TESTS = 5  # at most, of one mutant

SWAPS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (" is ", " is not "),
    ast.IsNot: (" is not ", " is "),
    ast.In: (" in ", " not in "),
    ast.NotIn: (" not in ", " in "),
}


@dataclass(frozen=True)
class Mutant:
    """One change: the line before and after it, between the lines that stand around it."""

    above: str
    line: str
    below: str
    changed: str
    tests: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, str, str]:
        """What has to be found in a file."""
        return self.above, self.line, self.below


@dataclass(frozen=True)
class Place:
    """Where a mutant goes."""

    path: Path
    number: int


# --- finding and making


def lines_of(path: Path) -> list[str]:
    """The lines of a file."""
    return path.read_text().splitlines()


def around(lines: list[str], number: int) -> tuple[str, str, str]:
    """A line and its neighbours that are not blank, without their indentation."""
    above = next((lines[n].strip() for n in range(number - 1, -1, -1) if lines[n].strip()), "")
    below = next((lines[n].strip() for n in range(number + 1, len(lines)) if lines[n].strip()), "")
    return above, lines[number].strip(), below


def places() -> dict[tuple[str, str, str], list[Place]]:
    """Each line of the package by what stands around it."""
    found: dict[tuple[str, str, str], list[Place]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = lines_of(path)
        for number in range(len(lines)):
            found[around(lines, number)].append(Place(path, number))
    return found


def changes(path: Path) -> Iterator[tuple[int, str]]:
    """Each change of one line of functions in a file: its number from 0, and what it becomes."""
    lines = lines_of(path)
    tree = ast.parse("\n".join(lines))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in {inner for function in functions for part in function.body for inner in ast.walk(part)}:
        if isinstance(node, ast.expr | ast.stmt) and node.lineno == node.end_lineno:
            line = lines[node.lineno - 1]
            before, text, after = line[: node.col_offset], line[node.col_offset : node.end_col_offset], ""
            after = line[node.end_col_offset :]
            if line.isascii():  # else the offsets are of bytes
                yield from ((node.lineno - 1, f"{before}{new}{after}") for new in changed(node, text))


def changed(node: ast.AST, text: str) -> Iterator[str]:
    """What may stand in the place of a piece of code."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            old, new = SWAPS[type(op)]
            if text.count(old) == 1:
                yield text.replace(old, new)
        case ast.BoolOp(op=ast.And(), values=[_, _]) if text.count(" and ") == 1:
            yield text.replace(" and ", " or ")
        case ast.BoolOp(op=ast.Or(), values=[_, _]) if text.count(" or ") == 1:
            yield text.replace(" or ", " and ")
        case ast.UnaryOp(op=ast.Not()):
            yield f"bool({text.removeprefix('not ')})"
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.AugAssign(op=ast.Add()) if " += " in text:
            yield text.replace(" += ", " -= ")
        case ast.AugAssign(op=ast.Sub()) if " -= " in text:
            yield text.replace(" -= ", " += ")
        case ast.Constant(value=bool()):
            yield "False" if node.value else "True"
        case ast.Constant(value=int()):
            yield f"{node.value + 1}"
        case ast.Return(value=ast.expr()) if text != "return None":
            yield "return None"


# --- running


class Copies:
    """Copies of the tree to break, one for each worker."""

    def __init__(self, scratch: Path, number: int) -> None:
        self.free: SimpleQueue[Path] = SimpleQueue()
        for n in range(number):
            copy = scratch / str(n)
            for name in NEEDED:
                there = ROOT / name
                if there.is_dir():
                    shutil.copytree(there, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    copy.mkdir(exist_ok=True)
                    shutil.copy(there, copy / name)
            self.free.put(copy)

    def killed(self, place: Place, line: str, tests: tuple[str, ...]) -> bool:
        """Return whether the tests fail with the line changed."""
        copy = self.free.get()
        path = copy / place.path.relative_to(ROOT)
        right = path.read_text()
        lines = right.splitlines()
        indent = lines[place.number][: -len(lines[place.number].lstrip())]
        lines[place.number] = indent + line.strip()
        try:
            path.write_text("\n".join(lines) + "\n")
            return self.failed(copy, tests)
        finally:
            path.write_text(right)
            self.free.put(copy)

    @staticmethod
    def failed(copy: Path, tests: tuple[str, ...]) -> bool:
        """Run tests in a copy; return whether one failed. Raise RuntimeError where none was found."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            *tests,
        ]
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command,
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True
        if done.returncode in (4, 5) and "lmos_actors" not in done.stdout + done.stderr:
            raise RuntimeError(f"no such test among {tests}:\n{done.stdout[-500:]}{done.stderr[-500:]}")
        return done.returncode != 0


# --- keeping


def kept() -> list[Mutant]:
    """The mutants that are kept."""
    if not KEPT.exists():
        return []
    return [Mutant(**data | {"tests": tuple(data["tests"])}) for data in json.loads(KEPT.read_text())]


def keep(mutants: list[Mutant]) -> None:
    """Write the mutants that are kept."""
    KEPT.write_text(json.dumps([asdict(mutant) for mutant in mutants], indent=1) + "\n")


def check(workers: int) -> int:
    """Make each mutant that is kept and run its tests; print what survives and what is gone."""
    where = places()
    counts: Counter[str] = Counter()

    def fate(mutant: Mutant) -> str:
        found = where.get(mutant.lines, [])
        if len(found) != 1:
            return "gone" if not found else "ambiguous"
        try:
            return "killed" if copies.killed(found[0], mutant.changed, mutant.tests) else "survives"
        except RuntimeError as exc:
            print(exc)
            return "without a test"

    with TemporaryDirectory() as scratch, ThreadPoolExecutor(workers) as pool:
        copies = Copies(Path(scratch), workers)
        mutants = kept()
        for mutant, what in zip(mutants, pool.map(fate, mutants), strict=True):
            counts[what] += 1
            if what != "killed":
                print(f"{what}: {mutant.line!r} -> {mutant.changed!r} {' '.join(mutant.tests)}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(counts["survives"] + counts["without a test"] + counts["ambiguous"] > 0)


def make(coverage: Path, wanted: int, seed: int, workers: int) -> int:
    """Find mutants that tests kill, spread over the package, and keep them beside those there are."""
    from coverage import CoverageData

    data = CoverageData(str(coverage))
    data.read()
    sizes: Counter[str] = Counter()  # lines that each test runs: one that runs few says most, soonest
    contexts: dict[str, dict[int, list[str]]] = {}
    for name in data.measured_files():
        by_line = data.contexts_by_lineno(name)
        contexts[str(Path(name))] = by_line
        for tests in by_line.values():
            sizes.update(tests)
    chance = random.Random(seed)
    where, mutants = places(), kept()
    known = {mutant.lines for mutant in mutants}
    choices = [(path, *change) for path in sorted(PACKAGE.rglob("*.py")) for change in changes(path)]
    chance.shuffle(choices)
    candidates: list[tuple[Place, Mutant]] = []
    in_file: Counter[Path] = Counter()
    for path, number, line in choices:
        tests = [t for t in contexts.get(str(path), {}).get(number + 1, []) if t]
        lines = around(lines_of(path), number)
        if not tests or in_file[path] >= 3 or lines in known or len(where[lines]) != 1:
            continue
        in_file[path] += 1
        known.add(lines)
        chosen = sorted({t.partition("|")[0] for t in sorted(tests, key=sizes.__getitem__)[:TESTS]})
        candidates.append((Place(path, number), Mutant(*lines, changed=line.strip(), tests=tuple(chosen))))
    print(f"{len(candidates)} candidates", flush=True)
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(workers) as pool:
        copies = Copies(Path(scratch), workers)
        for first in range(0, len(candidates), workers * 4):
            some = candidates[first : first + workers * 4]
            ends = pool.map(lambda c: copies.killed(c[0], c[1].changed, c[1].tests), some)
            for (place, mutant), killed in zip(some, ends, strict=True):
                if killed:
                    mutants.append(mutant)
                else:
                    print(
                        f"survives: {place.path.relative_to(ROOT)}:{place.number + 1} {mutant.changed}",
                        flush=True,
                    )
            keep(mutants)
            if len(mutants) >= wanted:
                break
    print(f"{len(mutants)} are kept")
    return 0


def main(arguments: list[str]) -> int:
    """Check, make or rename."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check")
    making = verbs.add_parser("make")
    making.add_argument("coverage", type=Path)
    making.add_argument("wanted", type=int)
    making.add_argument("--seed", type=int, default=1)
    renaming = verbs.add_parser("rename")
    renaming.add_argument("old")
    renaming.add_argument("new")
    options = parser.parse_args(arguments)
    if options.verb == "make":
        return make(options.coverage, options.wanted, options.seed, options.workers)
    if options.verb == "rename":
        KEPT.write_text(KEPT.read_text().replace(options.old, options.new))
        return 0
    return check(options.workers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
