"""The commands `replay` and `diff`. Their docstrings are their help texts."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import Annotated

from cyclopts import Parameter

from .._app import WRITTEN, Json, RunNumber, at_least, whole
from ..options._replay import ReplayOptions

_USUAL = ReplayOptions()


def replay(log: Path, /, *, options: ReplayOptions = _USUAL) -> int:
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
    """
    options.check()
    if options.as_scenario is not None:
        from lmos_actors.recording import as_scenario

        return as_scenario(str(log), options.as_scenario, options.run)
    if options.html is not None:
        from ..run._log_page import write_log_page

        return write_log_page(str(log), options.html, options.run, force=options.force)
    from ..run._replay import replay_log

    return replay_log(str(log), options)


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
