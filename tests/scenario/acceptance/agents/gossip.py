"""A rumour among many peers, each of which tells some of its neighbours now and then."""

from __future__ import annotations

from lmos_actors import Agent, Property, Ref, action, prop


class Peer(Agent):
    """Tells `fanout` of its neighbours every `period` seconds what it has heard."""

    neighbours: tuple[Ref[Peer], ...] = ()
    fanout: int = 2
    period: float = 1.0
    knows_r1: Property[bool] = prop(default=False)
    version: Property[int] = prop(default=0)

    def started(self) -> None:
        self.after(self.period, self.gossip)

    @action
    def rumour(self, id: str, text: str) -> None:
        """Hear a rumour."""
        if id == "r1":
            self.knows_r1, self.version = True, 1

    def gossip(self) -> None:
        self.after(self.period, self.gossip)
        if self.knows_r1:
            for neighbour in self.random.sample(self.neighbours, min(self.fanout, len(self.neighbours))):
                self.send(neighbour, Peer.rumour, "r1", "the bridge is open")


class Collector(Agent):
    """Counts what it is told."""

    heard: Property[int] = prop(default=0)

    def started(self) -> None:
        self.heard = 0

    @action
    def report(self) -> None:
        """Count one more."""
        self.heard += 1
