"""Reading deployment files, with every name resolved and every value checked against its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import attrs

from lmos_actors.files import FileError, Note, decode, mapped, read
from lmos_actors.system import (
    CellNames,
    IdentityValidator,
    RemoteAccess,
    System,
    Targets,
    ValueValidator,
    accepts,
    hide_secrets,
    unusable_access,
)
from lmos_actors.system.model import DEPLOYMENT, AnyKind, Cells, has_required_parts, project_root

from ..model import Deployment, Group
from ._group_validator import GroupValidator

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from lmos_actors.files import DataPath, Document, Mistake
    from lmos_actors.system.model import CellData


@attrs.frozen
class DeploymentFile:
    """A valid deployment file. `root` is the project root; `notes` are warnings.

    `cell` is its content once its variables are filled in.
    """

    document: Document
    root: Path
    deployment: Deployment
    system: System
    notes: tuple[Note, ...]
    cell: CellData

    @property
    def parts(self) -> Mapping[str, tuple[Document, DataPath]]:
        """The places of the parts that a scenario can use from this file, where groups become nodes."""
        return {key: (self.document, (at,)) for key, at in PARTS.items()}


PARTS: Final = {"agents": "agents", "tree": "tree", "nodes": "groups"}
"""The keys of a scenario file that a deployment replaces, and the deployment's own keys for them."""


def load_deployment(
    path: str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    classes: bool = True,
    group: str | None = None,
    snapshot: Path | None = None,
) -> DeploymentFile:
    """Read and check a deployment file.

    With `classes`, the agents' classes are imported, and the file is checked against them. With `group`, only
    the classes of that group's agents, and of the agents that they have refs to, are imported. `settings` set
    variables to text from the command line. `snapshot` is a copy of the file, which is read in its place, as
    the file may have been changed since. Blocks on the disk and runs the code of the named modules. Raises
    FileError with every mistake found, and ConfigError for a setting that the file does not define.
    """
    document = read(path, copy=snapshot)
    kind = mapped(document.data).get("lmos")
    if kind in ("scenario/v1", "simulation/v1"):
        why = f'"{kind}" is told a story, by "run"; what runs as processes is "{DEPLOYMENT}"'
        raise FileError((document.mistake(("lmos",), why),))
    if kind != DEPLOYMENT:
        raise FileError(decode(document, AnyKind)[1])
    cells = Cells(document, settings or {}, Deployment)
    mistakes = [*document.mistakes, *cells.mistakes]
    found = cells.all()
    mistakes += cells.mistakes
    root = project_root(cast("Path", document.path))
    made = _Deployment(document, mistakes, root, classes=classes, group=group)
    decoded = [made.read(data) for data in found]
    if mistakes or not decoded or decoded[0] is None:
        raise FileError(hide_secrets(document, mistakes)) from made.raised
    deployment, system = decoded[0]
    unused = [
        document.note(("vars", name), f"$(vars.{name}) is not used", key=True)
        for name in cells.unused_variables()
    ]
    notes = sorted([*document.notes, *unused, *made.notes], key=lambda note: (note.line, note.column))
    return DeploymentFile(document, root, deployment, system, tuple(notes), found[0])


class _Deployment:
    """A decoder and checker of the data of one file, which adds to `mistakes` and `notes`."""

    def __init__(
        self, document: Document, mistakes: list[Mistake], root: Path, *, classes: bool, group: str | None
    ) -> None:
        self._group = group
        self.document = document
        self.mistakes = mistakes
        self.notes: list[Note] = []
        self._targets = Targets(document, root, accepts) if classes else None

    @property
    def raised(self) -> BaseException | None:
        """The exception of the first module that could not be imported; None if there is none."""
        return None if self._targets is None else self._targets.raised

    def read(self, cell: CellData) -> tuple[Deployment, System] | None:
        """Return the deployment and its system, None if the file is invalid."""
        made: dict[DataPath, object] = {}
        deployment, wrong = decode(self.document, Deployment, cell.data, made=made)
        self.mistakes += wrong
        if not has_required_parts(Deployment, cell.data):
            return None
        names = CellNames(self.document, cell, made)
        use = mapped(cell.data.get("tree")).get("use")
        if isinstance(use, str):
            names.tree = self._targets.tree(use, self.mistakes) if self._targets else None
            if names.tree is None and self._targets is not None:
                return None
        if names.tree is not None or not isinstance(use, str):
            self._check(names)
        if deployment is None:
            return None
        system = System(deployment.agents, deployment.tree, names.classes, names.tree)
        for each in unusable_access(self.document, [system.remotes], RemoteAccess()):
            self.notes.append(Note(each.file, each.line, each.column, f"{each.message}; a run needs it"))
        return deployment, system

    def _check(self, names: CellNames) -> None:
        names.check()
        names.classes = (
            self._targets.classes(names, self.mistakes, self._needed(names)) if self._targets else {}
        )
        names.fitted = self._targets is not None
        ValueValidator(names).agents()
        IdentityValidator(names, cast("Path", self.document.path).parent).check()
        GroupValidator(names).check()
        self.mistakes += names.mistakes
        self.notes += names.notes

    def _needed(self, names: CellNames) -> set[str] | None:
        """Return the agents whose classes the group needs; None means all agents."""
        group = names.made.get(("groups", self._group)) if self._group is not None else None
        if not isinstance(group, Group) or not all(name in names.agents for name in group.agents):
            return None  # parts of a tree are named: anything may be in them
        refs = [late for late in names.cell.late if late.reference.namespace == "agents"]
        return {*group.agents, *(late.reference.name for late in refs if late.path[1] in group.agents)}
