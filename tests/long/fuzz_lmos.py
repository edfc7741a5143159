"""python -m tests.long.fuzz_lmos [--seconds N] [--seed N] [--corpus DIR]: what LMOS reads, under fire.

Follows coverage where `atheris` is installed (`pip install atheris`, Linux): it keeps the inputs that
reach new code and damages those further. Elsewhere, or with `--blind`, it goes through seeds one after
another. With `--corpus` what was found interesting is kept, and the next run goes on from there.

Prints one line at the end: what was run, and whether anything broke. Exit code 1 if so, with the traceback
and the input that did it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

STEPS = 60
MACHINES = ("thing", "consumer", "connections", "codec", "description")


def run_one(which: str, random: Random) -> int:
    """Put one machine under fire; give the steps. Raises what breaks."""
    from lmos_actors.protocol import lmos
    from tests.wire.descriptions import DescriptionUnderFire
    from tests.wire.machines import ConsumerUnderFire, Peer, ThingUnderFire
    from tests.wire.twice import TwoConnections

    if which == "codec":
        peer, codec = Peer(random), lmos.Codec(lmos.Dialect.of_thing(offered=False))
        for _ in range(STEPS):
            codec.decode(peer.frame())
        return STEPS
    machines: dict[str, Any] = {
        "thing": ThingUnderFire,
        "consumer": ConsumerUnderFire,
        "connections": TwoConnections,
        "description": DescriptionUnderFire,
    }
    machine = machines[which](random)
    for _ in range(STEPS):
        machine.step()
    if isinstance(machine, TwoConnections):
        machine.finish()
    return STEPS


class Bytes(Random):
    """Chance that is read from the fuzzer's input: a small change of it is a small change of the story."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        super().__init__(0)

    def seed(self, *_: Any, **__: Any) -> None:
        """Stay as it is: the input is the seed."""

    def random(self) -> float:
        """Give a number from the next two bytes."""
        return self.getrandbits(16) / 65_536

    def getrandbits(self, k: int, /) -> int:
        """Give bits from the next bytes; after the last one, of a fixed sequence."""
        count = (k + 7) // 8
        taken = self._data[self._at : self._at + count]
        self._at += count
        taken += bytes((self._at * 37 + i) & 255 for i in range(count - len(taken)))
        return int.from_bytes(taken, "big") >> (count * 8 - k)


class Run:
    """One fuzzing run: its deadline, its counts, its verdict."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.steps = self.stories = 0

    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.until

    def story(self, which: str, random: Random, shown: str) -> None:
        """Run one story; end the process if it breaks."""
        try:
            self.steps += run_one(which, random)
            self.stories += 1
        except Exception:  # whatever it is, it is what is looked for
            traceback.print_exc()
            self.say(f"BROKEN by {shown} ({which})")
            sys.stderr.flush()
            os._exit(1)

    def say(self, verdict: str) -> None:
        """Print the one line."""
        print(f"{self.stories:,} stories, {self.steps:,} steps: {verdict}", flush=True)


def blind(run: Run, seed: int) -> None:
    """Go through seeds."""
    while not run.over():
        for which in MACHINES:
            run.story(which, Random(seed), f"--blind --seed {seed}")
        seed += 1
    run.say("nothing broke")


def guided(run: Run, atheris: Any, corpus: Path | None) -> None:
    """Follow coverage."""
    import lmos_actors

    with atheris.instrument_imports(include=["lmos_actors.protocol.lmos", "lmos_actors.protocol.td"]):
        import lmos_actors.protocol.lmos
        import lmos_actors.protocol.td  # noqa: F401

    def one_input(data: bytes) -> None:
        if run.over():
            run.say("nothing broke, coverage followed")
            os._exit(0)  # an exception would count as what the input broke
        if data:
            run.story(MACHINES[data[0] % len(MACHINES)], Bytes(data[1:]), data.hex())

    kept = []
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
        kept = [str(corpus)]
    atheris.Setup([sys.argv[0], "-max_len=4096", "-verbosity=0", *kept], one_input)
    atheris.Fuzz()


def main() -> None:
    """Be the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--blind", action="store_true")
    given = parser.parse_args()
    run = Run(given.seconds)
    try:
        import atheris  # type: ignore[import-not-found]
    except ImportError:
        atheris = None
    if given.blind or atheris is None:
        blind(run, given.seed)
    else:
        guided(run, atheris, given.corpus)


if __name__ == "__main__":
    main()
