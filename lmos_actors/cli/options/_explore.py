"""The options of `explore`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

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

if TYPE_CHECKING:
    from lmos_actors.scenario.explore import SearchRequest

MOST_RUNS: Final = 10_000_000
MOST_MINUTES: Final = 100_000


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExploreOptions:
    """The options of `explore`."""

    runs: Annotated[int | None, Parameter(converter=whole, metavar="N", group=HOW)] = None
    """How many runs the search has, with those of earlier commands."""
    minutes: Annotated[float | None, Parameter(converter=decimal, metavar="N", group=HOW)] = None
    """How long to search, instead of a number of runs."""
    workers: Annotated[Workers, Parameter(group=HOW)] = 1
    """How many runs at once, each in its own process; auto: one for each processor."""
    seed: Annotated[int, Parameter(converter=whole, metavar="N", group=HOW)] = 1
    """The seed of the search, from which schedules and seeds are drawn."""
    all_: Annotated[Switch, Parameter(name="--all", group=HOW)] = False
    """Go on after the first failure, up to ten that differ."""
    fresh: Annotated[Switch, Parameter(group=HOW)] = False
    """Forget what was searched and found before; files that were written stay."""
    time_limit: TimeLimit = None
    set_: Settings = None
    json: Annotated[Json, Parameter(group=WRITTEN)] = False

    @property
    def settings(self) -> dict[str, str]:
        """The values of `--set`, by name. Raises ConfigError."""
        return settings_of(self.set_)

    def request(self, file: str) -> SearchRequest:
        """Return the request to search a file. Raises ConfigError."""
        from lmos_actors.scenario.explore import SearchRequest

        return SearchRequest(
            file=file,
            settings=self.settings,
            runs=self.runs,
            minutes=self.minutes,
            workers=self.workers or os.cpu_count() or 1,
            seed=self.seed,
            all_failures=self.all_,
            fresh=self.fresh,
            time_limit=self.time_limit,
        )

    def check(self) -> None:
        """Raise ConfigError for a search without a limit, with two limits, or with a limit out of range."""
        runs, minutes = self.runs, self.minutes
        if (runs is None) == (minutes is None):
            why = "give --runs or --minutes" + (", not both" if runs is not None else ": how far to search")
            raise ConfigError(why, "--runs")
        at_least(runs, 1, "--runs")
        if runs is not None and runs > MOST_RUNS:
            raise ConfigError(f"must be at most {MOST_RUNS}", "--runs")
        if minutes is not None and not 0 < minutes <= MOST_MINUTES:
            raise ConfigError(f"must be more than 0 and at most {MOST_MINUTES}", "--minutes")
