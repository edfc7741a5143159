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
TIMEOUTS = ("state", "event", "one", "two")
NEXT = "next"
PROGRAMS = 300
LONGEST = 60
"""Events that a program with timeouts has handled at its end, at most: ours let messages in after 64."""

# {"rules": {"s0": {"a": ["s1", false], ...}, ...}, "events": [...], "seen": [["s0", "a"], ...]}
# A rule may go on, in order: "one" starts a timeout of zero, "-one" cancels it, "next" inserts an event.
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


def make_with_timeouts(rng: Random) -> Program:
    """Draw a program whose events also start and cancel timeouts of zero, and insert events."""
    program = make(rng)
    for state, by_event in program["rules"].items():
        for event in TIMEOUTS:
            by_event[event] = [rng.choice(STATES) if rng.random() < 0.3 else state, False]
        by_event[NEXT] = [rng.choice(STATES), False]
        for event, rule in by_event.items():
            most = 3 if event in EVENTS else 1
            timeouts = rng.sample(TIMEOUTS, k=rng.randrange(most + 1))
            rule += [name if rng.random() < 0.8 else f"-{name}" for name in timeouts]
            rule += [NEXT] * (event in EVENTS and rng.random() < 0.2)
    return program


def ends(program: Program, limit: int = 500) -> bool:
    """Say whether it comes to rest: an event postponed by the change that it makes may go round for ever."""
    return len(imagine(program, limit)) < limit


def imagine(program: Program, limit: int) -> list[list[str]]:
    """Carry the rules out on paper."""
    state, seen, postponed = "s0", [], []
    taken, timeouts, queue = [], [], list(program["events"])
    while (taken or timeouts or queue) and len(seen) < limit:
        event = (taken or timeouts or queue).pop(0)
        seen.append([state, event])
        goes, aside, *acts = program["rules"][state][event]
        if aside:
            postponed.append(event)
        ended = {"event"}
        if goes != state:
            state, taken, postponed = goes, postponed + taken, []
            ended.add("state")
        for name in acts:
            ended.add(name.lstrip("-"))
        timeouts = [name for name in timeouts if name not in ended]
        timeouts += [name for name in acts if name in TIMEOUTS]
        taken = [name for name in acts if name == NEXT] + taken
    return seen


def to_erlang(program: Program) -> str:
    rules = ",".join(
        f"{{{{{state},{event}}},{{{goes},{str(aside).lower()},[{','.join(map(act_to_erlang, acts))}]}}}}"
        for state, by_event in program["rules"].items()
        for event, (goes, aside, *acts) in by_event.items()
    )
    return f"{{[{rules}],[{','.join(program['events'])}]}}.\n"


def act_to_erlang(act: str) -> str:
    if act == NEXT:
        return f"{{next,{act}}}"
    return f"{{cancel,{act[1:]}}}" if act.startswith("-") else f"{{start,{act}}}"


def tell_otp(programs: list[Program]) -> list[list[list[str]]]:
    with TemporaryDirectory() as folder:
        told, seen = Path(folder, "programs"), Path(folder, "seen")
        told.write_text("".join(map(to_erlang, programs)))
        script = HERE / "record.escript"
        subprocess.run(["escript", script, told, seen], check=True, stdin=subprocess.DEVNULL)
        return [json.loads(line) for line in seen.read_text().splitlines()]


def recorded() -> list[Program]:
    return [json.loads(line) for line in TABLE.read_text().splitlines()]


def draw(seed: str, count: int = PROGRAMS) -> list[Program]:
    """Draw programs that come to rest, and in which timeouts occur."""
    rng = Random(seed)
    drawn = (make_with_timeouts(rng) for _ in range(count * 20))
    programs = [program for program in drawn if ends(program, LONGEST) and has_timeouts(program)]
    return programs[:count]


def has_timeouts(program: Program) -> bool:
    return any(event in TIMEOUTS for _, event in imagine(program, LONGEST))


def main() -> None:
    rng = Random("gen_statem")
    programs = [program for program in (make(rng) for _ in range(PROGRAMS * 2)) if ends(program)][:PROGRAMS]
    programs += draw("timeouts of zero")
    lines = [
        json.dumps({**program, "seen": seen}, separators=(",", ":"))
        for program, seen in zip(programs, tell_otp(programs), strict=True)
    ]
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} programs recorded")


if __name__ == "__main__":
    main()
