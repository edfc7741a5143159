"""python -m tests.long.otp_stories [--stories N] [--seed TEXT] [--resume FILE]: against Erlang's own.

Makes up stories of supervision trees (tests/supervision/otp/generate.py), has a real Erlang/OTP tell them in
real time, all of a batch at once, and compares what was seen with what our plans do. A story that the
machine was too slow for does not count, and another is told instead. By default 10,000.

Needs `escript`. Prints one line at the end, and before it the first stories that ended differently.
"""

from __future__ import annotations

import secrets
import sys
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from tests.long.state import State, parser_of, say, verdict
from tests.supervision.otp.generate import Teller
from tests.supervision.otp.record import have_erlang, tell_otp
from tests.supervision.otp.replay import run_story
from tests.supervision.otp.stories import difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.supervision.otp.stories import Story

STORIES = 10_000
BATCH = 250
SHOWN = 3
SECONDS = (3, 3, 3, 5, 8)
"""How long a story of a batch may be, of five batches."""
TOO_LATE = 20
"""Batches without a story in time, one after the other, after which the machine is too busy."""


def stories_of(seed: str, batch: int, count: int) -> Iterator[Story]:
    """Make up the stories of a batch."""
    seconds = SECONDS[batch % len(SECONDS)]
    return islice(Teller(Random(f"{seed} {batch}"), seconds).stories(), count)


def tell(state: State, size: int) -> None:
    """Tell one batch, and compare it."""
    batch = state["batch"]
    told = list(stories_of(state["seed"], batch, size))
    records = tell_otp(told)
    for record in records:
        text = difference(record.observed, run_story(record.story))
        if text:
            state["different"].append(f"{record.story}\n{text}")
    state["batch"] = batch + 1
    state["compared"] += len(records)
    state["late"] += len(told) - len(records)
    state["in_vain"] = 0 if records else state["in_vain"] + 1
    state.save()


def main(args: Iterable[str] | None = None) -> int:
    """Be the command."""
    parser = parser_of(__doc__)
    parser.add_argument("--stories", type=int, default=STORIES)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seed", help="of the stories; chance without it")
    given = parser.parse_args(None if args is None else list(args))
    if not have_erlang():
        return verdict(False, "there is no escript of Erlang/OTP here")
    fresh = {"batch": 0, "compared": 0, "late": 0, "in_vain": 0, "different": []}
    fresh["seed"] = given.seed or secrets.token_hex(8)
    state = State(given.resume, {"stories": given.stories}, fresh)
    while state["compared"] < given.stories and state["in_vain"] < TOO_LATE:
        tell(state, min(given.batch, given.stories - state["compared"]))
        say(
            f"{state['compared']:,} compared, {len(state['different'])} different, {state['late']:,} too late"
        )
    for text in state["different"][:SHOWN]:
        print(text)
    told = f"{state['compared']:,} stories of seed {state['seed']} told by Erlang/OTP"
    told += f", {len(state['different'])} ended differently here; {state['late']:,} more came too late"
    whole = state["compared"] >= given.stories
    return verdict(whole and not state["different"], f"{told}; {state.seconds:,.0f} s")


if __name__ == "__main__":
    sys.exit(main())
