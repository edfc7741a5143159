"""The commands `init`, `fmt` and `schema`. Their docstrings are their help texts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .._app import Files, Switch, json_text

SCHEMA_FILE = Path(".lmos/schema.json")


def init(
    folder: Annotated[Path, Parameter(name="FOLDER")] = Path(),
    /,
    *,
    template: Annotated[str, Parameter(metavar="NAME")] = "weather",
) -> int:
    """Write a project that runs as it is: agents, a scenario about them, and tests.

    lmos-actors init my-agents

    lmos-actors init my-agents --template assistant

    Existing files are never overwritten.

    Parameters
    ----------
    folder
        Where to write it; made if it does not exist.
    template
        weather: two agents, one of which crashes. gossip: a simulation of many agents of one class. \
deploy: agents that run in several processes. assistant: an agent that thinks with a language model.
    """
    from .._init import init_project

    return init_project(folder, template)


def format_(
    files: Annotated[Files, Parameter(help="YAML or JSON files. A folder stands for those in it, by name.")],
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
    check
        Write nothing; exit code 1 if a file is not formatted.
    diff
        Write nothing, and print what would change; exit code 1 if anything would.
    """
    from .._fmt import format_files
    from ..run._folders import files_in

    return format_files(files_in(files, deployments=True), check=check, diff=diff)


def schema(*, write: Switch = False) -> int:
    """Print the JSON Schema of scenario files, for editors.

    lmos-actors schema --write

    Parameters
    ----------
    write
        Write it to .lmos/schema.json instead, where the first line of a scenario file can point to.
    """
    from lmos_actors.scenario import scenario_schema

    from .._written_files import replace_file, unwritten

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
