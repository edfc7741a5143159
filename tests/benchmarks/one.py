"""One measurement in a process of its own, printed: `python -m tests.benchmarks.one ours|limit|calls CASE N`.

`calls` are those of functions of this package, in this process, for each unit of our side's work.
"""

from __future__ import annotations

import gc
import sys

from tests.benchmarks.cases import CASES
from tests.benchmarks.counting import Walk


def main(side: str, name: str, n: int) -> float:
    """Run one side of a case and give its figure."""
    case = CASES[name]
    program = case.ours if side == "ours" else case.limit
    if program is None:
        raise ValueError(f"{name} has no limit to be measured against")
    gc.collect()
    return program(n)


def calls(name: str, n: int) -> float:
    """Return the calls for each unit; those of the start, which less work has too, are left out."""
    case = CASES[name]
    walks = []
    few = min(n // 2, 4 * case.tiny)  # as many as a world of 1,000 agents needs to be whole
    for work in (case.tiny, few, min(n, 10 * case.tiny)):  # the first one warms up
        walk = Walk()
        with walk.counting(threads=True):
            case.ours(work)
        walks.append((walk.calls, work))
    (less, few), (more, many) = walks[1:]
    return (more - less) / (many - few)


if __name__ == "__main__":
    side, name, n = sys.argv[1:]
    print(repr(calls(name, int(n)) if side == "calls" else main(side, name, int(n))))
