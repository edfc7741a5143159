"""Mesa: a message under way is an event of its `DEVSimulator`.

There is no mailbox, no check and no log, and nothing is encoded.
"""

from __future__ import annotations

from time import perf_counter as clock

import mesa
from mesa.experimental.devs import DEVSimulator

from tests.benchmarks.limits_story import Story


class Peer(mesa.Agent):
    def __init__(self, model: World, number: int) -> None:
        super().__init__(model)
        self.number = number

    def hear(self, sender: int) -> None:
        world = self.model
        if world.story.arrived(self.number, sender):
            world.at(world.story.pause(), self.forward)

    def forward(self) -> None:
        world = self.model
        for j, delay in world.story.forward(self.number):
            world.at(delay, world.peers[j].hear, self.number)
        world.at(world.story.pause(), self.forward)


class World(mesa.Model):
    def __init__(self, story: Story, simulator: DEVSimulator) -> None:
        super().__init__(seed=1)
        self.story, self.simulator = story, simulator
        self.peers = [Peer(self, number) for number in range(story.agents)]

    def at(self, delay: float, call: object, *arguments: int) -> None:
        self.simulator.schedule_event_relative(call, delay, function_args=[*arguments])


def deliveries(n: int) -> float:
    story, simulator = Story(min(1_000, n), n), DEVSimulator()
    world = World(story, simulator)
    simulator.setup(world)
    began = clock()
    world.peers[0].hear(0)
    while not story.over:
        simulator.run_next_event()
    return clock() - began
