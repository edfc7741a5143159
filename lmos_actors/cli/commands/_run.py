"""The commands `run`, `sim` and `validate`. Their docstrings are their help texts."""

from __future__ import annotations

from .._app import Files, Json, Settings, settings_of
from ..options._run import RunOptions, SimOptions

_RUN = RunOptions()
_SIM = SimOptions()


def run(files: Files, /, *, options: RunOptions = _RUN) -> int:
    """Run scenario and simulation files: every combination of their matrix with every seed.

    lmos-actors run scenarios/weather.yaml

    lmos-actors run scenarios --seeds 1..20 -j 4 --fail-fast

    lmos-actors run scenarios/weather.yaml --set city=Rome --log messages.jsonl

    lmos-actors run scenarios/backpressure.yaml -k "reject or drop"

    lmos-actors run scenarios/*.yaml -l tier=smoke --junit junit.xml --html report.html

    lmos-actors run scenarios/weather.yaml --watch --speed 0.5
    """
    from ..run._folders import files_in

    options.check()
    if options.update_recordings:
        from ..run._record import record_files

        return record_files(files_in(files), options)
    from ..run._run import run_files

    return run_files(files_in(files), options)


def sim(files: Files, /, *, options: SimOptions = _SIM) -> int:
    """Run simulations: as run does, with options for the virtual time that they take.

    lmos-actors sim scenarios/gossip.yaml --seeds 1..20 -j 4 --csv series.csv

    lmos-actors sim scenarios/gossip.yaml --until 2m --html gossip.html

    lmos-actors sim scenarios/gossip.yaml --watch --speed 10
    """
    from ..run._folders import files_in
    from ..run._run import run_files

    options.check()
    return run_files(files_in(files), options)


def validate(files: Files, /, *, set_: Settings = None, json: Json = False) -> int:
    """Check files without running them: keys, names, types, classes, inputs.

    lmos-actors validate scenarios

    lmos-actors validate scenarios/weather.yaml --set city=Rome --json
    """
    from ..run._folders import files_in
    from ..run._run import read_files

    return read_files(files_in(files, deployments=True), settings_of(set_), json=json)
