"""`python -m tests.actors.otp_links.record`: records the table anew. Needs Erlang/OTP 25 or later."""

from __future__ import annotations

import shutil
import subprocess
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from .programs import CORNERS, Recorded, Seen, random_programs, to_erlang, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .programs import Program

SCRIPT = Path(__file__).with_name("record.escript")
PROGRAMS = 200


def have_erlang() -> bool:
    return shutil.which("escript") is not None


def play_in_erlang(programs: Sequence[Program]) -> list[Recorded]:
    """What real Erlang processes did."""
    with TemporaryDirectory() as folder:
        played, seen = Path(folder, "programs"), Path(folder, "seen")
        played.write_text("".join(map(to_erlang, programs)))
        subprocess.run(["escript", SCRIPT, played, seen], check=True, stdin=subprocess.DEVNULL)
        sights = [msgspec.json.decode(line, type=list[Seen]) for line in seen.read_bytes().splitlines()]
    return [Recorded(program, sight) for program, sight in zip(programs, sights, strict=True)]


def main() -> None:
    records = play_in_erlang([*CORNERS.values(), *islice(random_programs(Random("links")), PROGRAMS)])
    write_table(records)
    print(f"{len(records)} programs recorded")


if __name__ == "__main__":
    main()
