"""`python -m tests.supervision.otp.record`: records the table anew. Needs Erlang/OTP 25 or later."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from .corners import CORNERS
from .generate import Teller
from .stories import Observed, Recorded, to_erlang, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stories import Story

SCRIPT = Path(__file__).with_name("record.escript")
STORIES = 700
SECONDS = 8


def have_erlang() -> bool:
    return shutil.which("escript") is not None


def tell_otp(stories: Sequence[Story]) -> list[Recorded]:
    """What real OTP did, in real time. A story that the machine was too slow for is left out."""
    with TemporaryDirectory() as folder:
        told, seen = Path(folder, "stories"), Path(folder, "seen")
        told.write_text("".join(map(to_erlang, stories)))
        subprocess.run(["escript", SCRIPT, told, seen], check=True, stdin=subprocess.DEVNULL)
        sights = [json.loads(line) for line in seen.read_bytes().splitlines()]
    return [
        Recorded(story, msgspec.convert(sight, Observed))
        for story, sight in zip(stories, sights, strict=True)
        if not sight["late"]
    ]


def main() -> None:
    stories = [*CORNERS, *islice(Teller(Random("otp"), SECONDS).stories(), STORIES)]
    records = tell_otp(stories)
    write_table(records)
    print(f"{len(records)} of {len(stories)} stories recorded")


if __name__ == "__main__":
    main()
