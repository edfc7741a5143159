"""Output of `explore`: progress on standard error, findings on standard output, or only JSON."""

from __future__ import annotations

import json
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._core import printable
from lmos_actors.reports import clean
from lmos_actors.scenario.explore import faults_of, size_text, weight_of

from .._texts import takes_all

if TYPE_CHECKING:
    from lmos_actors.scenario.explore import Find

EVERY: Final = 10.0
"""Seconds between two lines of progress without a terminal."""

OFTEN: Final = 0.1
_WIDTH: Final = 100


class ExploreShow:
    """The printer of the progress and the result of `explore`; with `json`, only of the result."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._out = sys.stdout  # kept: agents print to another
        self._terminal = sys.stderr.isatty()
        self._due = monotonic() + (OFTEN if self._terminal else EVERY)
        self._drawn = False

    def line(self, text: str) -> None:
        """Print a line of the result."""
        self._clear()
        if not self._json:
            print(printable(text), file=self._out, flush=True)

    def note(self, text: str) -> None:
        """Print a line about the work, on standard error."""
        self._clear()
        print(printable(text), file=sys.stderr, flush=True)

    def progress(self, text: str) -> None:
        """Show the progress: in place on a terminal, else a line from time to time; never with `json`."""
        now = monotonic()
        if self._json or now < self._due:
            return
        self._due = now + (OFTEN if self._terminal else EVERY)
        if self._terminal:
            self._drawn = True
            print(f"\r{printable(text)[:_WIDTH]:{_WIDTH}}", end="", file=sys.stderr, flush=True)
        else:
            print(printable(text), file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._drawn:
            self._drawn = False
            print(f"\r{'':{_WIDTH}}\r", end="", file=sys.stderr, flush=True)

    def result(self, data: dict[str, Any]) -> None:
        """Print the result as JSON, if that is requested."""
        self._clear()
        if self._json:
            text = json.dumps(clean(data), ensure_ascii=not takes_all(self._out))
            print(text, file=self._out, flush=True)


def find_lines(find: Find) -> list[str]:
    """Return a finding as lines."""
    lines = [f"found  {find.sentence or find.failure}"]
    if find.difference:
        how = "shrunk, but" if find.shrunk else "not shrunk, as"
        lines.append(f" {how} two runs of it differ: {find.difference}")
    elif not find.can_be_shrunk:
        lines.append(" not shrunk, as each run on the way would take as long")
    elif not find.shrunk:
        lines.append(" not shrunk to the end")
    if find.file:
        lines.append(f" wrote {find.file}  ({size_text(find.data)})")
        lines += [f" wrote {find.log}"] if find.log else []
        lines.append(f" again:  {find.again}")
    return lines


def find_data(find: Find) -> dict[str, Any]:
    """Return a finding as plain data."""
    return {
        "failure": find.failure,
        "sentence": find.sentence,
        "file": find.file or None,
        "log": find.log or None,
        "again": find.again if find.file else None,
        "run": find.run,
        "seed": find.data["seeds"][0],
        "agents": weight_of(find.data)[1],
        "faults": len(faults_of(find.data)),
        "shrunk": find.shrunk,
        "difference": find.difference or None,
    }
