"""Signals while the command starts: they end the process with one line and an exit code.

Python's own handler would raise in the middle of an import, as a traceback. So the command imports this
module first, and it imports nothing that takes long or that the interpreter has not loaded already.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as type checkers know it: to import `typing` takes a while
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # the part inside the interpreter: `signal` itself imports `enum`, which takes a while

# taken now: a simulated world has its own, and agents may replace it
exit_process = os._exit


def take_signals() -> None:
    """End the process at the first signal from here on; signals ignored at its start stay ignored."""
    for number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, _end_at_once)


def code_of(number: int) -> int:
    """Return the exit code of a process that a signal ended, as shells have it: 130, 143."""
    return 128 + number


def _end_at_once(number: int, _: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        exit_process(code_of(number))
