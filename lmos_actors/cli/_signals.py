"""Signals of a command: SIGINT and SIGTERM end it at once while it starts, and in order once it works.

A command goes through three states.

- **Starting**, from the first line of `main` on: it imports modules and reads options, and needs no
  clean-up, except for the reports of `run`: there the signal is noted. A handler that raises would raise in
  the middle of an import, as a traceback, or in a callback of a weak reference, which swallows it; so the
  process ends here and now, with one line and the exit code.
- **Working**, inside `in_order`: SIGINT raises KeyboardInterrupt, by Python's own handler, as trio takes over
  no other; SIGTERM does the same as SIGINT, and `code` remembers which it was. Inside `held` neither raises:
  the block writes its files whole, and the interrupt is raised at its end.
- **Leaving**, from `leave` on: all is done and written, and a signal no longer changes the exit code.

A second SIGTERM that comes with the first is ignored: `timeout` sends it to the process and to its group. A
second interrupt inside `held` raises at once, as the block may be writing to a pipe without a reader.

If the process was started with SIGINT ignored, as a shell does with `command &`, SIGINT stays ignored: the
thread's mask blocks it. Its handler still has to be Python's, as SIGTERM calls that handler too.

In a process that is not a command, as in tests that call `main`, and in other threads, nothing is changed.
"""

from __future__ import annotations

import atexit
import signal
import threading
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ._start_up import code_of, early, exit_process, take_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

BOTH: Final = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """The signals of this process, as long as it is a command."""

    def __init__(self) -> None:
        self._taken = False
        self._term = 0
        self._held = False
        self._in_order = False
        self._is_over = False
        self._waiting = 0
        self._most = 1

    def take(self) -> None:
        """End the process at the first signal from now on; signals ignored at its start stay ignored."""
        self._taken = True
        take_signals()

    @property
    def code(self) -> int:
        """The exit code after an interrupt: 143 if by SIGTERM, else 130."""
        return code_of(signal.SIGTERM if self._term else signal.SIGINT)

    @property
    def name(self) -> str:
        """The name of the signal that interrupted."""
        return "SIGTERM" if self._term else "SIGINT"

    @contextmanager
    def in_order(self) -> Generator[None]:
        """Let signals raise KeyboardInterrupt inside the block, which must clean up after itself.

        Inside another such block it does nothing.
        """
        if not self._taken or self._in_order:
            yield
            return
        self._in_order = True
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        before = {number: signal.getsignal(number) for number in BOTH}
        try:
            if before[signal.SIGTERM] is not signal.SIG_IGN:
                signal.signal(signal.SIGTERM, self._terminate)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            yield
        finally:
            for number, handler in before.items() if not self._is_over else ():
                signal.signal(number, handler)
            self._in_order = False

    def check_early(self) -> None:
        """Raise KeyboardInterrupt if a signal came while the command started."""
        if early:
            self._term += signal.SIGTERM in early
            early.clear()
            raise KeyboardInterrupt

    def _terminate(self, _: int, frame: FrameType | None) -> None:
        """Call the present handler of SIGINT: Python's, trio's, or that of a run's guard."""
        self._term += 1
        if self._term == 2:
            return
        handler: Any = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)

    @contextmanager
    def held(self, *, drop: bool = False) -> Generator[None]:
        """Delay KeyboardInterrupt to the end of the block; with `drop`, discard it.

        A second interrupt inside the block is raised at once; with `drop`, only a third: such a block reports
        that all is done, and the exit code must agree with that.
        """
        if not self._taken or self._held or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        self._held, self._waiting, self._most = True, 0, 2 if drop else 1
        signal.signal(signal.SIGINT, self._hold)
        try:
            yield
        finally:
            self._held = False
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._waiting and not drop:
            raise KeyboardInterrupt

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._waiting += 1
        if self._waiting > self._most:
            signal.default_int_handler(number, frame)

    def wait(self, begin: Callable[[], None]) -> None:
        """Wait for a signal; neither it nor later ones raise an interrupt.

        `begin` is called once a signal would end the wait.
        """
        if not self._taken:
            with suppress(KeyboardInterrupt):
                begin()
                threading.Event().wait()
            return
        come: SimpleQueue[None] = SimpleQueue()  # reentrant: a handler may run in the middle of `get`

        def note(_: int, frame: FrameType | None) -> None:
            come.put(None)

        for number in BOTH:
            if callable(signal.getsignal(number)):
                signal.signal(number, note)
        self._is_over = True
        begin()
        come.get()

    def end_process(self, *, interrupted: bool) -> None:
        """If the process was interrupted, end it at once, from any thread, with the code of the signal."""
        if interrupted and self._taken:
            exit_process(self.code)

    def leave(self, code: int) -> None:
        """From now on let a signal end the process at once with this exit code."""

        def end(_: int, frame: FrameType | None) -> None:
            exit_process(code)

        for number in BOTH if self._taken else ():
            if callable(signal.getsignal(number)):
                signal.signal(number, end)
        if self._taken:
            atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    """Ignore signals while Python ends: it removes handlers early, and a signal would then kill it."""
    for number in BOTH:
        signal.signal(number, signal.SIG_IGN)


signals: Final = Signals()
