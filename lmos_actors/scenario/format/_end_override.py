"""Override of the end of a simulation, for `--until`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from msgspec.structs import replace

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration

from ..model import Simulation

if TYPE_CHECKING:
    from ._resolve import Cell, Resolved


def with_end_at(resolved: Resolved, seconds: float | None) -> Resolved:
    """Return a simulation that ends at this virtual instant, in seconds, at the latest; None: unchanged.

    Raises ConfigError for a file that is no simulation.
    """
    if seconds is None:
        return resolved
    cells: list[Cell] = []
    before, after = None, resolved.cells[0].scenario
    for cell in resolved.cells:  # those of one combination share what has been read
        if cell.scenario is not before:
            before = cell.scenario
            if not isinstance(before, Simulation):
                raise ConfigError(f"{resolved.document.name} is no simulation", "--until")
            after = replace(before, stop=replace(before.stop, at=Duration(seconds)))
        cells.append(attrs.evolve(cell, scenario=after))
    return attrs.evolve(resolved, cells=tuple(cells))
