"""The commands `doctor` and `completion`. Their docstrings are their help texts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import Json, Switch, Variables, settings_of, whole
from .._commands import application

_ZSH_END = """
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
if [[ "$funcstack[1]" == _cyclopts_lmos-actors ]]; then
  _cyclopts_lmos-actors "$@"
else
  compdef _cyclopts_lmos-actors lmos-actors
fi
"""
"""Lines for the zsh script, so that the startup file can source it anywhere, or compinit can find it."""


def doctor(
    file: Annotated[str | None, Parameter(name="FILE")] = None,
    /,
    *,
    port: Annotated[int | None, Parameter(converter=whole, metavar="N")] = None,
    set_: Variables = None,
    json: Json = False,
) -> int:
    """Check this machine for problems: versions, limits, permissions, clock; or for what a deployment needs.

    lmos-actors doctor

    lmos-actors doctor --port 9000 --json

    lmos-actors doctor desk.yaml

    With a deployment file: whether its ports are free, its folders and stores can be written, its \
certificates are valid, its secrets are there, and its modules can be imported. Nothing is started or changed.

    Exit code 1: something has to be fixed.

    Parameters
    ----------
    file
        A deployment file, `lmos: deployment/v1`.
    port
        Check whether this port is free, 8080 unless given.
    """
    if file is not None:
        from ..deploy._doctor import diagnose_deployment

        if port is not None:
            raise ConfigError("goes without a file, which names its ports", "--port")
        return diagnose_deployment(file, settings_of(set_), json=json)
    from .._doctor import diagnose

    if set_:
        raise ConfigError("goes with a deployment file", "--set")
    port = 8080 if port is None else port
    if not 0 < port < 65_536:
        raise ConfigError("must be from 1 to 65535", "--port")
    return diagnose(port, json=json)


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
    app = application()
    end = _ZSH_END if shell == "zsh" else ""
    if not install:
        print(app.generate_completion(prog_name=app.name[0], shell=shell) + end)
        return 0
    try:
        place = app.install_completion(shell=shell, add_to_startup=not end)
        if end:
            _have_zsh_read(place)
    except OSError as error:
        from .._written_files import unwritten

        raise unwritten(str(error.filename), error) from None
    print(f"wrote {place}", file=sys.stderr)
    return 0


def _have_zsh_read(place: Path) -> None:
    """Append the end of the script, and have zsh's startup file source it, unless it already does."""
    with place.open("a", encoding="utf-8") as script:
        script.write(_ZSH_END)
    startup = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    line = f'[[ -f "{place}" ]] && source "{place}"\n'
    if not startup.exists() or line not in startup.read_text(encoding="utf-8"):
        with startup.open("a", encoding="utf-8") as file:
            file.write(f"\n# Load lmos-actors completion\n{line}")
