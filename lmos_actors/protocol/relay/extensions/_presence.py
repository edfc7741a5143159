"""Presence: the followers of an agent are notified when it connects and disconnects."""

from __future__ import annotations

from .._extension import HubExtension


class Presence(HubExtension):
    """The extension `presence`: `joined` and `left`, with `{"agent": ID}`.

    Neither is sent when a newer connection takes over from an older one.
    """

    name = "presence"

    def joined(self, agent: str) -> None:
        """Send `joined` to the followers of an agent."""
        self._notify("joined", agent)

    def left(self, agent: str) -> None:
        """Send `left` to the followers of an agent."""
        self._notify("left", agent)

    def _notify(self, type: str, agent: str) -> None:
        for other in self.hub.connected:
            if other != agent and agent in self.hub.follows(other):
                self.hub.answer(other, type, {"agent": agent})
