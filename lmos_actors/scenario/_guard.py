"""Real-time limit and Ctrl-C handling of one run.

On virtual time nothing interrupts a handler that loops forever: the clock only advances when no task can run.
So a thread outside Trio waits for the limit and interrupts the main thread. Time for which a run is held up
on purpose (`held_up`) does not count. There are three levels, as code may swallow KeyboardInterrupt or never
return to the interpreter loop: one interrupt (an orderly stop), further ones after each half of GRACE, and
finally the end of the process. A SIGALRM timer backs up the thread when the main thread holds the interpreter
lock, for example during a long regular expression match.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

from lmos_actors._core import uncollected

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType, TracebackType

REAL_LIMIT = 60.0
"""Default limit of a run without a population, and of importing modules, in seconds of real time."""

PATIENCE = 5
"""How many times its limit a run may take in real time whose processor time is limited."""

LEAST_PATIENCE = 30.0
"""The seconds of real time that it may take at least."""

LOOK = 0.05
"""Seconds between two looks at the processor time of a run that has nearly used it up."""

GRACE = 3.0
"""Seconds between the first interrupt and the end of the process."""

_OWN_PACKAGES = ("__main__", "lmos_actors", "trio", "outcome", "attr", "cyclopts", "jsonpath")

RUNTIME = "the runtime itself"
TIME_LIMIT = 124
INTERRUPTED = 130

# bound now: simulations and agents may replace it
_exit_process = os._exit


def longest_of(seconds: float) -> float:
    """Return the real time, in seconds, that a run with limited processor time may take."""
    return max(PATIENCE * seconds, LEAST_PATIENCE)


class Guard:
    """The time limit of a run in the main thread: `with Guard(60.0, say) as guard:`.

    Past the limit, the run gets a KeyboardInterrupt, later another, and `fired` is set. If that does not end
    it, `say` is called with the reason and the position in the code, and the process exits with 124. With
    `of_processor` the limit is processor time, which other work on the machine does not use up. Real time is
    limited too, by `longest_of`; if the run exceeds only that, `is_slow` is true, as the run may or may not
    hang. Ctrl-C inside `handling_interrupts()` sets `interrupted`; if the run does not end soon, the process
    exits with 130.
    """

    def __init__(
        self, seconds: float, say: Callable[[str, str], None], *, of_processor: bool = False
    ) -> None:
        self.fired = False
        self.interrupted = False
        self.where = ""
        self._seconds = seconds
        self._say = say
        self._over = threading.Event()
        self._of_processor = of_processor
        self._begin = monotonic()
        self._worked = process_time()
        self._held_up = 0.0
        self._held_since: float | None = None
        self._leaving = False  # the run has ended, and signal handlers and hooks are being restored
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        # reentrant: a signal handler may call `put` during a `put` of the same thread
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def __enter__(self) -> Guard:
        self._begin, self._worked = monotonic(), process_time()
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
    def held_up(self) -> Generator[None]:
        """Exclude the time spent in this block from the limit, as it holds up the run in the main thread."""
        self._held_since = monotonic()
        try:
            yield
        finally:
            self._held_up += monotonic() - self._held_since
            self._held_since = None

    def _left(self) -> float:
        """Return the number of seconds that the run has left; negative past its limit."""
        now, since = monotonic(), self._held_since
        held_up = self._held_up + (0.0 if since is None else now - since)
        left = self._seconds + held_up - (now - self._begin)
        if not self._of_processor:
            return left
        work = self._work_left()
        return min(left + longest_of(self._seconds) - self._seconds, work if work <= 0 else max(work, LOOK))

    def _work_left(self) -> float:
        return self._seconds - (process_time() - self._worked)

    @property
    def is_slow(self) -> bool:
        """Whether a run past its limit has not used up its processor time."""
        return self._of_processor and self._work_left() > 0

    @contextmanager
    def handling_interrupts(self) -> Generator[None]:
        """Ensure that Ctrl-C inside the block ends the run.

        Trio's own handler may wait for the next checkpoint, which a looping handler never reaches; or the
        interrupted code may suppress the exception.
        """
        theirs = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()  # no other may handle signals
        if not callable(theirs) or not is_main:  # ignored, or not ours to handle
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
        """Enforce the limit when the main thread blocks all others, as in a regular expression match."""
        if not hasattr(signal, "setitimer"):
            yield
            return

        def ring(number: int, frame: FrameType | None) -> None:
            left = self._left()
            if left > 0:  # it was held up meanwhile
                signal.setitimer(signal.ITIMER_REAL, left + GRACE / 6, GRACE)
            elif not self.fired and not self._over.is_set():
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
        left = self._seconds
        with suppress(Empty):
            while left > 0:
                try:
                    self._wakeups.get(timeout=left)
                    break
                except Empty:
                    left = self._left()
        with self._lock:
            if self._over.is_set():
                return
            self.fired = self.fired or not self.interrupted
            self.where = self.where or self._place()
        if self.fired:
            self._interrupt()
        # as with Ctrl-C: the first stops in order, the second stops at once
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
        with uncollected():
            return place_of(sys._current_frames().get(self._main))  # pyright: ignore[reportPrivateUsage]


@contextmanager
def _unraisable_interrupts() -> Generator[None]:
    """Suppress the report of a KeyboardInterrupt in a finalizer, as the guard handles Ctrl-C itself."""
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
    """Restore the working directory after the block, as this package uses relative paths."""
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
    """Make `os._exit` and `os.exec*` raise inside the block instead of ending this process silently."""
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
    """Return the innermost line of code outside this package, Trio and the standard library, or RUNTIME."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _OWN_PACKAGES and package not in sys.stdlib_module_names:
            return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return RUNTIME
