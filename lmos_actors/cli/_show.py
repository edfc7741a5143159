"""What is printed: live on a terminal, plain text elsewhere, or JSON alone."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from lmos_actors.reports import as_data, bar, failure_lines, head, repeated_lines, run_line, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.reports import FileResult, RunResult

REFRESH = 0.1
"""Seconds of real time between two looks of the live line."""

_STYLES = {"passed": "green", "failed": "bold red", "could not run": "bold red", "time limit": "bold red"}


def takes_all(out: Any) -> bool:
    """Whether a stream can carry every character."""
    return str(getattr(out, "encoding", "")).lower().replace("-", "") == "utf8"


class Show:
    """Prints how runs go."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._width = 0
        # kept: while a run goes on, sys.stdout is where agents print to
        self._out = sys.stdout
        self._console: Any = None
        self._live: Any = None
        if not json and self._out.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console

            self._console = Console(file=self._out, highlight=False, soft_wrap=True)

    def _print(self, text: str, style: str | None = None) -> None:
        if self._json:
            return
        if self._console is not None:
            self._console.print(text, style=style, markup=False)
        else:
            print(text, file=self._out, flush=True)

    def begin(self, result: FileResult, width: int) -> None:
        """A file begins; `width` is that of its longest label."""
        self._width = width
        self._print(head(result), "bold")

    def progress(self, label: str, trial: int) -> Callable[[int, int, str], None]:
        """Give what is called after each step of a run."""
        if self._console is None:
            return lambda done, total, text: None
        due = time.monotonic() + REFRESH  # a run that is over before shows nothing but its line

        def show(done: int, total: int, text: str) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + REFRESH
                self._update(f" {label:{self._width}}  {bar(done, total)} {done}/{total} {text}")

        return show

    def _update(self, line: str) -> None:
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        """Take the live line away."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def run(self, run: RunResult, result: FileResult, again: str) -> None:
        """A run has ended; `again` is the command that repeats it."""
        self.close()
        self._print(run_line(run, self._width, result.trials), _STYLES[run.ended])
        if not run.ok:
            for line in failure_lines(run, again):
                self._print(line)

    def end_file(self, result: FileResult) -> None:
        """A file has ended."""
        for line in repeated_lines(result.repeated):
            self._print(line)

    def end(self, results: Sequence[FileResult], seconds: float, code: int) -> None:
        """Everything has ended."""
        if self._json:
            data = {"files": [as_data(result) for result in results], "seconds": seconds, "exit_code": code}
            print(json.dumps(data, ensure_ascii=not takes_all(self._out)), file=self._out, flush=True)
        else:
            self._print(summary(results, seconds), "green" if code == 0 else "bold red")
