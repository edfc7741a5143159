"""`run`, `sim` and `validate`. The docstrings are the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import (
    HOW,
    WHICH,
    WRITTEN,
    Files,
    Force,
    Json,
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
from ..options._connection import OutwardOptions

if TYPE_CHECKING:
    from ..run._run import RunOptions
    from ..run._watch import WatchOptions

MOST_SPEED: Final = 1000.0
"""Beyond it Trio's own time counts for more than the waits."""

MOST_PORT: Final = 65_535


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptionGroup:
    """The options that `run` and `sim` have in common."""

    set_: Settings = None
    k: Annotated[str | None, Parameter(name=["-k", "--only"], metavar="WORDS", group=WHICH)] = None
    """Only runs whose name and values have these words: "Berlin and not seed=7", "reject or drop"."""
    label: Annotated[
        list[str] | None,
        Parameter(name=["-l", "--label"], negative=(), metavar="NAME=VALUE", group=WHICH),
    ] = None
    """Only files with this label: team=travel, team!=travel, or just team. Several: all of them."""
    seed: Annotated[int | None, Parameter(converter=whole, metavar="N", group=WHICH)] = None
    """Run with this seed alone."""
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

    def options(
        self, outward: OutwardOptions, speed: str | None = None, until: float | None = None
    ) -> RunOptions:
        """Return the options of a run, checked. Blocks on the disk. Raises ConfigError."""
        from ..run._run import RunOptions

        if self.seed is not None and self.seeds is not None:
            raise ConfigError("give --seed or --seeds, not both", "--seeds")
        pace = _pace(speed)
        at_least(self.trials, 1, "--trials")
        return RunOptions(
            settings=settings_of(self.set_),
            seeds=self._seeds(),
            trials=self.trials,
            only=self.k,
            labels=tuple(self.label or ()),
            workers=self.workers,
            fail_fast=self.fail_fast,
            determinism=self.check_determinism,
            until=until,
            written={
                "log": _text(self.log),
                "junit": _text(self.junit),
                "html": _text(self.html),
                "sequence": _text(self.sequence),
                "csv": _text(self.csv),
            },
            force=self.force,
            time_limit=self.time_limit,
            speed=1.0 if pace is None else pace,
            access=outward.access(),
            json=self.json,
            verbose=self.verbose,
            watch=self._watch(pace),
        )

    def _watch(self, pace: float | None) -> WatchOptions | None:
        if not self.watch:
            if self.port is not None:
                raise ConfigError("is the port of the page of --watch", "--port")
            return None
        from ..run._watch import WatchOptions

        if self.workers != 1:
            raise ConfigError("runs that are watched go one at a time: leave it out with --watch", "-j")
        if self.port is not None and not 0 <= self.port <= MOST_PORT:
            raise ConfigError(f"must be a port: from 1 to {MOST_PORT}, or 0 for one that is free", "--port")
        return WatchOptions(port=self.port or 0, speed=pace)

    def _seeds(self) -> list[int] | None:
        if self.seed is not None:
            return [self.seed]
        return seeds_of(self.seeds) if self.seeds is not None else None


def _pace(text: str | None) -> float | None:
    """Return a speed, None for the greatest. Raises ConfigError."""
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


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


_NOTHING = RunOptionGroup()
_ALONE = OutwardOptions()


def run(
    files: Files,
    /,
    *,
    speed: Annotated[str, Parameter(group=HOW, metavar="N")] = "1",
    update_recordings: Annotated[Switch, Parameter(group=HOW)] = False,
    given: RunOptionGroup = _NOTHING,
    outward: OutwardOptions = _ALONE,
) -> int:
    """Run scenario and simulation files: every combination of their matrix with every seed.

    lmos-actors run scenarios/weather.yaml

    lmos-actors run scenarios --seeds 1..20 -j 4 --fail-fast

    lmos-actors run scenarios/weather.yaml --set city=Rome --log messages.jsonl

    lmos-actors run scenarios/backpressure.yaml -k "reject or drop"

    lmos-actors run scenarios/*.yaml -l tier=smoke --junit junit.xml --html report.html

    lmos-actors run scenarios/weather.yaml --watch --speed 0.5

    Parameters
    ----------
    speed
        In worlds on real time, such as websocket: seconds of the world that pass in one while all wait. \
With --watch in the others too; max: as fast as it goes.
    update_recordings
        Run the real agents in place of their replays, and write the logs anew.
    """
    from ..run._folders import files_in

    if speed == "max" and not given.watch:
        raise ConfigError("max is for --watch: without, virtual time goes as fast as it can", "--speed")
    if update_recordings:
        from ..run._record import record_files

        if given.watch:
            raise ConfigError("recordings are written without --watch", "--update-recordings")
        return record_files(files_in(files), given.options(outward, speed))
    from ..run._run import run_files

    return run_files(files_in(files), given.options(outward, speed))


def sim(
    files: Files,
    /,
    *,
    until: Annotated[Limit | None, Parameter(group=HOW, show_default=False)] = None,
    speed: Annotated[str | None, Parameter(group=HOW, metavar="N")] = None,
    given: RunOptionGroup = _NOTHING,
    outward: OutwardOptions = _ALONE,
) -> int:
    """Run simulations: as run does, with options for the virtual time that they take.

    lmos-actors sim scenarios/gossip.yaml --seeds 1..20 -j 4 --csv series.csv

    lmos-actors sim scenarios/gossip.yaml --until 2m --html gossip.html

    lmos-actors sim scenarios/gossip.yaml --watch --speed 10

    Parameters
    ----------
    until
        End at this instant of virtual time at the latest, instead of the file's stop.
    speed
        Seconds of virtual time that pass in one, with --watch (1 there by default); max: as fast as it goes.
    """
    from ..run._folders import files_in
    from ..run._run import run_files

    options = given.options(outward, speed, until)
    if speed not in (None, "max") and not given.watch:
        raise ConfigError("takes --watch: nobody sees how fast time goes without", "--speed")
    return run_files(files_in(files), options)


def validate(
    files: Files,
    /,
    *,
    set_: Settings = None,
    json: Json = False,
) -> int:
    """Check files without running them: keys, names, types, classes, inputs.

    lmos-actors validate scenarios

    lmos-actors validate scenarios/weather.yaml --set city=Rome --json
    """
    from ..run._folders import files_in
    from ..run._run import read_files

    return read_files(files_in(files, deployments=True), settings_of(set_), json=json)
