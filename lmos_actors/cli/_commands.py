"""The commands but `run` and `sim`, as their users see them: the docstrings are the help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lmos_actors._errors import ConfigError

from ._app import Files, Settings, Switch, json_text, settings_of
from ._log_commands import app as app

SCHEMA_FILE = Path(".lmos/schema.json")


@app.command(sort_key=10)
def validate(
    files: Files,
    /,
    *,
    set_: Settings = None,
    json: Switch = False,
) -> int:
    """Check files without running them: words, names, types, classes, inputs.

    lmos-actors validate scenarios/*.yaml

    lmos-actors validate scenarios/weather.yaml --set city=Rome --json

    Parameters
    ----------
    files
        Scenario files: YAML, TOML or JSON.
    set_
        Give a variable, or narrow a key of the matrix or the sweep. May be given several times.
    json
        Print what is found as JSON, and nothing else.
    """
    from ._run import read_files

    return read_files([str(file) for file in files], settings_of(set_), json=json)


@app.command(sort_key=50)
def schema(*, write: Switch = False) -> int:
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


@app.command(sort_key=40)
def describe(
    subject: str,
    /,
    *,
    against: str | None = None,
    strict: Switch = False,
    base: str | None = None,
    name: str | None = None,
    id_: Annotated[str | None, Parameter(name="--id")] = None,
    json: Switch = False,
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
