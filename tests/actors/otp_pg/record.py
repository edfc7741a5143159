"""`python -m tests.actors.otp_pg.record`: records anew what OTP's pg does. Needs Erlang/OTP 25.1 or later."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
TABLE = HERE / "recorded.jsonl"
PROGRAMS = 120

Step = tuple[str, str, str]


def program(random: Random) -> list[Step]:
    """Joins and leaves of processes a, b and c and groups g and h; who has ended does nothing more."""
    alive = ["a", "b", "c"]
    steps: list[Step] = []
    for _ in range(random.randint(1, 14)):
        if not alive:
            break
        verb = random.choices(["join", "leave", "crash", "stop"], [10, 7, 1, 1])[0]
        name = random.choice(alive)
        steps.append((verb, name, random.choice("gh")))
        if verb in ("crash", "stop"):
            alive.remove(name)
    return steps


def tell_otp(programs: list[list[Step]]) -> list[object]:
    """What real pg did."""
    with TemporaryDirectory() as folder:
        told, seen = Path(folder, "programs"), Path(folder, "seen")
        terms = [",".join("{%s,%s,%s}" % step for step in steps) for steps in programs]  # noqa: UP031 -- braces
        told.write_text("".join(f"[{term}].\n" for term in terms))
        subprocess.run(["escript", HERE / "record.escript", told, seen], check=True, stdin=subprocess.DEVNULL)
        return [json.loads(line) for line in seen.read_bytes().splitlines()]


def main() -> None:
    """Write the table."""
    random = Random("pg")
    programs = [program(random) for _ in range(PROGRAMS)]
    lines = [
        json.dumps({"steps": steps, "seen": seen}, separators=(",", ":"))
        for steps, seen in zip(programs, tell_otp(programs), strict=True)
    ]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
