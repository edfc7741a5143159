"""An index of the groups of a deployment by the paths of their agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.system import supervisor_paths
from lmos_actors.system.model import DIRECTORY

if TYPE_CHECKING:
    from lmos_actors.system import System

    from ..model import Deployment


class GroupNames:
    """The groups of a deployment by the paths of their agents."""

    def __init__(self, deployment: Deployment, system: System) -> None:
        places, above = system.paths, supervisor_paths(system.root, system.used)
        self._groups = {
            places.get(member) or above.get(member, member): name
            for name, group in deployment.groups.items()
            for member in group.agents
        }
        host = next((name for name, group in deployment.groups.items() if group.directory), None)
        if host is not None:
            self._groups.setdefault(DIRECTORY, host)

    def path(self, path: str) -> str | None:
        """Return the group that contains a path, or else a group below the path; None if there is none."""
        place = path
        while place:
            if place in self._groups:
                return self._groups[place]
            place = place.rpartition("/")[0]
        return next((group for below, group in self._groups.items() if below.startswith(f"{path}/")), None)
