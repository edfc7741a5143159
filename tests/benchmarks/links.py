"""The story of gossip in a simulation file with a network: each message goes over a link with a latency."""

from __future__ import annotations

from time import perf_counter as clock

from lmos_actors import Agent, Property, Ref, action, prop
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.benchmarks.limits_story import MODE, QUESTION
from tests.benchmarks.worlds import FILES


class Ending(Agent):
    """Notes that enough has been heard."""

    over: Property[bool] = prop(default=False)

    @action
    def end(self) -> None:
        self.over = True


class Heard:
    """What has been heard in this run, and when it began and ended."""

    count = 0
    began = ended = 0.0


class Peer(Agent):
    """Hears the rumour and tells it to four of its neighbours, again and again."""

    neighbours: tuple[Ref[Peer], ...]
    wanted: int
    ending: Ref[Ending]
    knows: bool = False

    @action
    def tell(self, question: str, sender: int, mode: str) -> None:
        Heard.count += 1
        if not self.knows:
            self.knows = True
            self.after(0.5 + self.random.random(), self.forward)
        if Heard.count == 1:
            Heard.began = clock()
        elif Heard.count >= self.wanted:
            Heard.ended = Heard.ended if Heard.count > self.wanted else clock()
            self.send(self.ending, Ending.end)  # again with each message, as it may get lost

    def forward(self) -> None:
        for neighbour in self.random.sample(self.neighbours, min(4, len(self.neighbours))):
            self.send(neighbour, Peer.tell, QUESTION, 0, MODE)
        self.after(0.5 + self.random.random(), self.forward)


def deliveries(agents: int, delivery: str, n: int, world: str = "memory") -> float:
    """Return the messages that come to agents in a second of this machine, each of them in the log."""
    given = {
        "count": str(max(8, min(agents, n))),
        "wanted": str(n),
        "delivery": delivery,
        "world": world,
    }
    resolved = load_scenario(FILES / "links.yaml", settings=given)
    Heard.count = 0
    ran = run_cell(resolved, resolved.cells[0], 1, real_limit=3_600, whole_log=False)
    assert ran.ended == "passed", ran.failures
    return n / (Heard.ended - Heard.began)
