"""Other processes, as Linux shows them under `/proc`: no test needs `ps` and its like."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

WAIT = 40.0
"""Seconds that something in other processes may take."""


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or has ended and nobody has waited for it."""
    return state_of(pid) in ("", "Z", "X")


def state_of(pid: int) -> str:
    """The letter for what a process does, such as `T` for one that is stopped; "" if there is none."""
    return _status(pid)[0]


def parent_of(pid: int) -> int:
    """The process that has started another one: of a worker of Ray its raylet; 0 if there is none."""
    return int(_status(pid)[1])


def pause(pid: int) -> None:
    """Have a process stand still, and wait until each of its threads does: before that it may do more."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    soon(lambda: all(state_of(int(each.name)) in ("T", "Z", "X", "") for each in threads.iterdir()))


def _status(pid: int) -> tuple[str, str]:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return "", "0"
        return "?", "0"  # a system without /proc
    return state, parent


def command_lines() -> dict[int, bytes]:
    """The command lines of all processes, by their ids; that of one which has ended is empty."""
    found: dict[int, bytes] = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(entry.parent.name)] = entry.read_bytes()
        except OSError:  # it has ended since
            continue
    return found


def children_of(pid: int) -> dict[int, bytes]:
    """The command lines of the processes that another one has started, by their ids."""
    return {child: words for child, words in command_lines().items() if parent_of(child) == pid}


def soon(holds: Any) -> Any:
    """Wait for something that happens in other processes, which nothing tells; return it."""
    end = time.monotonic() + WAIT
    while not (found := holds()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)
    return found
