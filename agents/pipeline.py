"""A fast producer and a slow consumer: what happens when more is sent than can be handled.

The producer is a `def` agent and awaits nothing. `self.send` holds it back all the same: while a message
of its turn waits for a seat in the consumer's mailbox it gets no further turn.
"""

from __future__ import annotations

import trio

from lmos_actors import Agent, MailboxFull, Property, Ref, action, prop


class Consumer(Agent, serial=True):
    """Takes one item at a time, and `pace` seconds for each."""

    pace: float = 0.01
    taken: Property[int] = prop(default=0, read_only=True)
    last: Property[int] = prop(default=-1, read_only=True)

    @action
    async def take(self, item: int) -> None:
        """Handle one item."""
        await trio.sleep(self.pace)
        self.taken += 1
        self.last = item


class Producer(Agent):
    """Sends numbered items to the consumer, a few in each turn."""

    consumer: Ref[Consumer]
    per_turn: int = 4
    made: Property[int] = prop(default=0, read_only=True)
    turned_away: Property[int] = prop(default=0, read_only=True)

    @action
    def produce(self, count: int) -> None:
        """Make so many items; the rest of them in further turns."""
        for _ in range(min(count, self.per_turn)):
            self.offer(self.made)
            self.made += 1
        left = count - self.per_turn
        if left > 0:
            self.send(self.ref, Producer.produce, left)

    def offer(self, item: int) -> None:
        try:
            self.send(self.consumer, Consumer.take, item)
        except MailboxFull:
            self.turned_away += 1
