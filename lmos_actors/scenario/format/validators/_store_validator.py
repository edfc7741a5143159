"""Validation of the store of a file, and of parts that need durable agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from lmos_actors.system.model import WORLDS, is_real

from ...model import Store
from ._condition_validator import check_delay

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames

_HERE: DataPath = ("store",)


class StoreValidator:
    """The validator of `store`, and of parts that need a store; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names

    def check(self) -> None:
        """Check the store of the file, if it has one."""
        if "store" not in self.names.cell.data:
            return
        self.check_world('"store"', _HERE, key=True)
        self.check_durable('"store"', _HERE, key=True)
        made = self.names.made.get(_HERE)
        latency = made.latency if isinstance(made, Store) else UNSET
        check_delay(self.names, latency, (*_HERE, "latency"))

    @property
    def takes_time(self) -> bool:
        """Whether commits take time."""
        made = self.names.made.get(_HERE)
        return "store" in self.names.cell.data and (made is None or made.latency not in (0, UNSET))

    def check_world(self, what: str, path: DataPath, *, key: bool = False) -> None:
        """Refuse a part (`what`) that needs a simulated node if the world has real nodes and disks."""
        world = self.names.cell.data.get("world", "memory")
        if world in WORLDS and is_real(world):
            message = f"{what} is for simulated nodes and disks: world: memory or wire, not {world}"
            self.names.report(path, message, "shape", key=key)

    def check_durable(self, what: str, path: DataPath, *, key: bool = False) -> None:
        """Refuse a part (`what`) about stored state if no agent stores any.

        If some classes are not known, nothing is refused.
        """
        names = self.names
        known = names.fitted and all(name in names.classes for name in names.places)
        if known and not names.has_durable_agents and not names.keeps_turns:
            nothing = "no agent of the file is durable, or resumes turns, so nothing is kept"
            message = f"{what} does nothing: {nothing}"
            self.names.report(path, message, "shape", key=key)
