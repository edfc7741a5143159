"""The other commands, as their users see them: the docstrings are the help."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import ELSEWHERE, MACHINE, STORIES, Files, Settings, Switch, json_text, settings_of
from ..options._server import ServerOptions
from ._conform import app as app

SCHEMA_FILE = Path(".lmos/schema.json")

_ALONE = ServerOptions()


_ZSH_END = """
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
if [[ "$funcstack[1]" == _cyclopts_lmos-actors ]]; then
  _cyclopts_lmos-actors "$@"
else
  compdef _cyclopts_lmos-actors lmos-actors
fi
"""
"""Lets the script for zsh be read by the startup file, wherever in it, as well as found by compinit."""


@app.command(sort_key=1, group=STORIES)
def init(
    folder: Annotated[Path, Parameter(name="FOLDER")] = Path(),
    /,
    *,
    template: Annotated[str, Parameter(metavar="NAME")] = "weather",
) -> int:
    """Write a project that runs as it is: agents, a scenario about them, and tests.

    lmos-actors init my-agents

    lmos-actors init my-agents --template gossip

    Existing files are never overwritten.

    Parameters
    ----------
    folder
        Where to write it; made if it does not exist.
    template
        weather: two agents, one of which crashes. gossip: a simulation of many agents of one class.
    """
    from .._init import init_project

    return init_project(folder, template)


@app.command(sort_key=10, group=STORIES, usage="Usage: lmos-actors validate [OPTIONS] FILES|FOLDERS...")
def validate(
    files: Files,
    /,
    *,
    set_: Settings = None,
    json: Switch = False,
) -> int:
    """Check files without running them: keys, names, types, classes, inputs.

    lmos-actors validate scenarios

    lmos-actors validate scenarios/weather.yaml --set city=Rome --json

    Parameters
    ----------
    files
        Scenario files: YAML, TOML or JSON. A folder stands for those in it, by name.
    set_
        Give a variable, or narrow a key of the matrix or the sweep. May be given several times.
    json
        Print what is found as JSON, and nothing else.
    """
    from ..run._folders import files_in
    from ..run._run import read_files

    return read_files(files_in(files), settings_of(set_), json=json)


@app.command(sort_key=50, group=STORIES)
def schema(*, write: Switch = False) -> int:
    """Print the JSON Schema of scenario files, for editors.

    lmos-actors schema --write

    Parameters
    ----------
    write
        Write it to .lmos/schema.json instead, where the first line of a scenario file can point to.
    """
    from lmos_actors.scenario import scenario_schema

    from ..run._report_files import replace_file, unwritten

    text = json_text(scenario_schema())
    if not write:
        print(text)
        return 0
    try:
        SCHEMA_FILE.parent.mkdir(exist_ok=True)
        replace_file(str(SCHEMA_FILE), text + "\n")
    except OSError as error:
        raise unwritten(str(SCHEMA_FILE), error) from None
    print(f"wrote {SCHEMA_FILE}", file=sys.stderr)
    return 0


@app.command(sort_key=40, group=ELSEWHERE)
def describe(
    subject: str,
    /,
    *,
    against: Annotated[str | None, Parameter(metavar="CLASS")] = None,
    reader: Annotated[Literal["kotlin-wot"] | None, Parameter(name="--for")] = None,
    strict: Switch = False,
    base: Annotated[str | None, Parameter(metavar="URI")] = None,
    name: Annotated[str | None, Parameter(metavar="NAME")] = None,
    id_: Annotated[str | None, Parameter(name="--id", metavar="URI")] = None,
    server: ServerOptions = _ALONE,
    json: Switch = False,
) -> int:
    """Print the description of an agent class, or check a description in a file or at a URL.

    lmos-actors describe agents/weather.py:WeatherAgent

    lmos-actors describe agents/weather.py:WeatherAgent --base wss://agents.example.org --name weather

    lmos-actors describe weather.td.json --strict

    lmos-actors describe weather.td.json --against agents/weather.py:WeatherAgent

    lmos-actors describe http://127.0.0.1:8080/agents/weather --against agents/weather.py:WeatherAgent

    lmos-actors describe agents/weather.py:WeatherAgent --for kotlin-wot

    A class is path/file.py:Class or package.module:Class.

    Exit codes: 1 something is wrong, not readable there, or differs so that it breaks consumers of the class;
    3 nothing is at the URL.

    Parameters
    ----------
    subject
        An agent class; a file: JSON, YAML or TOML; or the URL of an agent that is served.
    against
        Name every difference from the description of this class.
    reader
        Name everything that this implementation cannot read.
    strict
        Tolerate nothing: what TD 1.1 or LMOS demands is an error, and so is every difference but of wording.
    base
        Where the agent is served, ws, wss, http or https; ws://127.0.0.1:8080 unless given.
    name
        What it is called there; the name of the class unless given.
    id_
        The URI of the agent; one made of base and name unless given.
    json
        Print what is found as JSON.
    """
    from .._describe import DescribeOptions, describe_subject

    options = DescribeOptions(
        base=base,
        name=name,
        id=id_,
        strict=strict,
        against=against,
        reader=reader,
        json=json,
        server=server,
    )
    return describe_subject(subject, options)


@app.command(
    name="fmt", sort_key=45, group=STORIES, usage="Usage: lmos-actors fmt [OPTIONS] FILES|FOLDERS..."
)
def format_(
    files: Files,
    /,
    *,
    check: Switch = False,
    diff: Switch = False,
) -> int:
    """Format files: order of keys, indentation, quotes, blank lines. Comments stay, and so does the meaning.

    lmos-actors fmt scenarios

    lmos-actors fmt scenarios --check

    lmos-actors fmt scenarios/weather.yaml --diff

    Parameters
    ----------
    files
        Scenario and simulation files: YAML or JSON. A folder stands for those in it, by name.
    check
        Write nothing; exit code 1 if a file is not formatted.
    diff
        Write nothing, and print what would change; exit code 1 if anything would.
    """
    from .._fmt import format_files
    from ..run._folders import files_in

    return format_files(files_in(files), check=check, diff=diff)


@app.command(sort_key=60, group=MACHINE)
def doctor(*, port: Annotated[int, Parameter(metavar="N")] = 8080, json: Switch = False) -> int:
    """Check this machine for problems: versions, limits, permissions, clock.

    lmos-actors doctor

    lmos-actors doctor --port 9000 --json

    Exit code 1: something has to be fixed.

    Parameters
    ----------
    port
        Check whether this port is free.
    json
        Print what is found as JSON, and nothing else.
    """
    from .._doctor import diagnose

    if not 0 < port < 65_536:
        raise ConfigError("must be from 1 to 65535", "--port")
    return diagnose(port, json=json)


@app.command(sort_key=70, group=MACHINE)
def completion(shell: Literal["bash", "zsh", "fish"], /, *, install: Switch = False) -> int:
    """Print a script that completes commands and options in a shell, or install it.

    lmos-actors completion bash > ~/.lmos-actors.bash

    lmos-actors completion zsh --install

    Parameters
    ----------
    shell
        Which shell it is for.
    install
        Write it where the shell looks for it, and have the shell's startup file read it.
    """
    end = _ZSH_END if shell == "zsh" else ""
    if not install:
        print(app.generate_completion(prog_name=app.name[0], shell=shell) + end)
        return 0
    try:
        place = app.install_completion(shell=shell, add_to_startup=not end)
        if end:
            _have_zsh_read(place)
    except OSError as error:
        from ..run._report_files import unwritten

        raise unwritten(str(error.filename), error) from None
    print(f"wrote {place}", file=sys.stderr)
    return 0


def _have_zsh_read(place: Path) -> None:
    """Complete the script, and have the startup file of zsh read it, once."""
    with place.open("a", encoding="utf-8") as script:
        script.write(_ZSH_END)
    startup = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    line = f'[[ -f "{place}" ]] && source "{place}"\n'
    if not startup.exists() or line not in startup.read_text(encoding="utf-8"):
        with startup.open("a", encoding="utf-8") as file:
            file.write(f"\n# Load lmos-actors completion\n{line}")
