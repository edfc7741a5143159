"""The header of a message log: the data to repeat its run, and digests of the files that were run."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...model import Simulation

if TYPE_CHECKING:
    from ...format import Cell, Resolved


def log_header(resolved: Resolved, cell: Cell, trial: int) -> dict[str, object]:
    """Return the data to repeat a run; `until` is the end of a simulation.

    `sources` has the SHA-256 of each file that was run, by its path in the project.
    """
    scenario = cell.scenario
    until = {"until": float(scenario.stop.at)} if isinstance(scenario, Simulation) else {}
    return {
        "file": resolved.document.name,
        "name": scenario.name,
        "label": cell.label,
        "settings": dict(resolved.settings),
        **until,
        "values": cell.values,
        "seed": cell.seed,
        "trial": trial,
        "sha256": hashlib.sha256(resolved.document.text.encode("utf-8", "surrogatepass")).hexdigest(),
        "sources": source_digests(resolved, cell),
    }


def source_digests(resolved: Resolved, cell: Cell) -> dict[str, str]:
    """Return the SHA-256 of the project files that a cell needs, by relative path.

    These files define its classes, contain its deployment, or have values of its distributions. A file that
    cannot be read has the digest "".
    """
    modules = dict.fromkeys(cls.__module__ for cls in cell.system.classes.values())
    if cell.system.used is not None:
        modules |= {cell.system.used.module: None}
    files: list[str | None] = [getattr(sys.modules.get(module), "__file__", None) for module in modules]
    files += [str(file.resolve()) for file in resolved.measured]
    if cell.deployed is not None and cell.deployed.document.path is not None:
        files.append(str(cell.deployed.document.path.resolve()))
    found: dict[str, str] = {}
    for file in files:
        if file is not None and Path(file).is_relative_to(resolved.root):
            name = Path(file).relative_to(resolved.root).as_posix()
            try:
                known = Path(file).stat()
                found[name] = _hashed(file, known.st_mtime_ns, known.st_size)
            except OSError:
                found[name] = ""
    return dict(sorted(found.items()))


@lru_cache(maxsize=1_000)
def _hashed(file: str, changed: int, size: int) -> str:
    """Return the SHA-256 of a file. `changed` and `size` only serve as parts of the cache key."""
    del changed, size
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
