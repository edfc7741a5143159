"""The system of a deployment file, used in place of agents, a tree and nodes in a scenario file.

The deployment is read and checked by itself, and its mistakes are reported with their places in the
deployment file. Then its agents and its tree become part of the data of the cell. If the scenario has a
network, the groups of the deployment become its nodes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError, mapped
from lmos_actors.system.model import DIRECTORY, PROCESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.deployment.files import DeploymentFile
    from lmos_actors.deployment.model import Group
    from lmos_actors.files import Document, Mistake
    from lmos_actors.system.model import CellData


class UsedSystems:
    """The deployment files that the cells of one file use, each read once; mistakes go to `mistakes`."""

    def __init__(self, document: Document, root: Path, mistakes: list[Mistake], *, classes: bool) -> None:
        self.document = document
        self._root = root
        self._mistakes = mistakes
        self._classes = classes
        self._read: dict[str, DeploymentFile | None] = {}

    def of(self, cell: CellData) -> DeploymentFile | None:
        """Add the system that a cell uses to the cell's data, and return the deployment file of the system.

        Return None if the cell uses no system, or the system is not valid.
        """
        name = cell.data.get("system")
        if not isinstance(name, str) or not name:
            return None
        found = self._read[name] if name in self._read else self._load(name)
        self._read[name] = found
        from lmos_actors.deployment.files import PARTS  # few files need it

        there = [key for key in PARTS if key in cell.data]
        for key in there:
            why = f'"{key}" is what "system" stands for: {name} has it'
            self._mistakes.append(self.document.mistake((key,), why, key=True))
        if found is None or there:
            return None
        self._fill(cell, found)
        return found

    def _load(self, name: str) -> DeploymentFile | None:
        from lmos_actors.deployment.files import load_deployment

        path = _without_dots(Path(self.document.path or "").parent / name)
        try:
            found = load_deployment(path, classes=self._classes)
        except FileError as error:
            if error.mistakes[0].kind == "unreadable":
                why = f"{error.mistakes[0].message}: {path}"
                self._mistakes.append(self.document.mistake(("system",), why, "unreadable"))
            else:
                self._mistakes.extend(error.mistakes)
            return None
        if found.root != self._root:
            why = f"{name} is of the project {found.root}, and this file of {self._root}: both are of one"
            self._mistakes.append(self.document.mistake(("system",), why))
            return None
        return found

    def _fill(self, cell: CellData, found: DeploymentFile) -> None:
        theirs = found.cell.data
        cell.data |= {key: theirs[key] for key in ("agents", "tree") if key in theirs}
        cell.late += [late for late in found.cell.late if late.path[0] == "agents"]
        if "network" in cell.data:
            groups = found.deployment.groups
            nodes = {name: list(group.agents) for name, group in groups.items()}
            host = next((name for name, group in groups.items() if group.directory), None)
            if host is not None and mapped(cell.data["network"]).get(DIRECTORY) is not None:
                nodes[host].append(DIRECTORY)
            cell.data["nodes"] = {name: members for name, members in nodes.items() if members}


def _without_dots(path: Path) -> Path:
    """Return a path without `..`, for messages; unchanged if symbolic links make it name another file."""
    plain = Path(os.path.normpath(path))
    return plain if plain.resolve() == path.resolve() else path


def not_opened(file: DeploymentFile, world: str) -> str:
    """Return a note on the parts of a deployment that a world checks but does not open.

    The note is "" if the world opens all of them.
    """
    if world == PROCESS:
        return ""
    words: dict[str, None] = {}
    several: list[str] = []
    for name, group in file.deployment.groups.items():
        words |= dict.fromkeys(_opened(group))
        several += [f"{group.replicas} of {name}"] if group.replicas != 1 else []
    counts = f"; each group is there once ({', '.join(several)} as processes)" if several else ""
    return f"{file.document.name}: checked, and opened in world: process alone: {', '.join(words)}{counts}"


def _opened(group: Group) -> Iterator[str]:
    """Yield words for the things that the processes of a group would open."""
    yield "listeners"
    from lmos_actors.deployment.model import filled_for, texts_of

    urls = [filled_for(url, 1) for url in texts_of(group.listen)]
    if group.cert is not None or any(_is_secure(url) for url in urls):
        yield "TLS"
    if group.security is not None:
        yield "security"
    if group.omnia:
        yield "the facade for Omnia"
    if group.mcp:
        yield "the offer to MCP clients"
    if group.relay:
        yield "the facade for AgentRelay"
    if group.directory:
        yield "the directory"
    if group.store is not None:
        yield "stores"
    if group.circles != "warn":
        yield "circles"
    if group.metrics:
        yield "metrics"
    if group.tracing is not None:
        yield "tracing"


def _is_secure(url: str) -> bool:
    from lmos_actors.transport import endpoint_of  # few files need it

    try:
        return endpoint_of(url).secure
    except ConfigError:
        return False
