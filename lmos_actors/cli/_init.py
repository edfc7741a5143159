"""Execution of `init`: write a project that validates and runs unchanged."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Final

from lmos_actors.errors import ConfigError
from lmos_actors.files import did_you_mean
from lmos_actors.scenario import scenario_schema

from ._app import json_text
from ._written_files import unwritten

TEMPLATES: Final = ("weather", "gossip", "deploy", "assistant")
LATER: Final = ("bridge",)

_FOLDER = Path(__file__).parent / "templates"
_SUFFIX: Final = ".txt"  # those in a wheel are no modules
_RENAMED: Final = {"gitignore": ".gitignore"}


def init_project(folder: Path, template: str) -> int:
    """Write a project into a folder, without overwriting files. Raises ConfigError."""
    if template in LATER:
        raise ConfigError(f'"{template}" is not available yet', "--template")
    if template not in TEMPLATES:
        raise ConfigError(f'no template "{template}"{did_you_mean(template, TEMPLATES)}', "--template")
    name = "-".join(re.findall(r"[a-z0-9]+", folder.resolve().name.lower())) or "my-agents"
    texts = _texts(template, name)
    if folder.exists() and not folder.is_dir():
        raise ConfigError("is not a folder", str(folder))
    there = [str(place) for place in texts if (folder / place).exists()]
    if there:
        more = f" and {len(there) - 3} more" if len(there) > 3 else ""
        raise ConfigError(f"has {', '.join(there[:3])}{more} already; init overwrites nothing", str(folder))
    try:
        for place, text in texts.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritten(str(error.filename or folder), error) from None
    for place in texts:
        print(f"wrote {folder / place}", file=sys.stderr)
    here = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    print(f"next: {here}lmos-actors run scenarios/{template}.yaml", file=sys.stderr)
    return 0


def _texts(template: str, name: str) -> dict[Path, str]:
    """Return the files of a project as texts by path."""
    root = _FOLDER / template
    found: dict[Path, str] = {}
    for file in sorted(root.rglob(f"*{_SUFFIX}")):
        place = file.relative_to(root).with_suffix("")
        own = place.with_name(_RENAMED.get(place.name, place.name))
        found[own] = file.read_text(encoding="utf-8").replace("@NAME@", name)
    return {**found, Path(".lmos/schema.json"): json_text(scenario_schema()) + "\n"}
