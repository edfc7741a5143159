"""The folder of a search, `.lmos/explore/NAME` in the project: how far it is, and what it has found.

`runs.jsonl` has a line for each run, in the order of the search, below a head that says what was searched. As
a search is drawn from its runs alone, these lines are all that is needed to go on with it. `found.json` has
what was found. Both are for the next `explore` of the same file; nothing else reads them.
"""

from __future__ import annotations

import fcntl
import json
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration

from ._runs import TIME_LIMIT, Explored
from ._search import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TextIO

    from ._plain import Data

FORMAT: Final = 3
"""The number of what is written here and of what a search draws: the runs of another are of no use."""
MOST_BYTES: Final = 1 << 30
"""The largest file of runs that is read."""


@attrs.define(kw_only=True)
class Find:
    """A failure that was found: its name, the file that fails so, and what is known of it.

    `file` and `log` are "" until they are written; `shrunk` is false while the file may get simpler.
    """

    failure: str
    data: Data
    run: int
    shrunk: bool = False
    file: str = ""
    log: str = ""
    sentence: str = ""
    difference: str = ""
    """Where two runs of the file differ, "" if they do not."""
    limit: float | None = None
    """The time limit that its runs had, in seconds, if one was given."""

    @property
    def can_be_shrunk(self) -> bool:
        """Whether it repeats, and its runs end by themselves."""
        return not self.difference and self.failure != TIME_LIMIT

    @property
    def again(self) -> str:
        """The command that repeats it."""
        words = ["lmos-actors", "run", self.file]
        if self.limit is not None:
            words += ["--time-limit", str(Duration(self.limit))]
        return shlex.join(words)


class Folder:
    """The folder of one search. Raises ConfigError if it is in use, OSError if it cannot be written.

    `write` writes a file as a whole, by its path and its text.
    """

    def __init__(self, root: Path, file: Path, write: Callable[[str, str], None]) -> None:
        inside = file.resolve().relative_to(root).with_suffix("")
        self.path = root / ".lmos" / "explore" / inside
        self.finds: list[Find] = []
        self.write = write
        self._runs: TextIO | None = None
        self._head: dict[str, Any] = {}

    def open(self, head: dict[str, Any], *, fresh: bool) -> tuple[list[Explored], bool]:
        """Return the runs of a search with this head, and whether there is one with another head.

        `finds` are those of either, unless it is to begin anew.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        place = self.path / "runs.jsonl"
        self._runs = place.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._runs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise ConfigError("is being explored already, by another command", str(self.path)) from None
        self._head = {"format": FORMAT, **head}
        lines = [] if fresh else self._lines()
        known = bool(lines) and lines[0] == self._head
        if not fresh:
            self.finds = self._read_finds()
        if not known:
            self.begin_anew()
        changed = bool(lines) and not known
        return [_run_of(line) for line in lines[1:]] if known else [], changed

    def begin_anew(self) -> None:
        """Forget the runs."""
        assert self._runs is not None
        self._runs.truncate(0)
        self._write_line(self._head)

    def _lines(self) -> list[Any]:
        """Return the lines that are whole, and cut what is behind them."""
        assert self._runs is not None
        self._runs.seek(0)
        found: list[Any] = []
        whole = 0
        for line in self._runs.read(MOST_BYTES).splitlines(keepends=True):
            try:
                found.append(json.loads(line) if line.endswith("\n") else None)
            except ValueError:
                found.append(None)
            if found[-1] is None:
                found.pop()
                break
            whole += len(line.encode())
        self._runs.truncate(whole)
        return found

    def add(self, run: Explored) -> None:
        """Keep one more run."""
        outcome = run.outcome
        self._write_line(
            {
                "states": outcome.states,
                "instants": outcome.instants,
                "failures": run.failures,
                "void": outcome.void,
                "slow": run.slow,
                "virtual": run.virtual,
            }
        )

    def _write_line(self, data: dict[str, Any]) -> None:
        assert self._runs is not None
        self._runs.write(json.dumps(data) + "\n")
        self._runs.flush()

    def _read_finds(self) -> list[Find]:
        with suppress(OSError, ValueError, TypeError):
            return [Find(**each) for each in json.loads((self.path / "found.json").read_text("utf-8"))]
        return []

    def keep_finds(self) -> None:
        """Write what was found."""
        text = json.dumps([attrs.asdict(find) for find in self.finds], indent=1)
        self.write(str(self.path / "found.json"), text + "\n")

    def close(self) -> None:
        """Let others have the folder."""
        if self._runs is not None:
            self._runs.close()


def _run_of(line: dict[str, Any]) -> Explored:
    failures: Sequence[str] = line["failures"]
    outcome = Outcome(
        states=tuple(line["states"]),
        instants=tuple(line["instants"]),
        failure=failures[0] if failures else None,
        void=line["void"],
    )
    slow: bool = line["slow"]
    return Explored(outcome=outcome, failures=tuple(failures), virtual=line["virtual"], slow=slow)


def free_name(file: Path) -> str:
    """Return a name beside a file for what was found, which no file has yet: `election.found-1`."""
    number = 1
    while any(
        file.with_name(f"{file.stem}.found-{number}{ending}").exists() for ending in (".yaml", ".jsonl")
    ):
        number += 1
    return str(file.with_name(f"{file.stem}.found-{number}"))
