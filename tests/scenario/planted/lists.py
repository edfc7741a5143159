"""A shopping list that a household keeps on several devices, which gossip about it. It loses updates."""

from __future__ import annotations

from lmos_actors import Agent, Property, Ref, action, prop


class Device(Agent):
    """One device with the list. What is put on it is told to all others at once, and again from time to time.

    Planted: of two lists the newer one replaces the other. Where two devices add something at about the same
    time, before they have heard of each other, the lists are as new, and what one of them added is lost.
    """

    neighbours: tuple[Ref[Device], ...] = ()
    items: tuple[str, ...] = ()
    length: Property[int] = prop(default=0, read_only=True, doc="How many things are on the list.")
    version: int = 0

    def started(self) -> None:
        self.after(2.0, self.gossip)

    @action
    def add(self, item: str) -> None:
        """Put something on the list."""
        self.items += (item,)
        self.length = len(self.items)
        self.version += 1
        for neighbour in self.neighbours:
            self.send(neighbour, Device.hear, self.version, self.items)

    @action
    def hear(self, version: int, items: tuple[str, ...]) -> None:
        """Hear what another device has."""
        if version > self.version:
            self.items, self.version = items, version
            self.length = len(items)

    def gossip(self) -> None:
        self.after(2.0, self.gossip)
        self.send(self.random.choice(self.neighbours), Device.hear, self.version, self.items)


class RightDevice(Device):
    """A device that merges what both have."""

    @action
    def hear(self, version: int, items: tuple[str, ...]) -> None:
        """Hear what another device has."""
        self.items += tuple(item for item in items if item not in self.items)
        self.length = len(self.items)
