"""The folder of a search, `.lmos/explore/NAME` in the project: its progress and its finds.

`runs.jsonl` has a head that describes what was searched, then a line for each run, in the order of the
search. As a search depends on its runs alone, these lines are all that is needed to continue it. `found.json`
has the finds. Both files are for the next `explore` of the same file; nothing else reads them.
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
"""The version of the files here and of the way a search draws: runs of another version are of no use."""
MOST_BYTES: Final = 1 << 30
"""Maximum size of the file of runs, in bytes."""


@attrs.define(kw_only=True)
class Find:
    """A failure that was found: its name, the file that fails in this way, and further facts.

    `file` and `log` are "" until they are written. `shrunk` is false while the file may still become simpler.
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
    """The time limit of its runs in seconds, if one was given."""

    @property
    def can_be_shrunk(self) -> bool:
        """Whether the failure can be repeated, and its runs end by themselves."""
        return not self.difference and self.failure != TIME_LIMIT

    @property
    def again(self) -> str:
        """The command that repeats the failure."""
        words = ["lmos-actors", "run", self.file]
        if self.limit is not None:
            words += ["--time-limit", str(Duration(self.limit))]
        return shlex.join(words)


class Folder:
    """The folder of one search. Its methods raise OSError if it cannot be written.

    `write` writes a whole file, given its path and its text.
    """

    def __init__(self, root: Path, file: Path, write: Callable[[str, str], None]) -> None:
        inside = file.resolve().relative_to(root).with_suffix("")
        self.path = root / ".lmos" / "explore" / inside
        self.finds: list[Find] = []
        self.write = write
        self._runs: TextIO | None = None
        self._head: dict[str, Any] = {}

    def open(self, head: dict[str, Any], *, fresh: bool) -> tuple[list[Explored], bool]:
        """Return the known runs of a search with this head, and whether the folder had runs of another head.

        Unless `fresh`, the finds are read into `finds` in both cases. Raises ConfigError if another command
        uses the folder.
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
            self.finds = []
            with suppress(OSError, ValueError, TypeError):
                found = json.loads((self.path / "found.json").read_text("utf-8"))
                self.finds = [Find(**each) for each in found]
        if not known:
            self._runs.truncate(0)
            self._write_line(self._head)
        changed = bool(lines) and not known
        return [_run_of(line) for line in lines[1:]] if known else [], changed

    def _lines(self) -> list[Any]:
        """Return the complete lines of the file of runs, and truncate the file after them."""
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
        """Append a run to the file of runs."""
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

    def keep_finds(self) -> None:
        """Write the finds to their file."""
        text = json.dumps([attrs.asdict(find) for find in self.finds], indent=1)
        self.write(str(self.path / "found.json"), text + "\n")

    def close(self) -> None:
        """Release the folder for other commands."""
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
    """Return an unused name beside the file for a find, without an extension: `election.found-1`."""
    number = 1
    while any(
        file.with_name(f"{file.stem}.found-{number}{ending}").exists() for ending in (".yaml", ".jsonl")
    ):
        number += 1
    return str(file.with_name(f"{file.stem}.found-{number}"))
