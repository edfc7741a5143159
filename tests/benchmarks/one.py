"""One measurement in a process of its own: `python -m tests.benchmarks.one ours|limit CASE N` prints it."""

from __future__ import annotations

import gc
import sys

from tests.benchmarks.cases import CASES


def main(side: str, name: str, n: int) -> float:
    """Run one side of a case and give its figure."""
    case = CASES[name]
    program = case.ours if side == "ours" else case.limit
    if program is None:
        raise ValueError(f"{name} has no limit to be measured against")
    gc.collect()
    return program(n)


if __name__ == "__main__":
    side, name, n = sys.argv[1:]
    print(repr(main(side, name, int(n))))
