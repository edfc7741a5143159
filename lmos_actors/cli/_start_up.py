"""Signals while the command starts: they end the process with one line and an exit code.

A command that leaves reports (`run`, `sim`) notes signals instead: see `Signals.check_early`.

Python's own handler would raise in the middle of an import, as a traceback. So the command imports this
module first, and it imports nothing that takes long or that the interpreter has not loaded already.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as type checkers know it: to import `typing` takes a while
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # the part inside the interpreter: `signal` itself imports `enum`, which takes a while

# taken now: a simulated world has its own, and agents may replace it
exit_process = os._exit


def take_signals() -> None:
    """End the process at the first signal from now on; signals ignored at its start stay ignored."""
    leaves_reports = sys.argv[1:2] in (["run"], ["sim"]) and {"--help", "-h"}.isdisjoint(sys.argv)
    for number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, _note if leaves_reports else _end_at_once)


def code_of(number: int) -> int:
    """Return the exit code of a process that a signal ended, as in shells: 130, 143."""
    return 128 + number


early: list[int] = []
"""The signals that were noted."""


def _note(number: int, _: object) -> None:
    if early and number == _signal.SIGINT:
        _end_at_once(number, _)
    early.append(number)


def _end_at_once(number: int, _: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        exit_process(code_of(number))
