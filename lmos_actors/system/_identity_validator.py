"""Validation of the identities of agents: ids, keys and description files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.actors import describe
from lmos_actors.errors import ConfigError
from lmos_actors.files import mapped, read
from lmos_actors.protocol.td import is_uri

from .model import AgentEntry

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.files import DataPath

    from ._cell_names import CellNames

_EXAMPLE: Final = "urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77"


class IdentityValidator:
    """The validator of `id`, `key` and `description` of agents; mistakes are reported to `names`."""

    def __init__(self, names: CellNames, folder: Path) -> None:
        self.names = names
        self.folder = folder
        self._first: dict[tuple[str, str], DataPath] = {}

    def check(self) -> None:
        for name, entry in self.names.agents.items():
            if isinstance(entry, AgentEntry):
                path = self.names.places[name]
                if entry.id is not None:
                    self._id(entry.id, (*path, "id"))
                if entry.key is not None:
                    self._once("key", entry.key, (*path, "key"))
                if entry.description is not None and self.names.contract(name) is not None:
                    self._description(name, entry, (*path, "description"))

    def _id(self, own: str, path: DataPath) -> None:
        if not is_uri(own):
            self.names.report(path, f'"{own}" is no URI, such as {_EXAMPLE}')
        else:
            self._once("id", own, path)

    def _once(self, what: str, own: str, path: DataPath) -> None:
        first = self._first.setdefault((what, own), path)
        if first != path:
            self.names.report(
                path, f"this {what} is given twice, first at {self.names.document.place(first)}"
            )

    def _description(self, name: str, entry: AgentEntry, path: DataPath) -> None:
        """Check that the class has all affordances that are listed in the description file."""
        for message in description_mismatches(self.names.classes[name], entry, self.folder):
            self.names.report(path, f"{entry.description}: {message}", "shape")


def description_mismatches(cls: Any, entry: AgentEntry, folder: Path) -> list[str]:
    """Return the differences between a description file and a class. Blocks on the disk."""
    from lmos_actors.protocol.td import DescriptionError, check, differences, load

    try:
        document = read(folder / str(entry.description))
        if document.mistakes:
            return [_first_line(document.mistakes[0].message)]
    except ConfigError as error:
        return [_first_line(error.message)]
    data = mapped(document.data)
    try:
        described = load(data)
    except DescriptionError:
        errors = [finding for finding in check(data) if finding.severity == "error"]
        return [_first_line(str(finding)) for finding in errors] or ["is no description"]
    offered = describe(cls, id=entry.id)
    found = [str(difference) for difference in differences(offered, described) if difference.breaks]
    if entry.id is not None and described.id is not None and entry.id != described.id:
        found.append(f"it describes {described.id}, not {entry.id}")
    return [_first_line(text) for text in found]


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
