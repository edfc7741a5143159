"""python -m tests.benchmarks [CASE...] [--rounds N] [--json]: measure, against bare limits, in one run.

Each figure is the median of rounds in fresh processes; ours and the limit take turns, in an order that
rotates, after a round that is thrown away. Absolute figures vary by a tenth and more from run to run and
from machine to machine: judge by the ratios. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import trio

from tests.benchmarks.cases import CASES, Case

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """The medians of one case."""

    case: Case
    limit: float | None
    ours: float

    @property
    def ratio(self) -> float | None:
        """Ours as a part of the limit."""
        return None if self.limit is None else self.ours / self.limit

    @property
    def met(self) -> bool:
        """Whether the target has been reached."""
        return self.case.met(self.limit, self.ours)


def measure(case: Case, side: str, n: int) -> float:
    """Measure one side once, in a fresh process."""
    command = [sys.executable, "-m", "tests.benchmarks.one", side, case.name, str(n)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def run(case: Case, rounds: int, n: int) -> Result:
    """Measure both sides, interleaved; the first round warms up and does not count."""
    sides = ["limit", "ours"] if case.limit is not None else ["ours"]
    figures: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(-1, rounds):
        turn = number % len(sides)
        for side in sides[turn:] + sides[:turn]:
            value = measure(case, side, n)
            if number >= 0:
                figures[side].append(value)
    return Result(case, median(figures["limit"]) if case.limit else None, median(figures["ours"]))


def row(result: Result) -> str:
    """One line of the table."""
    case, ratio = result.case, result.ratio
    limit = "" if result.limit is None else f"{result.limit:,.0f}"
    shown = f"{result.ours:,.2f}" if abs(result.ours) < 10 else f"{result.ours:,.0f}"
    target = case.target
    wanted = "" if target is None else f"{target:g}" if ratio is not None else f"{target:,.0f}{case.unit}"
    verdict = "reported" if target is None else "met" if result.met else "MISSED"
    return (
        f"{case.what:<54}{limit:>12}{shown + case.unit:>18}{'' if ratio is None else f'{ratio:.2f}':>7}"
        f"{wanted:>13}  {verdict}"
    )


def head() -> str:
    """The machine and the versions, and the names of the columns."""
    return (
        f"{os.cpu_count()} CPUs, {platform.python_implementation()} {platform.python_version()}, "
        f"trio {trio.__version__}\n"
        f"{'case':<54}{'limit':>12}{'ours':>18}{'ratio':>7}{'target':>13}"
    )


def as_data(result: Result) -> dict[str, object]:
    """One result for other programs."""
    return {
        "case": result.case.name,
        "what": result.case.what,
        "limit": result.limit,
        "ours": result.ours,
        "unit": result.case.unit.strip(),
        "ratio": result.ratio,
        "target": result.case.target,
        "met": result.met,
    }


def main(arguments: list[str]) -> int:
    """Measure the cases that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("cases", metavar="CASE", nargs="*", help=f"one of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the work of each round")
    parser.add_argument("--json", action="store_true", help="print a JSON array instead of the table")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.cases if name not in CASES]
    if unknown or options.rounds < 1:
        parser.error(f"no such case: {', '.join(unknown)}" if unknown else "--rounds needs at least 1")
    results: list[Result] = []
    if not options.json:
        print(head(), flush=True)
    for case in [CASES[name] for name in options.cases or CASES]:
        result = run(case, options.rounds, max(1, int(case.n * options.scale)))
        results.append(result)
        if not options.json:
            print(row(result), flush=True)
    if options.json:
        print(json.dumps([as_data(result) for result in results], indent=1))
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
