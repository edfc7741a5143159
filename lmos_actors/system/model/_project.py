"""The project that a scenario file is part of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def project_root(file: Path) -> Path:
    """Return the path of the nearest folder above `file` that has a `pyproject.toml`, else its folder."""
    folder = file.resolve().parent
    for above in (folder, *folder.parents):
        if (above / "pyproject.toml").is_file():
            return above
    return folder
