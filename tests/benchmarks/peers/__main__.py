"""python -m tests.benchmarks.peers [WORK...] [--peers NAME...] [--rounds N]: measure beside other libraries.

Install them first, best into an environment of their own:

    pip install -r tests/benchmarks/peers/requirements.txt

Each measurement is a process of its own; all peers take turns, after a round that does not count. Rates are
medians, by time and by processor time of all processes together. The ratio is our rate by time to the
peer's; for memory, our bytes to the peer's. What is not installed is named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from statistics import median

from tests.benchmarks.peers.programs import PEERS, ROOT, WORK, measure, program

OURS = PEERS[0]


def one(peer: str, work: str) -> None:
    """Print one measurement: two numbers, or one word that says why there is none."""
    try:
        run = program(peer, work)
    except ImportError as problem:
        print("absent", problem.name or problem)
        return
    print("none" if run is None else " ".join(map(repr, measure(run, work))))


def measured(peer: str, work: str) -> list[str]:
    """Measure in a fresh process; return the words that it prints last."""
    command = [sys.executable, "-m", "tests.benchmarks.peers", "--one", peer, work]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1].split() if done.returncode == 0 else ["failed"]


def compare(work: str, peers: list[str], rounds: int) -> None:
    """Measure one kind of work on all peers, in turns, and print a table."""
    found: dict[str, list[tuple[float, float]]] = {}
    left_out: dict[str, str] = {}
    for peer in peers:  # a round that warms up, and tells who takes part
        words = measured(peer, work)
        if words[0] in ("absent", "none", "failed"):
            left_out[peer] = words[0]
        else:
            found[peer] = []
    for number in range(rounds):
        turn = number % max(1, len(found))
        for peer in [*found][turn:] + [*found][:turn]:
            by_time, by_cpu = map(float, measured(peer, work))
            found[peer].append((by_time, by_cpu))
    medians = {peer: [median(column) for column in zip(*rows, strict=True)] for peer, rows in found.items()}
    print(f"\n{work}: {WORK[work]}\n{'':<14}{'by time':>14}{'by CPU':>14}{'ratio':>8}")
    for peer, (by_time, by_cpu) in sorted(medians.items(), key=lambda each: -each[1][0]):
        ratio = f"{medians[OURS][0] / by_time:.2f}" if OURS in medians else ""
        print(f"{peer:<14}{by_time:>14,.0f}{by_cpu:>14,.0f}{ratio:>8}")
    for reason, text in (("absent", "not installed"), ("failed", "failed"), ("none", "has no such thing")):
        if names := [peer for peer, why in left_out.items() if why == reason]:
            print(f"{text}: {', '.join(names)}")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Measure what is named, or all of it."""
    if arguments[:1] == ["--one"]:
        return one(*arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("work", metavar="WORK", nargs="*", help=f"one of {', '.join(WORK)}")
    parser.add_argument("--peers", metavar="NAME", nargs="+", choices=PEERS, default=[*PEERS])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.work if name not in WORK]:
        parser.error(f"no such work: {', '.join(unknown)}")
    for work in options.work or WORK:
        compare(work, list(dict.fromkeys([OURS, *options.peers])), options.rounds)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
