"""The options of `run` and `sim`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import (
    HOW,
    WHICH,
    WRITTEN,
    Force,
    Limit,
    Settings,
    Switch,
    TimeLimit,
    Workers,
    Written,
    at_least,
    seeds_of,
    settings_of,
    whole,
)
from ._connection import OutwardOptions

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.system import RemoteAccess

MOST_SPEED: Final = 1000.0
"""Maximum pace: beyond it Trio's own time exceeds the waits."""

MOST_PORT: Final = 65_535

_ALONE = OutwardOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `run`."""

    until: Annotated[Limit | None, Parameter(parse=False)] = None  # of `sim`
    speed: Annotated[str | None, Parameter(group=HOW, metavar="N")] = "1"
    """In worlds on real time, such as websocket: seconds of the world that pass in one while all wait. \
With --watch in the others too; max: as fast as it goes."""
    update_recordings: Annotated[Switch, Parameter(group=HOW)] = False
    """Run the real agents in place of their replays, and write the logs anew."""
    set_: Settings = None
    only: Annotated[str | None, Parameter(name=["-k", "--only"], metavar="WORDS", group=WHICH)] = None
    """Only runs whose name and values have these words: "Berlin and not seed=7", "reject or drop"."""
    labels: Annotated[
        list[str] | None,
        Parameter(name=["-l", "--label"], negative=(), metavar="NAME=VALUE", group=WHICH),
    ] = None
    """Only files with this label: team=travel, team!=travel, or just team. Several: all of them."""
    seed: Annotated[int | None, Parameter(converter=whole, metavar="N", group=WHICH)] = None
    """Run only with this seed."""
    seeds: Annotated[str | None, Parameter(metavar="SEEDS", group=WHICH)] = None
    """Run with these seeds instead of the file's: 7 or 1,7,42 or 1..500."""
    trials: Annotated[int | None, Parameter(converter=whole, metavar="N", group=WHICH)] = None
    """Run each cell this many times."""
    workers: Annotated[Workers, Parameter(group=HOW)] = 1
    """How many runs at once, each in its own process; auto: one for each processor."""
    fail_fast: Annotated[Switch, Parameter(group=HOW)] = False
    """Stop after the first failed run."""
    check_determinism: Annotated[Literal["first", "all", "off"], Parameter(group=HOW)] = "first"
    """Which cells run again, with another hash seed, to compare the logs: of the first seed, all, or none."""
    time_limit: TimeLimit = None
    watch: Annotated[Switch, Parameter(group=HOW)] = False
    """Serve a page on this machine that shows the runs while they go on, and stay until Ctrl-C."""
    port: Annotated[int | None, Parameter(converter=whole, metavar="N", group=HOW)] = None
    """The port of that page, instead of one that is free."""
    log: Written = None
    """The messages of all runs, as JSON lines; lmos-actors replay and diff read them."""
    junit: Written = None
    """JUnit XML, for CI systems."""
    html: Written = None
    """One self-contained HTML file: verdicts, timelines, sequence diagrams, series."""
    sequence: Written = None
    """A Mermaid sequence diagram of the first run that failed, else of the first."""
    csv: Written = None
    """The measured series, as a table."""
    force: Annotated[Force, Parameter(group=WRITTEN)] = False
    json: Annotated[Switch, Parameter(group=WRITTEN)] = False
    """Print the results as JSON, and nothing else."""
    verbose: Annotated[Switch, Parameter(name=["-v", "--verbose"], group=WRITTEN)] = False
    """Print a line for every run, and every check."""
    outward: OutwardOptions = _ALONE

    def check(self) -> None:
        """Raise ConfigError for invalid values and for options that conflict."""
        if self.speed == "max" and not self.watch:
            raise ConfigError("max is for --watch: without, virtual time goes as fast as it can", "--speed")
        if self.update_recordings and self.watch:
            raise ConfigError("recordings are written without --watch", "--update-recordings")
        self._check_values()

    def _check_values(self) -> None:
        if self.seed is not None and self.seeds is not None:
            raise ConfigError("give --seed or --seeds, not both", "--seeds")
        at_least(self.trials, 1, "--trials")
        _ = self.pace, self.settings, self.seed_list, self.access
        if not self.watch:
            if self.port is not None:
                raise ConfigError("is the port of the page of --watch", "--port")
            return
        if self.workers != 1:
            raise ConfigError("runs that are watched go one at a time: leave it out with --watch", "-j")
        if self.port is not None and not 0 <= self.port <= MOST_PORT:
            raise ConfigError(f"must be a port: from 1 to {MOST_PORT}, or 0 for one that is free", "--port")

    @cached_property
    def settings(self) -> dict[str, str]:
        """The values of `--set`, by name. Raises ConfigError."""
        return settings_of(self.set_)

    @cached_property
    def seed_list(self) -> list[int] | None:
        """The seeds that replace the file's seeds. Raises ConfigError."""
        if self.seed is not None:
            return [self.seed]
        return seeds_of(self.seeds) if self.seeds is not None else None

    @cached_property
    def access(self) -> RemoteAccess:
        """The access to the remote agents that files name. Blocks on the disk. Raises ConfigError."""
        return self.outward.access()

    @property
    def reports(self) -> dict[str, Path | None]:
        """The files to write, by kind."""
        return {
            "log": self.log,
            "junit": self.junit,
            "html": self.html,
            "sequence": self.sequence,
            "csv": self.csv,
        }

    @property
    def pace(self) -> float | None:
        """The seconds of virtual time per real second, or None for no limit. Raises ConfigError."""
        text = self.speed
        if text is None:
            return 1.0
        if text == "max":
            return None
        from lmos_actors._core import number_of

        try:
            speed = number_of(text.removesuffix("x"))
        except ValueError:
            raise ConfigError(f'"{text}" is neither a number nor max', "--speed") from None
        if not 0 < speed <= MOST_SPEED:
            raise ConfigError(f"must be more than 0 and at most {MOST_SPEED:g}", "--speed")
        return speed


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SimOptions(RunOptions):
    """The options of `sim`."""

    until: Annotated[Limit | None, Parameter(group=HOW, show_default=False)] = None
    """End at this instant of virtual time at the latest, instead of the file's stop."""
    speed: Annotated[str | None, Parameter(group=HOW, metavar="N")] = None
    """Seconds of virtual time that pass in one, with --watch (1 there by default); \
max: as fast as it goes."""
    update_recordings: Annotated[bool, Parameter(parse=False)] = False

    def check(self) -> None:
        """See `RunOptions`."""
        self._check_values()
        if self.speed not in (None, "max") and not self.watch:
            raise ConfigError("takes --watch: nobody sees how fast time goes without", "--speed")
