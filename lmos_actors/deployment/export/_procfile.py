"""A Procfile with a line for each process, as read by foreman and similar tools."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ._source import dns_name

if TYPE_CHECKING:
    from ._source import Source


def procfile(source: Source) -> dict[str, str]:
    """Return the text of a Procfile. Raises FileError if a Procfile cannot express the deployment."""
    source.give_addresses()
    source.check()
    _note_losses(source)
    command = source.options.command or "lmos-actors"
    lines = [f"# {line}" for line in source.head("procfile")]
    for name, group in source.groups.items():
        for number in range(1, group.replicas + 1):
            words = source.words_of(name, str(number), _here(source))
            lines.append(f"{dns_name(name)}-{number}: {command} {shlex.join(words)}")
    return {"Procfile": "\n".join([*lines, ""])}


def _here(source: Source) -> str:
    """Return the path of the deployment file for the commands, which run in the Procfile's folder."""
    if source.options.root is not None:
        return source.placed(source.file, source.options.root)
    return os.path.relpath(source.file, source.options.out or Path())


def _note_losses(source: Source) -> None:
    source.lost(
        "what reads a Procfile ends all processes when one ends: nothing is restarted, nothing counted",
        "groups",
    )
    for name in source.groups:
        needs = source.needs_of(name)
        if needs:
            why = f'"{name}" does not wait for {" and ".join(needs)}: all processes start at once'
            source.lost(why, "groups", name)
        source.lost_key(name, "update", "processes are not replaced one after another")
        source.lost_key(name, "ready", "nothing watches whether a process becomes ready")
        source.lost_key(name, "drain", "what reads a Procfile has a time of its own until it kills a process")
        variables = source.secrets_of(name).variables
        if variables:
            source.lost(
                f'"{name}" needs {", ".join(variables)} in its environment, or in .env', "groups", name
            )
