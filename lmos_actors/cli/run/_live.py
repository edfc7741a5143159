"""Live part at the bottom of a terminal: the progress of runs, and the tree of one of them."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

from lmos_actors._core import printable
from lmos_actors.reports import bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import BinaryIO, TextIO

REFRESH = 0.1
"""Seconds of real time between two pictures."""

BEGIN = 0.15
"""Seconds after which a file, or a run, that is still in progress is shown."""

SHARE = 100
"""The pause after a picture, as a multiple of its drawing time."""

MOST_RUNS = 8


class Watching(Protocol):
    """A run in this process whose tree can be drawn, in the thread in which it runs."""

    def tree(self) -> Sequence[str]:
        """Draw the tree in its present state."""
        ...


@attrs.define(eq=False)
class Moving:
    """The display of a run in progress: called with its progress; `telling` sets the state to show."""

    label: str
    begun: float = attrs.Factory(monotonic)
    done: float = 0
    total: float = 0
    text: str = ""
    tree: Sequence[str] = ()
    watching: Watching | None = None
    due: float = 0.0

    def __call__(self, done: float, total: float, text: str) -> None:
        """Store the number of steps done, their total, and a text on the present step."""
        self.done, self.total, self.text = done, total, text
        if self.watching is not None and (now := monotonic()) >= self.due:
            self.look(now)

    def look(self, now: float) -> None:
        """Draw the tree, and set the time of the next drawing so that the run is not slowed down."""
        assert self.watching is not None
        began = thread_time()
        self.tree = self.watching.tree()
        self.due = now + max(REFRESH, SHARE * (thread_time() - began))

    def telling(self, watching: Watching) -> None:
        """Set the state to draw the tree from. The first drawing is delayed, since the run may end soon."""
        self.due = self.begun + BEGIN
        self.watching = watching

    def line(self, width: int, now: float) -> str:
        """Return a line with the progress and the duration of the run so far."""
        far = ""
        if self.total > 10_000:  # of so many jobs, a percentage says more
            far = f"{100 * self.done / self.total:.0f} %"
        elif self.total:
            far = f"{self.done:g}/{self.total:g}"
        done = f"{bar(self.done, self.total or 1)} {far:>7}"
        return f" {self.label:{width}}  {done}  {now - self.begun:.1f} s  {self.text}"


class _WholePrints(Console):
    """A console that only one thread uses at a time, from measuring the picture to writing the last byte.

    Rich moves the cursor up by the height of the picture that it saw last. If another thread drew a smaller
    picture before these bytes were written, the cursor would go too far up, and lines that should stay would
    be erased.
    """

    def __init__(self, lock: threading.RLock, **options: Any) -> None:
        super().__init__(**options)
        self._turn = lock

    def __enter__(self) -> _WholePrints:
        self._turn.acquire()
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)
        finally:
            self._turn.release()


class Screen:
    """A terminal: printed lines stay, and the live part below them is redrawn several times a second.

    A separate thread draws the live part, so that no run waits for it and busy runs are shown, too.
    """

    def __init__(self, out: TextIO) -> None:
        self._lock = threading.RLock()  # taken before any lock of rich
        self.console = _WholePrints(self._lock, file=out, highlight=False, soft_wrap=True)
        self._out = out
        self._head: Callable[[float], str] | None = None
        self._width = 0
        self._since = 0.0
        self._moving: list[Moving] = []
        self._live: Live | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._stderr: Any = None
        self._pipe: BinaryIO | None = None
        self._reader: threading.Thread | None = None

    def begin(self, head: Callable[[float], str], width: int) -> None:
        """Show the progress of a file: `head` returns its line for a given time; labels are `width` wide."""
        with self._lock:
            self._head, self._width, self._since = head, width, monotonic()
        self._take_errors()
        if self._thread is None:  # here, since a simulated world starts no threads
            self._thread = threading.Thread(target=self._draw_on, name="terminal", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Show nothing, until the next file begins."""
        with self._lock:
            self._head = None
            self._moving.clear()

    def _take_errors(self) -> None:
        """Print what agents write to standard error above the live part, if both share the terminal."""
        if self._stderr is None and sys.stderr.isatty():
            self._stderr = sys.stderr
            sys.stderr = FileProxy(self.console, sys.stderr)

    def errors(self) -> BinaryIO | None:
        """Return the file to which other processes write, or None if standard error is not the terminal."""
        self._take_errors()
        if self._stderr is None:
            return None
        reading, writing = os.pipe()
        self._pipe = os.fdopen(writing, "wb")
        self._reader = threading.Thread(target=_pass_on, args=(reading,), name="agents' words", daemon=True)
        self._reader.start()
        return self._pipe

    def add(self, moving: Moving) -> None:
        """Add a run to the live part."""
        with self._lock:
            self._moving.append(moving)

    def remove(self, moving: Moving) -> None:
        """Remove a run from the live part."""
        with self._lock:
            if moving in self._moving:
                self._moving.remove(moving)

    def print(self, text: Text) -> None:
        """Print a line that stays, above the live part."""
        self.console.print(text)

    def close(self) -> None:
        """Remove the live part, and restore the terminal."""
        self._over.set()
        if self._pipe is not None:
            self._pipe.close()
        for thread in (self._thread, self._reader):
            if thread is not None:
                thread.join(1.0)
        if self._stderr is not None:
            with suppress(OSError):
                sys.stderr.flush()
            sys.stderr, self._stderr = self._stderr, None
        with self._lock:
            self._moving.clear()
            live, self._live = self._live, None
            if live is not None:
                live.stop()

    def abandon(self) -> None:
        """Show the cursor again in a process that is about to end."""
        self._over.set()
        if self._stderr is not None:
            sys.stderr = self._stderr
        if self._live is not None:
            with suppress(OSError, ValueError):
                os.write(self._out.fileno(), b"\r\n\x1b[?25h")

    def _draw_on(self) -> None:
        gap = REFRESH
        while not self._over.wait(gap):
            began = thread_time()
            try:
                self._draw()
            except (OSError, ValueError):  # the reader is gone; the next print raises
                return
            gap = max(REFRESH, SHARE * (thread_time() - began))

    def _draw(self) -> None:
        now = monotonic()
        with self._lock:
            if self._over.is_set():
                return
            lines = self.lines(now)
            if not lines and self._live is None:
                return
            if self._live is None:
                self._live = Live(
                    console=self.console,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                    vertical_overflow="crop",
                )
                self._live.start()
            # an empty picture would leave an empty line behind
            self._live.update(picture(lines or [" "], self.console.width), refresh=True)

    def lines(self, now: float) -> list[str]:
        """Return the lines of the live part, at most as many as the terminal has room for."""
        shown = [moving for moving in self._moving if now - moving.begun >= BEGIN]
        if self._head is None or now - self._since < BEGIN:
            return []
        room = max(self.console.height // 2, 4)  # printed lines stay in sight
        lines = [self._head(now), *(moving.line(self._width, now) for moving in shown[:MOST_RUNS])]
        if len(shown) > MOST_RUNS:
            lines.append(f" and {len(shown) - MOST_RUNS} more")
        tree = [f"   {row}" for row in shown[0].tree] if shown else []
        if len(lines) + len(tree) > room:
            cut = max(room - len(lines) - 1, 0)
            tree = [*tree[:cut], f"   and {len(tree) - cut} rows more"] if cut else []
        return [*lines[:room], *tree]


def _pass_on(reading: int) -> None:
    with suppress(OSError, ValueError), open(reading, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            print(line.rstrip("\n"), file=sys.stderr)


def picture(lines: Iterable[str], width: int) -> Text:
    """Return lines as a text, each cut to the given width."""
    rows = [Text(printable(line), no_wrap=True, overflow="ellipsis") for line in lines]
    for row in rows:
        row.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True, overflow="crop").join(rows)
