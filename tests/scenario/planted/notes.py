"""Authors of notes, which they read again. Some find an older one than they have written."""

from __future__ import annotations

import attrs
import trio

from lmos_actors import Agent, AgentError, Property, Ref, action, prop


class Store(Agent):
    """Keeps notes, and sends what is new to another store that has a copy: at once what comes in 20 ms."""

    copy: Ref[Store] | None = None
    notes: dict[str, int] = attrs.field(factory=dict[str, int])
    new: dict[str, int] = attrs.field(factory=dict[str, int])

    @action
    def write(self, author: str, note: int) -> None:
        """Keep a note of an author, in place of the one before."""
        self.notes[author] = note
        if self.copy is not None:
            if not self.new:
                self.after(0.02, self.make_copy, self.copy)
            self.new[author] = note

    def make_copy(self, copy: Ref[Store]) -> None:
        for author, note in self.new.items():
            self.send(copy, Store.write, author, note)
        self.new.clear()

    @action(safe=True)
    def read(self, author: str) -> int:
        """Return the note of an author."""
        return self.notes.get(author, 0)


class Author(Agent):
    """Writes a note every three seconds, about, and reads it again.

    Planted: where the store does not answer in time it reads the copy, which may not have its note yet.
    """

    store: Ref[Store]
    copy: Ref[Store]
    written: int = 0
    stale: Property[int] = prop(
        default=0, read_only=True, doc="Notes that were older than what it had written."
    )

    def started(self) -> None:
        self.nursery.start_soon(self._write_and_read)

    async def _write_and_read(self) -> None:
        while True:
            await trio.sleep(1.5 + 3 * self.random.random())
            try:
                await self.store.within(1.0).invoke(Store.write, self.path, self.written + 1)
                self.written += 1
                await trio.sleep(0.1)
                note = await self._read()
            except AgentError:  # another time
                continue
            self.stale += note < self.written

    async def _read(self) -> int:
        try:
            return await self.store.within(0.3).invoke(Store.read, self.path)
        except AgentError:
            return await self.copy.within(0.3).invoke(Store.read, self.path)


class RightAuthor(Author):
    """An author that reads what is its own at the store alone."""

    async def _read(self) -> int:
        return await self.store.within(0.3).invoke(Store.read, self.path)
