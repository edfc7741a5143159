"""`explore`. The docstring is the help."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import Annotated, Final

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import (
    HOW,
    WRITTEN,
    Json,
    Settings,
    Switch,
    TimeLimit,
    Workers,
    at_least,
    decimal,
    settings_of,
    whole,
)

MOST_RUNS: Final = 10_000_000
MOST_MINUTES: Final = 100_000


def explore(
    file: Path,
    /,
    *,
    runs: Annotated[int | None, Parameter(converter=whole, metavar="N", group=HOW)] = None,
    minutes: Annotated[float | None, Parameter(converter=decimal, metavar="N", group=HOW)] = None,
    workers: Annotated[Workers, Parameter(group=HOW)] = 1,
    seed: Annotated[int, Parameter(converter=whole, metavar="N", group=HOW)] = 1,
    all_: Annotated[Switch, Parameter(name="--all", group=HOW)] = False,
    fresh: Annotated[Switch, Parameter(group=HOW)] = False,
    time_limit: TimeLimit = None,
    set_: Settings = None,
    json: Annotated[Json, Parameter(group=WRITTEN)] = False,
) -> int:
    """Search for faults and seeds with which a file fails, and shrink what is found to a file of its own.

    The key explore of a scenario or simulation file says which faults may be drawn, how many, on whom:

    explore: {faults: [crash, pause], at_most: 3, of: peer}

    lmos-actors explore scenarios/gossip.yaml --runs 1000 -j auto

    lmos-actors explore scenarios/gossip.yaml --minutes 10 --all

    Runs that reach new states are the parents of the next ones. A failure is made as small as it goes: \
fewer faults, agents, steps, a shorter run. It is written beside the file as NAME.found-1.yaml, with its \
log, and fails each time it is run: lmos-actors run scenarios/gossip.found-1.yaml

    The same seed finds the same, however many runs go on at once. How far a search is stands in \
.lmos/explore; the same command goes on from there, after Ctrl-C too, and begins anew where the file or its \
agents have changed.

    Exit codes: 0 nothing failed; 1 something did; 2 the file or the usage is wrong; 3 could not run; 4 a \
failure does not repeat with the same seed; 124 a run took too long.

    Parameters
    ----------
    runs
        How many runs the search has, with those of earlier commands.
    minutes
        How long to search, instead of a number of runs.
    workers
        How many runs at once, each in its own process; auto: one for each processor.
    seed
        The seed of the search, from which schedules and seeds are drawn.
    all_
        Go on after the first failure, up to ten that differ.
    fresh
        Forget what was searched and found before; files that were written stay.
    """
    from ..explore import ExploreOptions, explore_file

    _check_how_far(runs, minutes)
    options = ExploreOptions(
        settings=settings_of(set_),
        runs=runs,
        minutes=minutes,
        workers=workers,
        seed=seed,
        all=all_,
        fresh=fresh,
        time_limit=time_limit,
        json=json,
    )
    return explore_file(str(file), options)


def _check_how_far(runs: int | None, minutes: float | None) -> None:
    """Refuse a search without an end, with two, or with one that is out of range. Raises ConfigError."""
    if (runs is None) == (minutes is None):
        why = "give --runs or --minutes" + (", not both" if runs is not None else ": how far to search")
        raise ConfigError(why, "--runs")
    at_least(runs, 1, "--runs")
    if runs is not None and runs > MOST_RUNS:
        raise ConfigError(f"must be at most {MOST_RUNS}", "--runs")
    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        raise ConfigError(f"must be more than 0 and at most {MOST_MINUTES}", "--minutes")
