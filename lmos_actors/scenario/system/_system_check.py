"""Checks of what a deployment has, and a scenario file too: agents, their values, and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.files import is_list, is_mapping

from ..model import known_keys, needed_keys, struct_of
from ._identity_validator import IdentityValidator
from ._value_validator import ValueValidator

if TYPE_CHECKING:
    from pathlib import Path

    from ._cell_names import CellNames


def has_required_parts(data: dict[str, Any]) -> bool:
    """Return whether the parts that define names are there; without them every reference would be reported.

    A misspelt top-level key is then reported alone, with the mistakes in shape.
    """
    known, needed = known_keys(data), needed_keys(struct_of(data))
    if any(key not in known for key in data) or any(key not in data for key in needed):
        return False
    return is_mapping(data.get("agents", {})) and is_list(data.get("population", []))


def check_system(names: CellNames, folder: Path) -> None:
    """Check the agents of a deployment and its groups; mistakes go to `names`. `folder` is the file's."""
    from ._group_validator import GroupValidator  # few files need it

    ValueValidator(names).agents()
    IdentityValidator(names, folder).check()
    GroupValidator(names).check()
