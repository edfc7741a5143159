"""The story of gossip on supervised agents in a simulated node that logs every message."""

from __future__ import annotations

from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import Agent, ChildSpec, Ref, action, open_node, simulate
from lmos_actors.simulation import TraceLog
from tests.benchmarks.limits_story import MODE, QUESTION, Story

if TYPE_CHECKING:
    from collections.abc import Callable


class Telling:
    """What the agents share: the story, refs to all of them, and whom to tell that it is over."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.peers: list[Ref[Peer]] = []
        self.over = trio.Event()

    def end(self) -> None:
        """Enough messages have arrived."""
        self.over.set()


class Peer(Agent):
    """Hears the rumour and tells it on; a message is under way on a timer of its sender."""

    shared: Any = None
    number: int = 0

    @action
    def tell(self, question: str, sender: int, mode: str) -> None:
        story = self.shared.story
        if story.arrived(self.number, sender):
            self.after(story.pause(), self.forward)
        if story.over:
            self.shared.end()

    def forward(self) -> None:
        shared, number = self.shared, self.number
        for j, delay in shared.story.forward(number):
            self.send_after(delay, shared.peers[j], Peer.tell, QUESTION, number, MODE)
        self.after(shared.story.pause(), self.forward)


def numbered(shared: Telling) -> Callable[[], Peer]:
    """Give what makes the peers, one after another."""
    numbers = iter(range(shared.story.agents))
    return lambda: Peer(shared=shared, number=next(numbers))


async def tell(story: Story) -> float:
    """Tell the story; give the messages that arrived a second."""
    async with open_node() as node:
        shared = Telling(story)
        shared.peers = list(await node.root.start_many(ChildSpec("peer", numbered(shared)), story.agents))
        began = clock()
        await shared.peers[0].tell(Peer.tell, QUESTION, 0, MODE)
        await shared.over.wait()
        return story.delivered / (clock() - began)


def unlogged(agents: int, n: int) -> float:
    """As `deliveries`, where nobody looks."""
    return simulate(tell, Story(min(agents, n), n))


def deliveries(agents: int, n: int) -> float:
    """As the limit does, on our agents: values checked, every message logged from `sent` to `answered`."""
    return simulate(tell, Story(min(agents, n), n), log=TraceLog(keep=200))
