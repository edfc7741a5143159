"""`run`, `sim` and `validate`. The docstrings are the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import (
    HOW,
    STORIES,
    WHICH,
    WRITTEN,
    Files,
    Json,
    Limit,
    Settings,
    Switch,
    TimeLimit,
    Workers,
    Written,
    app,
    at_least,
    seeds_of,
    settings_of,
)
from ..options._connection import OutwardOptions

if TYPE_CHECKING:
    from ..run._run import RunOptions

MOST_SPEED: Final = 1000.0
"""Beyond it Trio's own time counts for more than the waits."""


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
    seed: Annotated[int | None, Parameter(metavar="N", group=WHICH)] = None
    """Run with this seed alone."""
    seeds: Annotated[str | None, Parameter(metavar="SEEDS", group=WHICH)] = None
    """Run with these seeds instead of the file's: 7 or 1,7,42 or 1..500."""
    trials: Annotated[int | None, Parameter(metavar="N", group=WHICH)] = None
    """Run each cell this many times."""
    workers: Annotated[Workers, Parameter(group=HOW)] = 1
    """How many runs at once, each in its own process; auto: one for each processor."""
    fail_fast: Annotated[Switch, Parameter(group=HOW)] = False
    """Stop after the first failed run."""
    check_determinism: Annotated[Literal["first", "all", "off"], Parameter(group=HOW)] = "first"
    """Which cells run again, with another hash seed, to compare the logs: of the first seed, all, or none."""
    time_limit: TimeLimit = None
    speed: Annotated[float, Parameter(metavar="N", group=HOW)] = 1.0
    """In worlds on real time, such as websocket: seconds of the world that pass in one while all wait."""
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
    json: Annotated[Switch, Parameter(group=WRITTEN)] = False
    """Print the results as JSON, and nothing else."""
    verbose: Annotated[Switch, Parameter(name=["-v", "--verbose"], group=WRITTEN)] = False
    """Print a line for every run, and every check."""

    def options(self, outward: OutwardOptions, until: float | None = None) -> RunOptions:
        """Return the options of a run, checked. Blocks on the disk. Raises ConfigError."""
        from ..run._run import RunOptions

        if self.seed is not None and self.seeds is not None:
            raise ConfigError("give --seed or --seeds, not both", "--seeds")
        if not 0 < self.speed <= MOST_SPEED:
            raise ConfigError(f"must be more than 0 and at most {MOST_SPEED:g}", "--speed")
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
            time_limit=self.time_limit,
            speed=self.speed,
            access=outward.access(),
            json=self.json,
            verbose=self.verbose,
        )

    def _seeds(self) -> list[int] | None:
        if self.seed is not None:
            return [self.seed]
        return seeds_of(self.seeds) if self.seeds is not None else None


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


_NOTHING = RunOptionGroup()
_ALONE = OutwardOptions()


@app.command(sort_key=20, group=STORIES, usage="Usage: lmos-actors run [OPTIONS] FILES|FOLDERS...")
def run(
    files: Files,
    /,
    *,
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

    Parameters
    ----------
    update_recordings
        Run the real agents in place of their replays, and write the logs anew.
    """
    from ..run._folders import files_in

    if update_recordings:
        from ..run._record import record_files

        return record_files(files_in(files), given.options(outward))
    from ..run._run import run_files

    return run_files(files_in(files), given.options(outward))


@app.command(sort_key=21, group=STORIES, usage="Usage: lmos-actors sim [OPTIONS] FILES|FOLDERS...")
def sim(
    files: Files,
    /,
    *,
    until: Annotated[Limit | None, Parameter(group=HOW, show_default=False)] = None,
    speed: Annotated[str, Parameter(group=HOW, metavar="SPEED")] = "max",
    given: RunOptionGroup = _NOTHING,
    outward: OutwardOptions = _ALONE,
) -> int:
    """Run simulations: as run does, with options for the virtual time that they take.

    lmos-actors sim scenarios/gossip.yaml --seeds 1..20 -j 4 --csv series.csv

    lmos-actors sim scenarios/gossip.yaml --until 2m --html gossip.html

    Parameters
    ----------
    until
        End at this instant of virtual time at the latest, instead of the file's stop.
    speed
        max: as fast as it goes.
    """
    from ..run._folders import files_in
    from ..run._run import run_files

    if speed in ("1x", "10x"):
        raise ConfigError(f'"{speed}" is not available yet', "--speed")
    if speed != "max":
        raise ConfigError(f'"{speed}" is not max', "--speed")
    return run_files(files_in(files), given.options(outward, until))


@app.command(sort_key=10, group=STORIES, usage="Usage: lmos-actors validate [OPTIONS] FILES|FOLDERS...")
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
