"""A story of gossip and its limit: a heap of events that codes every message, and nothing else.

Each of many agents has six contacts on a small world. Who has heard the rumour tells it to four of them
after 0.5 to 1.5 seconds of virtual time, and again and again. A message takes a time of its own, of which
the median is 25 ms and one in a hundred is over 250 ms; one in twenty is lost. All chance comes from the
story, in the order of virtual time: programs that keep this order arrive at the same digest.
"""

from __future__ import annotations

import gc
import itertools
import random
from heapq import heappop, heappush
from math import exp, log
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

QUESTION = "Have you heard that the weather in Berlin turns tomorrow?"
MODE = "text"

_HOPS = (1, -1, 2, -2, 3, -3)
_PICKS = list(itertools.combinations(range(6), 4))
_LOSS, _MU, _SIGMA = 0.05, log(0.025), log(10) / 2.3263478740408408


class Rumour(msgspec.Struct, tag_field="messageType", tag="invokeAction", gc=False):
    """What goes from agent to agent where messages are coded: an LMOS message."""

    thingID: str
    messageID: str
    action: str
    input: dict[str, str]
    correlationID: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Rumour).decode


class Story:
    """What happens by chance, and what has come of it: until `wanted` messages have arrived."""

    def __init__(self, agents: int, wanted: int, seed: int = 1) -> None:
        chance = random.Random(7).random
        self.agents = agents
        self.contacts = [
            [int(chance() * agents) if chance() < 0.2 else (i + hop) % agents for hop in _HOPS]
            for i in range(agents)
        ]
        self.delivered = self.digest = 0
        self._wanted = wanted
        self._chance = random.Random(seed)
        self._known = bytearray(agents)
        self._serial = 0

    @property
    def over(self) -> bool:
        """As many messages have arrived as are wanted."""
        return self.delivered >= self._wanted

    def pause(self) -> float:
        """Give the seconds until an agent tells its contacts the next time."""
        return 0.5 + self._chance.random()

    def forward(self, i: int) -> list[tuple[int, float]]:
        """Give whom an agent tells now, and how long each message takes; without those that are lost."""
        chance, contacts = self._chance, self.contacts[i]
        return [
            (contacts[place], exp(_MU + _SIGMA * chance.gauss(0.0, 1.0)))
            for place in _PICKS[int(chance.random() * len(_PICKS))]
            if chance.random() >= _LOSS
        ]

    def arrived(self, i: int, sender: int) -> bool:
        """Take note of a message; say whether it is the agent's first."""
        self.delivered += 1
        self.digest = hash((self.digest, i, sender))
        if self._known[i]:
            return False
        self._known[i] = 1
        return True

    def encode(self, i: int, j: int) -> bytes:
        """Write a message of agent i to agent j."""
        self._serial = n = self._serial + 1
        return _encode(
            Rumour(
                f"urn:uuid:0804d572-cce8-422a-bb7c-{j:012d}",
                f"c370da58-69ae-4e83-bb5a-{n:012d}",
                "tell",
                {"question": QUESTION, "sender": str(i), "mode": MODE},
                f"5afb752f-8da0-428f-8d83-{i:012d}",
            )
        )

    def decode(self, data: bytes) -> int:
        """Read a message; give its sender."""
        return int(_decode(data).input["sender"])


def on_heap(story: Story) -> float:
    """Tell the story with a heap of events alone; give the messages that arrived a second."""
    heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
    now, events = 0.0, 0

    def at(delay: float, fn: Callable[[Any], None], arg: Any) -> None:
        nonlocal events
        events += 1
        heappush(heap, (now + delay, events, fn, arg))

    class Teller:
        __slots__ = ("i",)

        def __init__(self, i: int) -> None:
            self.i = i

        def hear(self, data: bytes) -> None:
            if story.arrived(self.i, story.decode(data)):
                at(story.pause(), self.forward, None)

        def forward(self, _: None) -> None:
            i = self.i
            for j, delay in story.forward(i):
                at(delay, tellers[j].hear, story.encode(i, j))
            at(story.pause(), self.forward, None)

    tellers = [Teller(i) for i in range(story.agents)]
    gc.disable()  # as a simulation does
    try:
        began = clock()
        tellers[0].hear(story.encode(0, 0))
        while not story.over:
            now, _, fn, arg = heappop(heap)
            fn(arg)
        return story.delivered / (clock() - began)
    finally:
        gc.enable()


def deliveries(agents: int, n: int) -> float:
    """Messages that arrive a second, `n` of them, among `agents` agents (or `n`, if that is fewer)."""
    return on_heap(Story(min(agents, n), n))
