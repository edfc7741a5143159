"""python -m tests.long.seeds [--seeds N] [--jobs N] [--resume FILE] [FILES]: the shipped scenarios.

Runs each file of `scenarios/` with every seed from 1 to N, by default 10,000; those of FEWER, whose runs take
a second each, with as many as it says. With a smaller N the numbers of FEWER shrink in proportion. All
combinations of a file's matrix or sweep are run with each seed. Every run must pass. One block of seeds in
twenty runs again in another process, with another hash seed, and must have the same message logs.

Runs share a process: an interpreter is started for each 20 blocks, not for each run. Prints one line at the
end, and before it the runs that failed.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.long.state import State, parser_of, say, verdict
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SEEDS = 10_000
FEWER = {"gossip.yaml": 1_000}
BLOCKS = 100  # per file
AGAIN = 20  # of so many blocks one runs again
SHOWN = 20


def block(file: str, first: int, count: int) -> dict[str, Any]:
    """Run a file with some seeds; give how many runs there were, which failed, a digest of all logs."""
    from lmos_actors.scenario.format import resolve
    from lmos_actors.scenario.run import run_cell

    resolved = resolve(file, seeds=range(first, first + count))
    failed, logs = [], hashlib.sha256()
    for cell in resolved.cells:
        result = run_cell(resolved, cell, 1, whole_log=False)
        logs.update(result.digest.encode())
        if not result.ok:
            why = "; ".join(f"{one.what}: {one.saw}" for one in result.failures[:3])
            failed.append(f"{Path(file).name} {result.label}: {result.ended}: {why}")
    return {"runs": len(resolved.cells), "failed": failed, "digest": logs.hexdigest()}


def blocks_of(files: Iterable[Path], seeds: int) -> Iterator[tuple[str, int, int]]:
    """Give all blocks, the files in turn."""
    plans = []
    for file in files:
        most = seeds * FEWER.get(file.name, SEEDS) // SEEDS
        size = max(1, most // BLOCKS)
        plans.append([(str(file), n + 1, min(size, most - n)) for n in range(0, most, size)])
    for number in range(max(map(len, plans), default=0)):
        yield from (plan[number] for plan in plans if number < len(plan))


class Seeds:
    """One run over all blocks."""

    def __init__(self, state: State, jobs: int) -> None:
        self.state, self.jobs = state, jobs
        self.going: dict[Future[dict[str, Any]], tuple[str, int, int]] = {}
        self.logs: dict[tuple[str, int, int], str] = {}

    def go(self, blocks: list[tuple[str, int, int]]) -> None:
        """Run what has not been run."""
        context = multiprocessing.get_context("spawn")  # each process has a hash seed of its own
        pools = [ProcessPoolExecutor(jobs, context, max_tasks_per_child=20) for jobs in (self.jobs, 1)]
        done = set(self.state["done"])
        with pools[0] as pool, pools[1] as other:
            for number, one in enumerate(blocks):
                if name_of(one) in done:
                    continue
                while len(self.going) >= self.jobs:
                    self._take(wait(self.going, return_when=FIRST_COMPLETED).done)
                self.going[pool.submit(block, *one)] = one
                if number % AGAIN == 0:
                    self._take(wait(self.going).done)
                    self._compare(one, other.submit(block, *one).result())
            self._take(wait(self.going).done)

    def _take(self, futures: set[Future[dict[str, Any]]]) -> None:
        for future in futures:
            one, result = self.going.pop(future), future.result()
            self.logs[one] = result["digest"]
            self.state["runs"] += result["runs"]
            self.state["failed"] += result["failed"]
            self.state["done"].append(name_of(one))
            name = Path(one[0]).stem
            self.state["seeds"][name] = self.state["seeds"].get(name, 0) + one[2]
            self.state.save()
            if len(self.state["done"]) % 20 == 0:
                say(f"{name_of(one)}: {self.state['runs']:,} runs, {len(self.state['failed'])} failed")

    def _compare(self, one: tuple[str, int, int], again: dict[str, Any]) -> None:
        self.state["compared"] += again["runs"]
        if again["digest"] != self.logs[one]:
            self.state["failed"].append(f"{name_of(one)}: other logs in a second process")
        self.state.save()


def name_of(one: tuple[str, int, int]) -> str:
    """Name a block."""
    file, first, count = one
    return f"{Path(file).name} seeds {first}..{first + count - 1}"


def main(args: Iterable[str] | None = None) -> int:
    """Be the command."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILES")
    given = parser.parse_args(None if args is None else list(args))
    told = [
        file for file in sorted((ROOT / "scenarios").glob("*.yaml")) if ".deployment" not in file.suffixes
    ]
    files = given.files or told
    fresh = {"done": [], "runs": 0, "compared": 0, "failed": [], "seeds": {}}
    settings = {"seeds": given.seeds, "files": [file.name for file in files]}
    state = State(given.resume, settings, fresh)
    Seeds(state, given.jobs).go(list(blocks_of(files, given.seeds)))
    for text in state["failed"][:SHOWN]:
        print(text)
    seeds = ", ".join(f"{name} {count:,}" for name, count in sorted(state["seeds"].items()))
    told = f"seeds of {seeds}; {state['runs']:,} runs, {len(state['failed'])} failed"
    told += f"; {state['compared']:,} of them again in another process; {state.seconds:,.0f} s"
    return verdict(not state["failed"], told)


if __name__ == "__main__":
    sys.exit(main())
