"""This checkout against another commit: `python -m tests.benchmarks.against COMMIT [CASE...] [--rounds N]`.

Both run in fresh processes that take turns. What counts is processor time, that of child processes included,
as it depends least on what else the machine does; what a run with next to no work takes is subtracted, so
that neither imports nor the start of a server are in it. A ratio above 1 says that this checkout needs less.
Cases that measure memory are compared by their own figure.

Both versions run the same programs, those of this checkout: its tests take the place of the other's, else a
faster program would pass for a faster package. Programs use public names, so they run there unless they need
what that version does not have yet, which is said. The calls for each unit stand beside the ratio.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.benchmarks.cases import CASES, Case

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parents[2]


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check a commit out beside this one, with the tests of this one, for as long as it is needed."""
    with TemporaryDirectory() as scratch:
        there = Path(scratch, "checkout")
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(there), commit], check=True)
        try:
            shutil.rmtree(there / "tests")
            shutil.copytree(HERE / "tests", there / "tests", ignore=shutil.ignore_patterns("__pycache__"))
            yield there
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], check=True)


def output(root: Path, *arguments: str) -> tuple[str, float]:
    """Run Python in a checkout; return what it printed, and its processor time and that of its children."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each run compiles all sources anew
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # crash reports, where agents crash on purpose
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        printed = stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return printed, used.ru_utime + used.ru_stime


def measure(root: Path, case: Case, n: int) -> tuple[float, float]:
    """Run a case once; return its own figure and its processor time."""
    printed, seconds = output(root, "-m", "tests.benchmarks.one", "ours", case.name, str(n))
    return float(printed), seconds


def calls(root: Path, case: Case) -> str:
    """Return the calls for each unit of a case."""
    printed, _ = output(root, "-m", "tests.benchmarks.one", "calls", case.name, str(case.n))
    return f"{float(printed):,.1f}"


def ratios(case: Case, before: Path, rounds: int, n: int) -> Iterator[float]:
    """Compare a case round by round; the first round warms up and does not count."""
    by_figure = case.less_is_better or case.unit.strip() not in ("", "/s")
    idle = {root: min(measure(root, case, case.tiny)[1] for _ in range(3)) for root in (before, HERE)}
    for number in range(-1, rounds):
        found = {}
        for root in (before, HERE) if number % 2 else (HERE, before):
            figure, seconds = measure(root, case, n)
            found[root] = figure if by_figure else max(seconds - idle[root], 1e-3)
        if number < 0:
            continue
        smallest = 1e-9  # a figure may be 0 on both sides, such as passes of the loop of an idle node
        ratio = max(found[before], smallest) / max(found[HERE], smallest)
        yield ratio if case.less_is_better or not by_figure else 1 / ratio


def main(arguments: list[str]) -> int:
    """Compare the cases that are named, or all; exit code 1 when one needs more than 1/0.95 of before."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.against", description=__doc__)
    parser.add_argument("commit", metavar="COMMIT", help="the version before")
    parser.add_argument("cases", metavar="CASE", nargs="*", help="cases of python -m tests.benchmarks")
    parser.add_argument("--rounds", type=int, default=11, help="rounds that count (default 11)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the work of each round")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.cases if name not in CASES]
    if unknown or options.rounds < 1:
        parser.error(f"no such case: {', '.join(unknown)}" if unknown else "--rounds needs at least 1")
    medians: list[float] = []
    with checkout(options.commit) as before:
        for name in options.cases or CASES:
            case = CASES[name]
            try:
                measure(before, case, case.tiny)
            except subprocess.CalledProcessError:
                print(f"{name:<32} does not run on {options.commit}")
                continue
            counted = f"   calls {calls(before, case)} to {calls(HERE, case)}" if case.unit == "/s" else ""
            found = list(ratios(case, before, options.rounds, max(1, int(case.n * options.scale))))
            medians.append(median(found))
            between = f"{min(found):.2f} to {max(found):.2f}"
            print(f"{name:<32}{medians[-1]:>7.2f}   {between}{counted}", flush=True)
    if medians:
        print(f"{'geometric mean':<32}{geometric_mean(medians):>7.2f}")
    return int(any(ratio < 0.95 for ratio in medians))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
