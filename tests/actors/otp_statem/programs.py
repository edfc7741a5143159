"""Small state machines as data, and what the real `gen_statem` did with them.

`python -m tests.actors.otp_statem.programs` records the table anew; that needs Erlang/OTP 25 or later.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
TABLE = HERE / "recorded.json"
STATES = ("s0", "s1", "s2")
EVENTS = ("a", "b", "c")
PROGRAMS = 300

# {"rules": {"s0": {"a": ["s1", false], ...}, ...}, "events": [...], "seen": [["s0", "a"], ...]}
Program = dict[str, Any]


def make(rng: Random) -> Program:
    """Draw a program: for each state and event where to go and whether to postpone; then the events."""
    rules = {
        state: {
            event: [rng.choice(STATES) if rng.random() < 0.5 else state, rng.random() < 0.35]
            for event in EVENTS
        }
        for state in STATES
    }
    return {"rules": rules, "events": rng.choices(EVENTS, k=rng.randrange(1, 14))}


def ends(program: Program) -> bool:
    """Say whether it comes to rest: an event postponed by the change that it makes may go round for ever."""
    return len(imagine(program, 500)) < 500


def imagine(program: Program, limit: int) -> list[list[str]]:
    """Carry the rules out on paper."""
    state, seen, postponed = "s0", [], []
    queue = list(program["events"])
    while queue and len(seen) < limit:
        event = queue.pop(0)
        seen.append([state, event])
        goes, aside = program["rules"][state][event]
        if aside:
            postponed.append(event)
        if goes != state:
            state, queue, postponed = goes, postponed + queue, []
    return seen


def to_erlang(program: Program) -> str:
    rules = ",".join(
        f"{{{{{state},{event}}},{{{goes},{str(aside).lower()}}}}}"
        for state, by_event in program["rules"].items()
        for event, (goes, aside) in by_event.items()
    )
    return f"{{[{rules}],[{','.join(program['events'])}]}}.\n"


def tell_otp(programs: list[Program]) -> list[list[list[str]]]:
    with TemporaryDirectory() as folder:
        told, seen = Path(folder, "programs"), Path(folder, "seen")
        told.write_text("".join(map(to_erlang, programs)))
        script = HERE / "record.escript"
        subprocess.run(["escript", script, told, seen], check=True, stdin=subprocess.DEVNULL)
        return [json.loads(line) for line in seen.read_text().splitlines()]


def recorded() -> list[Program]:
    return [json.loads(line) for line in TABLE.read_text().splitlines()]


def main() -> None:
    rng = Random("gen_statem")
    programs = [program for program in (make(rng) for _ in range(PROGRAMS * 2)) if ends(program)][:PROGRAMS]
    lines = [
        json.dumps({**program, "seen": seen}, separators=(",", ":"))
        for program, seen in zip(programs, tell_otp(programs), strict=True)
    ]
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} programs recorded")


if __name__ == "__main__":
    main()
