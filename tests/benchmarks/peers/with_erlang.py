"""Erlang/OTP on one scheduler: bare processes without behaviours, far ones over its distribution."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

PROGRAM = Path(__file__).with_name("erlang.escript")

if shutil.which("escript") is None:
    raise ImportError("escript of Erlang/OTP", name="escript")


def _run(work: str, n: int) -> float:
    environment = os.environ | {"ERL_AFLAGS": "+S 1:1"}
    done = subprocess.run(
        ["escript", PROGRAM, work, str(n)], stdout=subprocess.PIPE, check=True, env=environment
    )
    return float(done.stdout)


tell = partial(_run, "tell")
ask = partial(_run, "ask")
fan = partial(_run, "fan")
ring = partial(_run, "ring")
spawn = partial(_run, "spawn")
memory = partial(_run, "memory")
far_ask = partial(_run, "far_ask")
far_tell = partial(_run, "far_tell")
