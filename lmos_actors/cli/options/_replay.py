"""The options of `replay`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import HOW, WHICH, WRITTEN, Force, Json, RunNumber, Time, TimeLimit, at_least

if TYPE_CHECKING:
    from lmos_actors.scenario.run import StopPoint


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options of `replay`."""

    run: RunNumber = None
    file: Annotated[Path | None, Parameter(metavar="FILE", group=WHICH)] = None
    """The scenario file, if it has moved."""
    at: Annotated[Time | None, Parameter(group=HOW, show_default=False)] = None
    """Stop after all that happens at this instant of virtual time."""
    break_: Annotated[str | None, Parameter(name="--break", metavar="WORDS", group=HOW)] = None
    """Stop at the first record with all of these: agent, action, property, event, kind, from, \
verb, id, trace, n (its number in the log), nth=3 (the third such record)."""
    agent: Annotated[str | None, Parameter(metavar="NAME", group=WRITTEN)] = None
    """Show only this agent; for a population or a supervisor, all agents in it."""
    as_scenario: Annotated[str | None, Parameter(metavar="FILE", group=WRITTEN)] = None
    """Run nothing, and write a scenario file that asks replays for what was asked for in the log, and \
expects the same answers. Also of logs that record and trace have written, or the page of a node: these do \
not run again otherwise."""
    html: Annotated[str | None, Parameter(metavar="FILE", group=WRITTEN)] = None
    """Run nothing, and write a page with the messages of any such log, as run --html does for a run."""
    force: Annotated[Force, Parameter(group=WRITTEN)] = False
    time_limit: TimeLimit = None
    json: Annotated[Json, Parameter(group=WRITTEN)] = False

    @property
    def point(self) -> StopPoint | None:
        """The point at which to stop the run, or None if no point is given. Raises ConfigError."""
        from lmos_actors.scenario.run import StopPoint, read_break

        if self.at is not None and self.break_ is not None:
            raise ConfigError("give --at or --break, not both", "--at")
        if self.at is not None:
            return StopPoint(at=self.at)
        return None if self.break_ is None else read_break(self.break_)

    def check(self) -> None:
        """Raise ConfigError for conflicting options."""
        if self.force and self.html is None:
            raise ConfigError("goes with --html", "--force")
        at_least(self.run, 1, "--run")
        if self.as_scenario is not None:
            self._check_alone("--as-scenario")
        elif self.html is not None:
            self._check_alone("--html")
        elif self.point is None and self.agent is not None:
            raise ConfigError("shows an agent where the run is stopped: give --at or --break too", "--agent")

    def _check_alone(self, option: str) -> None:
        """Raise ConfigError if an option that runs nothing is combined with options about a run."""
        given = {"--file": self.file, "--at": self.at, "--break": self.break_, "--agent": self.agent}
        if option != "--html":
            given["--html"] = self.html
        extra = next((name for name, value in given.items() if value is not None), None)
        if extra is not None:
            raise ConfigError(f"goes with a run, and {option} runs nothing", extra)
