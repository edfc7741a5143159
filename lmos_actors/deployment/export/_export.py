"""A deployment in the format of another supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ._compose import compose
from ._kubernetes import manifests
from ._procfile import procfile
from ._source import Source, dns_name
from ._systemd import units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.files import Note

    from ..files import DeploymentFile
    from ._source import ExportOptions

Kind: TypeAlias = Literal["systemd", "compose", "procfile", "k8s"]

MAKERS: Final[Mapping[Kind, Callable[[Source], dict[str, str]]]] = {
    "systemd": units,
    "compose": compose,
    "procfile": procfile,
    "k8s": manifests,
}
"""The functions that make the files, by format."""


def exported(
    kind: Kind, loaded: DeploymentFile, file: str, options: ExportOptions
) -> tuple[dict[str, str], list[Note]]:
    """Return the texts of a format by file name, and notes on what gets lost.

    Raise ConfigError if a deployment cannot be expressed. Blocks on the disk.
    """
    source = Source(loaded, file, options)
    _check_names(source)
    return MAKERS[kind](source), source.notes


def _check_names(source: Source) -> None:
    """Refuse groups whose names would be equal as host names."""
    first: dict[str, str] = {}
    for name in source.groups:
        other = first.setdefault(dns_name(name), name)
        if other != name:
            source.refuse(
                f'"{name}" and "{other}" are both "{dns_name(name)}" there: rename one', "groups", name
            )
    source.check()
