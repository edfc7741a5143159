"""The readiness of a node to take requests, which `/readyz` reports.

The readiness concerns this node alone. An agent elsewhere may be down, or may itself wait for this node: if
each node waited for the other to be ready, neither would ever be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.actors import Runtime

    from ._service import NodeService

STORE_HANGS: Final = 5.0
"""Seconds after which an unfinished commit of the store makes the node unready."""


class Readiness:
    """The readiness of one node: `drains` is whether it drains, `is_open` whether it accepts connections.

    Once the node has been ready, agents that are started later do not make it unready: a node may start some
    agents for each of its users.
    """

    def __init__(
        self,
        rt: Runtime,
        *,
        drains: Callable[[], bool],
        is_open: Callable[[], bool],
        services: Sequence[NodeService],
    ) -> None:
        self._rt = rt
        self._drains = drains
        self._is_open = is_open
        self._services = services
        self._was_ready = False

    def word(self) -> str:
        """Return "ready", or "degraded", or why no requests are taken now."""
        keeping = self._rt.keeping
        if self._drains():
            return "draining"
        if keeping is not None and keeping.retry_in is not None:
            return "store fails"
        if keeping is not None and keeping.statistics().waiting_seconds >= STORE_HANGS:
            return "store hangs"
        if not self._is_open() or (self._rt.starts.first and not self._was_ready):
            return "starting"
        for service in self._services:
            if why := service.why_not_ready():
                return why
        self._was_ready = True
        return "degraded" if self.down() else "ready"

    async def change(self) -> None:
        """Wait until `down` may return something else."""
        await self._rt.starts.change()

    def down(self) -> list[str]:
        """Return the paths of agents and supervisors that restart or wait to restart."""
        waiting = (child for loop in tuple(self._rt.tally.supervisors) for child in loop.plan.waiting())
        return list(dict.fromkeys(child.path for child in (*self._rt.starts.again, *waiting)))
