"""A limit of real time on one run, and Ctrl-C: virtual time never comes to a handler that loops for ever."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType, TracebackType

GRACE = 3.0
"""Seconds that a run has, once told to end, before the process ends."""

_OWN_PACKAGES = ("__main__", "lmos_actors", "trio", "outcome", "attr", "cyclopts", "jsonpath")

RUNTIME = "the runtime itself"
TIME_LIMIT = 124
INTERRUPTED = 130

# taken now: a simulated world has its own, and agents may put theirs in its place
_exit_process = os._exit


class Guard:
    """`with Guard(60.0, say) as guard:` around a run in the main thread.

    Past the limit the run gets a KeyboardInterrupt, later another, and `fired` is set. If that does not end
    it, `say` is called with why and where it hangs, and the process ends with 124. Ctrl-C inside
    `handling_interrupts()` sets `interrupted`; if it does not end the run soon, the guard does, and with 130.
    """

    def __init__(self, seconds: float, say: Callable[[str, str], None]) -> None:
        self.fired = False
        self.interrupted = False
        self.where = ""
        self._seconds = seconds
        self._say = say
        self._over = threading.Event()
        self._leaving = False  # the run has ended, and what it had changed around it is being put back
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        # a signal handler may put into it while it puts into it
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def __enter__(self) -> Guard:
        # not by threading.Thread, which waits until the thread runs: most runs are shorter than that takes
        _thread.start_new_thread(self._watch, ())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._over.set()
        self._wakeups.put(None)

    @contextmanager
    def handling_interrupts(self) -> Generator[None]:
        """Make sure that Ctrl-C inside the block is heeded.

        What handles it else may wait for the next checkpoint to raise it, which a handler that has begun
        meanwhile, and loops, never comes to; or the code that it hits may suppress it.
        """
        theirs = signal.getsignal(signal.SIGINT)
        if not callable(theirs):  # ignored, or not ours to handle
            yield
            return

        def ours(number: int, frame: FrameType | None) -> None:
            if not self.fired:
                self.interrupted = True
                self._wakeups.put(None)
            theirs(number, frame)

        signal.signal(signal.SIGINT, ours)
        try:
            with _unraisable_interrupts(), self._alarm():
                yield
        finally:
            with self._lock:
                self._leaving = True
            if signal.getsignal(signal.SIGINT) is ours:
                signal.signal(signal.SIGINT, theirs)

    @contextmanager
    def _alarm(self) -> Generator[None]:
        """Have the limit kept where the main thread lets no other run, as a regular expression does."""
        if not hasattr(signal, "setitimer"):
            yield
            return

        def ring(number: int, frame: FrameType | None) -> None:
            if not self.fired and not self._over.is_set():
                self.fired, self.where = True, place_of(frame)
                _thread.interrupt_main()  # not by the signal itself, which may be blocked

        before, begin = signal.signal(signal.SIGALRM, ring), monotonic()
        left, every = signal.setitimer(signal.ITIMER_REAL, self._seconds + GRACE / 6, GRACE)
        try:
            yield
        finally:
            signal.setitimer(
                signal.ITIMER_REAL, max(left - (monotonic() - begin), 1e-6) if left else 0, every
            )
            signal.signal(signal.SIGALRM, before)

    def _watch(self) -> None:
        with suppress(Empty):
            self._wakeups.get(timeout=self._seconds)
        with self._lock:
            if self._over.is_set():
                return
            self.fired = self.fired or not self.interrupted
            self.where = self.where or self._place()
        if self.fired:
            self._interrupt()
        # as Ctrl-C: the first stops in order, the second gives nobody more time
        for _ in range(2):
            if self._over.wait(GRACE / 2):
                return
            self._interrupt()
        try:
            self._say("interrupted" if self.interrupted else "time limit", self._place())
        finally:
            _exit_process(INTERRUPTED if self.interrupted else TIME_LIMIT)

    def _interrupt(self) -> None:
        with self._lock:
            if not self._over.is_set() and not self._leaving:
                _thread.interrupt_main()

    def _place(self) -> str:
        return place_of(sys._current_frames().get(self._main))  # pyright: ignore[reportPrivateUsage]


@contextmanager
def _unraisable_interrupts() -> Generator[None]:
    """Say nothing of a Ctrl-C that hits a finalizer, which cannot raise it: the guard sees to it."""
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs, /) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def restoring_directory() -> Generator[None]:
    """Come back to the working directory after the block: relative paths of ours are meant from here."""
    try:
        here = os.getcwd()
    except OSError:  # it has been deleted
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            os.chdir(here)


@contextmanager
def refusing_exit() -> Generator[None]:
    """Let no code inside the block end this process, or put another in its place, without a word."""
    home = os.getpid()
    theirs: dict[str, Any] = {
        name: vars(os)[name] for name in ("_exit", "execv", "execve") if name in vars(os)
    }

    def refusal(name: str) -> Callable[..., object]:
        def refuse(*args: object) -> object:
            if os.getpid() != home:  # it has forked, and this is the child
                return theirs[name](*args)
            raise RuntimeError(f"os.{name} would end the process that it is run in")

        return refuse

    for name in theirs:
        setattr(os, name, refusal(name))
    try:
        yield
    finally:
        for name, own in theirs.items():
            setattr(os, name, own)


def place_of(frame: FrameType | None) -> str:
    """Name the innermost place that is neither ours, nor trio's, nor the standard library's."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _OWN_PACKAGES and package not in sys.stdlib_module_names:
            return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return RUNTIME
