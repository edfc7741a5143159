"""The commands, as their users see them: the docstrings are the help."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from lmos_actors._errors import ConfigError
from lmos_actors.files import Duration

from ._run import Options, read_files, run_files

SCHEMA_FILE = Path(".lmos/schema.json")

app = App(
    name="lmos-actors",
    help="""Run stories about agents, and judge them.

A scenario file says which agents there are, what happens to them, and what must hold. \
It runs on virtual time: minutes take milliseconds, and the same seed gives the same run.

Begin with: lmos-actors run scenarios/weather.yaml

Exit codes: 0 all passed, 1 a check failed, 2 a file or the usage is wrong, 3 could not run, \
4 not deterministic, 5 flaky, 124 time limit, 130 interrupted.""",
    help_format="plaintext",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)


def _duration(_: Any, tokens: Any) -> float:
    try:
        return float(Duration.parse(tokens[0].value))
    except ValueError as error:
        raise ValueError(str(error)) from None


def _seeds(text: str) -> list[int]:
    """Read `7`, `1,7,42` or `1..500`."""
    try:
        first, dots, last = text.partition("..")
        whole = range(int(first), int(last) + 1) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        whole = []
    if not whole[:1]:
        raise ConfigError(f'"{text}" is not 7, nor 1,7,42, nor 1..500', "--seeds")
    if whole[MOST_SEEDS:]:
        raise ConfigError(f'"{text}" has more than {MOST_SEEDS} seeds', "--seeds")
    if len(set(whole)) < len(whole):
        raise ConfigError(f'"{text}" has a seed twice', "--seeds")
    return list(whole)


MOST_SEEDS = 100_000


def _settings(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f'"{pair}" is not NAME=VALUE', "--set")
        found[key] = value
    return found


@app.command
def run(
    files: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    seed: int | None = None,
    seeds: str | None = None,
    trials: int | None = None,
    k: Annotated[str | None, Parameter(name=["-k", "--only"])] = None,
    fail_fast: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    check_determinism: Literal["all", "first", "off"] = "first",
    log: Path | None = None,
    time_limit: Annotated[float, Parameter(converter=_duration)] = 60.0,
    json: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
) -> int:
    """Run scenario files, every combination of their matrix with every seed.

    lmos-actors run scenarios/weather.yaml

    lmos-actors run scenarios/*.yaml --seeds 1..20 --fail-fast

    lmos-actors run scenarios/weather.yaml --set city=Rome --log messages.jsonl

    lmos-actors run scenarios/backpressure.yaml -k "reject or drop"

    Parameters
    ----------
    files
        Scenario files: YAML, TOML or JSON.
    set_
        Give a variable, or narrow a key of the matrix: NAME=VALUE. May be given several times.
    seed
        Run with this seed alone.
    seeds
        Run with these seeds instead of the file's: 7 or 1,7,42 or 1..500.
    trials
        Run each cell so many times.
    k
        Run the cells alone whose line has these words: "Berlin and not seed=7".
    fail_fast
        Stop at the first run that fails.
    check_determinism
        Which cells to run a second time in another process, to compare the logs: those of the first seed,
        all, or none.
    log
        Write the messages of all runs to this file, as JSON lines.
    time_limit
        How long one run may take in real time, such as 10s or 2m.
    json
        Print the results as JSON.
    """
    if seed is not None and seeds is not None:
        raise ConfigError("give --seed or --seeds, not both", "--seeds")
    if time_limit <= 0:
        raise ConfigError("must be more than 0s", "--time-limit")
    if trials is not None and trials < 1:
        raise ConfigError("must be at least 1", "--trials")
    options = Options(
        settings=_settings(set_ or []),
        seeds=[seed] if seed is not None else _seeds(seeds) if seeds is not None else None,
        trials=trials,
        only=k,
        fail_fast=fail_fast,
        determinism=check_determinism,
        log=log,
        time_limit=time_limit,
        json=json,
    )
    return run_files([str(file) for file in files], options)


@app.command
def validate(
    files: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
) -> int:
    """Check scenario files without running them: names, types, classes, inputs.

    lmos-actors validate scenarios/*.yaml

    Parameters
    ----------
    files
        Scenario files: YAML, TOML or JSON.
    set_
        Give a variable, or narrow a key of the matrix: NAME=VALUE. May be given several times.
    """
    return read_files([str(file) for file in files], _settings(set_ or []))


@app.command
def schema(*, write: Annotated[bool, Parameter(negative=(), show_default=False)] = False) -> int:
    """Print the JSON Schema of scenario files, for editors.

    lmos-actors schema --write

    Parameters
    ----------
    write
        Write it to .lmos/schema.json instead, where the first line of a scenario file can point to.
    """
    from lmos_actors.scenario import scenario_schema

    text = json_text(scenario_schema())
    if not write:
        print(text)
        return 0
    try:
        SCHEMA_FILE.parent.mkdir(exist_ok=True)
        SCHEMA_FILE.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", str(SCHEMA_FILE)) from None
    print(f"wrote {SCHEMA_FILE}", file=sys.stderr)
    return 0


@app.command
def describe(
    subject: str,
    /,
    *,
    against: str | None = None,
    strict: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    base: str | None = None,
    name: str | None = None,
    id_: Annotated[str | None, Parameter(name="--id")] = None,
    json: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
) -> int:
    """Print the description of an agent class, or check a description in a file.

    lmos-actors describe agents/weather.py:WeatherAgent

    lmos-actors describe agents/weather.py:WeatherAgent --base wss://agents.example.org --name weather

    lmos-actors describe weather.td.json --strict

    lmos-actors describe weather.td.json --against agents/weather.py:WeatherAgent

    A class is path/file.py:Class or package.module:Class.

    Exit code 1: something is wrong, or a difference breaks consumers of the class.

    Parameters
    ----------
    subject
        An agent class, or a file: JSON, YAML or TOML.
    against
        Name every difference from the description of this class.
    strict
        Forgive nothing: what TD 1.1 or LMOS demands is an error, and so is every difference but of wording.
    base
        Where the agent is served, ws, wss, http or https; ws://127.0.0.1:8080 unless given.
    name
        What it is called there; the name of the class unless given.
    id_
        The URI of the agent; one made of base and name unless given.
    json
        Print what is found as JSON.
    """
    from ._describe import Asked, describe_subject

    asked = Asked(base=base, name=name, id=id_, strict=strict, against=against, json=json)
    return describe_subject(subject, asked)


def json_text(data: Any) -> str:
    """Write plain data for people and machines."""
    return dumps(data, indent=2, ensure_ascii=False)
