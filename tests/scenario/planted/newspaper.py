"""A newspaper that is brought to its readers. After a broken connection some read an edition twice."""

from __future__ import annotations

import trio

from lmos_actors import Agent, AgentUnavailable, OutcomeUnknown, Property, Ref, action, prop


class Reader(Agent):
    """Reads each edition that is brought.

    Planted: it does not look whether it has had that edition. One is brought again where the newspaper cannot
    know whether it has come, as the connection broke before the answer was there.
    """

    read: Property[int] = prop(default=0, read_only=True, doc="How many editions were read.")
    latest: Property[int] = prop(default=0, read_only=True, doc="The number of the latest of them.")

    @action
    def take(self, edition: int) -> None:
        """Take an edition, and read it."""
        self.read += 1
        self.latest = edition


class RightReader(Reader):
    """A reader that puts aside what it has read."""

    @action
    def take(self, edition: int) -> None:
        """Take an edition, and read it unless that has been done."""
        if edition > self.latest:
            self.read += 1
            self.latest = edition


class Newspaper(Agent):
    """Has a new edition every two seconds, and brings each to all readers."""

    readers: tuple[Ref[Reader], ...]
    pause: float = 2.0

    def started(self) -> None:
        for reader in self.readers:
            self.nursery.start_soon(self._bring_all, reader)

    async def _bring_all(self, reader: Ref[Reader]) -> None:
        edition = 0
        while True:
            await trio.sleep(self.pause)
            edition += 1
            await self._bring(reader, edition)

    async def _bring(self, reader: Ref[Reader], edition: int) -> None:
        while True:
            try:
                return await reader.invoke(Reader.take, edition)
            except (AgentUnavailable, OutcomeUnknown):
                await trio.sleep(0.2)  # until there is a connection again
