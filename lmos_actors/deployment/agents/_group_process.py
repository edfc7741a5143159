"""The setup of one process of a group: its number, folder, environment and limits."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from lmos_actors.errors import ConfigError

from ..model import DATABASE, filled_for

if TYPE_CHECKING:
    from pathlib import Path

    from ..model import Group


def group_for(group: Group, replica: int, keep: Path | None = None) -> Group:
    """Return a group with the number of one process filled in.

    If `keep` is given, the stores and folders of the group are moved to that folder.
    """
    found: Group = _filled(group, replica)
    return found if keep is None else _kept_in(found, keep.resolve())


def _kept_in(group: Group, folder: Path) -> Group:
    """Return a group whose stores and folders are moved to another folder, under the same paths."""

    def moved(path: str) -> str:
        file = folder / os.path.normpath(f"/{path}").lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        return str(file)

    changes: dict[str, Any] = {}
    if group.store is not None and group.store.startswith(DATABASE):
        changes["store"] = DATABASE + moved(group.store.removeprefix(DATABASE))
    if isinstance(group.directory, str) and "://" not in group.directory:
        changes["directory"] = moved(group.directory)
    if not isinstance(group.omnia, bool) and group.omnia.uploads is not None:
        uploads = moved(group.omnia.uploads)
        changes["omnia"] = msgspec.structs.replace(group.omnia, uploads=uploads)
    return msgspec.structs.replace(group, **changes)


def _filled(part: Any, replica: int) -> Any:
    """Return a part of a group with the number of the process filled into its texts."""
    if isinstance(part, str) and type(part) is str:
        return filled_for(part, replica)
    parts: Any = part
    if isinstance(part, tuple):
        return tuple(_filled(each, replica) for each in parts)
    if isinstance(part, dict):
        return {key: _filled(value, replica) for key, value in parts.items()}
    if isinstance(part, msgspec.Struct):
        names = part.__struct_fields__
        return msgspec.structs.replace(
            part, **{name: _filled(getattr(part, name), replica) for name in names}
        )
    return part


def enter_group(group: Group, folder: Path, replica: int) -> None:
    """Enter the folder of the group, and set its environment and limits. Raises ConfigError."""
    try:
        os.chdir(folder / (group.cwd or "."))
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}", "cwd") from None
    os.environ.update(group.env)
    limits = group.limits
    if limits.descriptors is not UNSET:
        _set_limit("descriptors", resource.RLIMIT_NOFILE, limits.descriptors)
    if limits.memory is not UNSET:
        _set_limit("memory", resource.RLIMIT_AS, limits.memory)
    if limits.processors is not UNSET and hasattr(os, "sched_setaffinity"):
        there = sorted(os.sched_getaffinity(0))
        begin = (replica - 1) * limits.processors  # several processes are spread over the machine
        chosen = {there[(begin + number) % len(there)] for number in range(limits.processors)}
        os.sched_setaffinity(0, chosen)


def _set_limit(name: str, kind: int, wanted: int) -> None:
    """Set a limit of this process. Raises ConfigError if the system does not allow it."""
    try:
        resource.setrlimit(kind, (int(wanted), int(wanted)))
    except (OSError, ValueError) as error:
        why = f"{wanted} cannot be set: {error}; a hard limit of this user is lower: raise it, or want less"
        raise ConfigError(why, f"limits.{name}") from None
