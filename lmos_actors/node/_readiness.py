"""Whether a node takes requests: what `/readyz` answers.

It is about the node alone. An agent elsewhere that it asks may be away, or may wait for this node: if each
were ready only once the other is, none ever would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.actors import Runtime

    from ._service import NodeService

STORE_HANGS: Final = 5.0
"""Seconds of one commit from which on the node is not ready."""


class Readiness:
    """The readiness of one node: `drains` says whether it ends, `is_open` whether its doors are open.

    Once it has been ready, agents that are started later do not make it unready: a node may start some for
    each of its users.
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
        """Wait until `down` may have something else to return."""
        await self._rt.starts.change()

    def down(self) -> list[str]:
        """Return the paths of agents and supervisors that are being restarted, or wait for it."""
        waiting = (child for loop in tuple(self._rt.tally.supervisors) for child in loop.plan.waiting())
        return list(dict.fromkeys(child.path for child in (*self._rt.starts.again, *waiting)))
