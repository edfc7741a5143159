"""`replay` and `diff`. The docstrings are the help."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import HOW, WHICH, WRITTEN, Force, Json, RunNumber, Time, TimeLimit, at_least, whole

if TYPE_CHECKING:
    from lmos_actors.scenario.run import StopPoint


def replay(
    log: Path,
    /,
    *,
    run_: RunNumber = None,
    file: Annotated[Path | None, Parameter(metavar="FILE", group=WHICH)] = None,
    at: Annotated[Time | None, Parameter(group=HOW, show_default=False)] = None,
    break_: Annotated[str | None, Parameter(name="--break", metavar="WORDS", group=HOW)] = None,
    agent: Annotated[str | None, Parameter(metavar="NAME", group=WRITTEN)] = None,
    as_scenario: Annotated[str | None, Parameter(metavar="FILE", group=WRITTEN)] = None,
    html: Annotated[str | None, Parameter(metavar="FILE", group=WRITTEN)] = None,
    force: Annotated[Force, Parameter(group=WRITTEN)] = False,
    time_limit: TimeLimit = None,
    json: Annotated[Json, Parameter(group=WRITTEN)] = False,
) -> int:
    """Run a recorded run again: compare it with its log, or stop in it and show the state of all agents.

    lmos-actors replay messages.jsonl

    lmos-actors replay messages.jsonl --run 3 --at 41.2s

    lmos-actors replay messages.jsonl --break "agent=weather action=getWeather"

    lmos-actors replay messages.jsonl --break "agent=weather kind=crashed" --agent weather

    lmos-actors replay messages.jsonl --break n=117

    lmos-actors replay weather.jsonl --as-scenario weather.yaml

    lmos-actors replay weather.jsonl --html weather.html

    run --log writes such logs; each names its scenario file, its values and its seed.

    Exit codes: 0 equal, 2 the log or the usage is wrong or the run never reached that point, 3 it could not \
run, 4 the run differs, 124 time limit.

    Parameters
    ----------
    log
        A message log.
    file
        The scenario file, if it has moved.
    at
        Stop after everything of this instant of virtual time.
    break_
        Stop at the first record with all of these: agent, action, property, event, kind, from, \
verb, id, trace, n (its number in the log), nth=3 (the third such record).
    agent
        Show this agent alone; of a population or a supervisor, all that are in it.
    as_scenario
        Run nothing, and write a scenario file that asks replays for what was asked for in the log, and \
expects the same answers. Also of logs that record and trace have written, or the page of a node: these do \
not run again otherwise.
    html
        Run nothing, and write a page with the messages of any such log, as run --html does for a run.
    """
    given = {"--file": file, "--at": at, "--break": break_, "--agent": agent}
    if force and html is None:
        raise ConfigError("goes with --html", "--force")
    if as_scenario is not None or html is not None:
        return _write(log, as_scenario, html, at_least(run_, 1, "--run"), given, force=force)
    from ..run._replay import ReplayOptions, replay_log

    at_least(run_, 1, "--run")
    point = _point(at, break_)
    if agent is not None and point is None:
        raise ConfigError("shows an agent where the run is stopped: give --at or --break too", "--agent")
    options = ReplayOptions(
        run=run_,
        file=str(file) if file is not None else None,
        point=point,
        agent=agent,
        time_limit=time_limit,
        json=json,
    )
    return replay_log(str(log), options)


def _point(at: float | None, break_: str | None) -> StopPoint | None:
    """Return where to stop a run, None for nowhere. Raises ConfigError."""
    from lmos_actors.scenario.run import StopPoint, read_break

    if at is not None and break_ is not None:
        raise ConfigError("give --at or --break, not both", "--at")
    return StopPoint(at=at) if at is not None else read_break(break_) if break_ is not None else None


def _write(
    log: Path,
    scenario: str | None,
    page: str | None,
    number: int | None,
    given: dict[str, Any],
    *,
    force: bool,
) -> int:
    """Write the scenario or the page of a log. Raises ConfigError."""
    if scenario is not None:
        return _write_scenario(log, scenario, number, {**given, "--html": page})
    return _write_page(log, str(page), number, given, force=force)


def _write_scenario(log: Path, out: str, number: int | None, given: dict[str, Any]) -> int:
    """Write the scenario of a log; `given` are options that say how to run it. Raises ConfigError."""
    from lmos_actors.recording import as_scenario

    _check_alone(given, "--as-scenario")
    return as_scenario(str(log), out, number)


def _write_page(log: Path, out: str, number: int | None, given: dict[str, Any], *, force: bool) -> int:
    """Write the page of a log; `given` are options that say how to run it. Raises ConfigError."""
    from ..run._log_page import write_log_page

    _check_alone(given, "--html")
    return write_log_page(str(log), out, number, force=force)


def _check_alone(given: dict[str, Any], option: str) -> None:
    extra = next((name for name, value in given.items() if value is not None), None)
    if extra is not None:
        raise ConfigError(f"goes with a run, and {option} runs nothing", extra)


def diff(
    first: Path,
    second: Path,
    /,
    *,
    run_: RunNumber = None,
    context: Annotated[int, Parameter(converter=whole, metavar="N", group=WRITTEN)] = 3,
    json: Annotated[Json, Parameter(group=WRITTEN)] = False,
) -> int:
    """Compare two message logs and show where they part, side by side.

    lmos-actors diff monday.jsonl tuesday.jsonl

    lmos-actors diff monday.jsonl tuesday.jsonl --run 2 --context 10

    Logs of several runs are compared run by run, up to the first difference.

    Exit codes: 0 equal, 1 different, 2 one cannot be read.

    Parameters
    ----------
    first
        A message log.
    second
        Another one.
    context
        How many records to show before and after the difference.
    """
    from ..run._diff import diff_logs

    at_least(run_, 1, "--run")
    at_least(context, 0, "--context")
    return diff_logs(str(first), str(second), run=run_, context=context, json=json)
