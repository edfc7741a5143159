"""A rumour among many: every peer tells a few others, again and again, until all have heard it."""

from __future__ import annotations

from lmos_actors import Agent, Property, Ref, action, prop


class Collector(Agent):
    """Hears from every peer once: when it has learnt the rumour."""

    heard: Property[int] = prop(default=0, read_only=True)

    @action
    def report(self) -> None:
        """Take note that one more peer knows."""
        self.heard += 1


class Peer(Agent):
    """Tells `fanout` of its neighbours every `period` seconds what it knows, once it knows something.

    It does not matter to it that messages are lost or that it forgets: somebody will tell it again.
    """

    neighbours: tuple[Ref[Peer], ...] = ()
    collector: Ref[Collector] | None = None
    fanout: int = 2
    period: float = 1.0
    text: str = ""
    knows: Property[bool] = prop(default=False, read_only=True)
    version: Property[int] = prop(default=0, read_only=True)

    def started(self) -> None:
        # not all at once: each begins somewhere in its first period
        self.after(self.period * self.random.random(), self.tell_some)

    @action
    def rumour(self, text: str, version: int = 1) -> None:
        """Hear a rumour; a newer version of it replaces an older one."""
        if version <= self.version:
            return
        self.text, self.version = text, version
        if not self.knows and self.collector is not None:
            self.send(self.collector, Collector.report)
        self.knows = True

    def tell_some(self) -> None:
        self.after(self.period, self.tell_some)
        if self.knows:
            chosen = self.random.sample(self.neighbours, min(self.fanout, len(self.neighbours)))
            for neighbour in chosen:
                self.send(neighbour, Peer.rumour, self.text, self.version)
