"""Expansion of the folders on a command line to the scenario files in them, in the order of names."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SUFFIXES: Final = (".yaml", ".yml", ".json", ".toml")
"""The possible endings of scenario files."""

HEAD: Final = 1 << 16
"""Bytes at the beginning of a file in which the key is searched that makes it a scenario file."""

SHOWN: Final = 10
"""Maximum left-out files that are named."""

_DEPLOYMENT: Final = re.compile(rb"""["']?lmos["']?\s*[:=]\s*["']?deployment/""")
_KEY: Final = re.compile(rb"""(?:^|[\n\r{,]|^\xef\xbb\xbf)\s*["']?lmos["']?\s*[:=]""")


def files_in(words: Iterable[Path], *, deployments: bool = False) -> list[str]:
    """Return the files, with folders replaced by their files.

    A folder stands for the scenario files directly in it: those with a key `lmos`, valid or not. With
    `deployments`, it also stands for its deployment files. Other files with the same endings are named on
    standard error, as the key may be misspelt. A folder adds no file that is also named, or that another
    folder has added. Raises ConfigError for a folder without scenario files.
    """
    paths = list(words)
    named = {os.path.normpath(path) for path in paths if not path.is_dir()}
    found: list[str] = []
    for path in paths:
        if not path.is_dir():
            found.append(str(path))
            continue
        for file in _scenario_files(path, deployments=deployments):
            if (place := os.path.normpath(file)) not in named:
                named.add(place)
                found.append(file)
    return found


def _scenario_files(folder: Path, *, deployments: bool) -> list[str]:
    try:
        inside = sorted(
            (file for file in folder.iterdir() if _is_candidate(file)), key=lambda file: file.name
        )
        chosen = [file for file in inside if _has_key(file)]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", str(folder)) from None
    if not chosen:
        others = f"; without it there is {_listed(inside)}" if inside else ""
        raise ConfigError(
            f'has no scenario file, which ends in {", ".join(SUFFIXES)} and has the key "lmos"{others}; '
            "folders in it are not searched",
            str(folder),
        )
    if len(chosen) < len(inside):
        left = [file for file in inside if file not in chosen]
        print(f'{folder}: note: left out, without the key "lmos": {_listed(left)}', file=sys.stderr)
    return [str(file) for file in chosen if deployments or not _is_deployment(file)]


def _is_candidate(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _is_deployment(file: Path) -> bool:
    with file.open("rb") as stream:
        return _DEPLOYMENT.search(stream.read(HEAD)) is not None


def _has_key(file: Path) -> bool:
    with file.open("rb") as stream:
        return _KEY.search(stream.read(HEAD)) is not None


def _listed(files: list[Path]) -> str:
    more = ", ..." if len(files) > SHOWN else ""
    return ", ".join(file.name for file in files[:SHOWN]) + more
